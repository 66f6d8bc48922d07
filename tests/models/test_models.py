"""Every model by name: what it gives, what it is made of, what it refuses."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import mohs.models
from mohs import find_head
from mohs.heads import HEADS
from mohs.models import MODELS, create_model, default_model
from mohs.models.layers import BatchNorm
from mohs.models.network import Network, Scale

OWN = [name for name in MODELS if name not in (*mohs.models.ZOOS, "efficientnet_lite")]
SMALLEST = {
    **dict.fromkeys(["cnn", "convmixer", "resnet20", "resnet32", "resnet44", "resnet56"], 4),
    **dict.fromkeys(["resnet9", "resnet18", "vgg"], 8),
    **dict.fromkeys(["conv_large", "conv_small", "amc_mnist"], 12),
    "mnist": 10,
    "alexnet": 15,
    "cnn10": 16,
    "mnist_attack": 20,
}
IMAGES = list(SMALLEST)
SLIM = {"resnet9": 8, "resnet18": 8, "convmixer": 16, "vgg": 8}  # widths that make a test quick
PARAMETERS = {  # 3×32×32 (1×28×28 for MNIST's, 3×64×64 for cnn10) and ten classes
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet44": 658_586,
    "resnet56": 853_018,
    "resnet18": 11_173_962,
    "resnet9": 6_573_130,
    "convmixer": 594_186,
    "vgg": 1_148_874,
    "conv_large": 3_121_802,
}


def spec_of(name: str) -> dict[str, Any]:
    return {"name": name, **({"width": SLIM[name]} if name in SLIM else {})}


def shape_of(name: str) -> tuple[int, ...]:
    return (3,) if name == "toy" else (12,) if name in ("linear", "mlp") else (3, *2 * [max(SMALLEST[name], 8)])


def batch(shape: tuple[int, ...], n: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if len(shape) == 1:
        return torch.randn(n, *shape, generator=generator)
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("name", OWN)
def test_every_model_gives_finite_logits_features_and_gradients(name: str) -> None:
    shape = shape_of(name)
    net = create_model(spec_of(name), shape=shape, num_classes=5).to(memory_format=torch.channels_last)
    logits, features = net.outputs(batch(shape))
    assert logits.shape == (4, 5)
    assert features.shape == (4, net.head.weight.shape[1])
    nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    assert logits.isfinite().all()
    for parameter in net.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    assert sum(float(p.grad.abs().sum()) for p in net.body.parameters()) > 0 or name == "linear"


@pytest.mark.parametrize("name", OWN)
def test_every_model_has_a_head_that_is_found_and_repeats_itself_in_eval_mode(name: str, tmp_path: Path) -> None:
    shape = shape_of(name)
    net = create_model(spec_of(name), shape=shape, num_classes=5, seed=3).eval()
    found = find_head(net)
    assert found.name == "head"
    x = batch(shape)
    with torch.no_grad():
        outputs, features = found.run(x)
        assert torch.equal(outputs, net(x))
        assert torch.equal(features, net.features(x))
        save_file({key: value.contiguous() for key, value in net.state_dict().items()}, tmp_path / "net.safetensors")
        other = create_model(spec_of(name), shape=shape, num_classes=5, seed=4).eval()
        assert not torch.equal(other(x), outputs)
        other.load_state_dict(load_file(tmp_path / "net.safetensors"))
        assert torch.equal(other(x), outputs)


@pytest.mark.parametrize("name", OWN)
def test_bodies_have_no_control_flow_that_depends_on_data(name: str) -> None:
    net = create_model(spec_of(name), shape=shape_of(name), num_classes=5).eval()
    traced = torch.fx.symbolic_trace(net.body)
    x = net.scale(batch(shape_of(name)))
    assert torch.equal(traced(x), net.body(x))


@pytest.mark.parametrize("name", IMAGES)
def test_the_error_names_the_smallest_image_size(name: str) -> None:
    side = SMALLEST[name]
    for shape in ((1, side, side + 3), (3, side, side), (4, side + 1, side)):
        net = create_model(spec_of(name), shape=shape, num_classes=3)
        assert net(batch(shape, 3)).isfinite().all()
    message = rf"^{name} takes images of at least {side}×{side} pixels, got {side}×{side - 1}: enlarge them, or use"
    with pytest.raises(ValueError, match=message):
        create_model(spec_of(name), shape=(3, side, side - 1), num_classes=3)
    with pytest.raises(
        ValueError, match=rf"{name} takes images \(C, H, W\), but one input has the shape \(7,\): use linear or mlp"
    ):
        create_model(name, shape=(7,), num_classes=3)


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameter_counts(name: str, count: int) -> None:
    net = create_model(name, shape=(3, 32, 32), num_classes=10)
    assert sum(p.numel() for p in net.parameters()) == count


def test_the_toy_is_3_2_2() -> None:
    net = create_model("toy", shape=(3,), num_classes=2)
    assert [tuple(p.shape) for p in net.parameters()] == [(2, 3), (2,), (2, 2), (2,)]


def test_few_features_of_the_amc_network_come_after_its_last_convolution() -> None:
    """The paper's Table 2, bottom: a 1×1 convolution of 64 channels, mean pooling, and a head on 3 features."""
    net = create_model("amc_mnist:embedding=3", shape=(1, 28, 28), num_classes=10)
    convolutions = [layer for layer in net.body.modules() if isinstance(layer, nn.Conv2d)]
    assert [(layer.out_channels, layer.kernel_size[0]) for layer in convolutions] == [(64, 3), (64, 3), (128, 3), (64, 1)]
    assert isinstance(net.body[-1], nn.Linear)
    assert net.head.in_features == 3


@pytest.mark.parametrize(("name", "wide"), [("mnist", 256), ("amc_mnist", 64), ("conv_large", 128), ("cnn10", 512)])
@pytest.mark.parametrize("embedding", [2, 3])
def test_embeddings_may_be_drawn(name: str, wide: int, embedding: int) -> None:
    assert create_model(name, shape=(1, 28, 28), num_classes=10).head.in_features == wide
    net = create_model(f"{name}:embedding={embedding}", shape=(1, 28, 28), num_classes=10)
    assert net.features(batch((1, 28, 28), 2)).shape == (2, embedding)


def test_papers_nets_at_their_own_size() -> None:
    """What is pooled is what the papers say: 6×6 and 5×5 maps, 576 numbers."""
    for spec, shape, size in (("conv_large", (3, 32, 32), (128, 6, 6)), ("amc_mnist", (1, 28, 28), (64, 5, 5))):
        net = create_model(spec, shape=shape, num_classes=10).eval()
        maps: Tensor = net.body[:-1](torch.zeros(1, *shape))
        assert tuple(maps.shape[1:]) == size
    for spec in ("mnist", "mnist_attack"):
        net = create_model(spec, shape=(1, 28, 28), num_classes=10)
        assert next(m for m in net.body.modules() if isinstance(m, nn.Linear)).in_features == 576
    assert create_model("mnist", shape=(1, 28, 28), num_classes=10, head="linear:bias=False").head.bias is None


def test_cnn_adapts_to_the_image() -> None:
    for side, features in ((8, 32), (16, 64), (28, 64), (32, 64), (64, 64)):
        net = create_model("cnn", shape=(1, side, side), num_classes=10)
        assert net.head.in_features == features


def test_mlp_takes_widths_and_images() -> None:
    net = create_model({"name": "mlp", "hidden": [6, 4], "activation": "tanh", "dropout": 0.5}, shape=(1, 4, 5), num_classes=3)
    assert [tuple(p.shape) for p in net.parameters() if p.dim() == 2] == [(6, 20), (4, 6), (3, 4)]
    assert create_model("mlp:hidden=64", shape=(9,), num_classes=3).head.in_features == 64
    x = torch.randn(5, 7)
    net = create_model("linear", shape=(7,), num_classes=3)
    assert torch.equal(net.features(x), x)


def test_weights_depend_only_on_the_seed_and_the_global_state_is_unchanged() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = create_model("cnn", shape=(3, 8, 8), num_classes=4, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again = create_model("cnn", shape=(3, 8, 8), num_classes=4, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    other_head = create_model("cnn", shape=(3, 8, 8), num_classes=4, seed=5, head="cosface")
    assert all(torch.equal(a, b) for a, b in zip(first.body.parameters(), other_head.body.parameters(), strict=True))


@pytest.mark.parametrize("head", HEADS)
def test_heads_by_name(head: str) -> None:
    net = create_model("mlp:hidden=8", shape=(6,), num_classes=3, head=head)
    logits, _ = net.outputs(torch.randn(4, 6), torch.tensor([0, 1, 2, 0]))
    assert logits.shape == (4, 3)
    assert find_head(net).module is net.head
    assert isinstance(net.head, HEADS[head])
    assert create_model("linear", shape=(6,), num_classes=3, head={"name": "cosface", "margin": 0.3}).head.margin == 0.3


def test_scale_is_the_given_one_or_the_identity() -> None:
    images = batch((3, 8, 8))
    net = create_model("linear", shape=(3, 8, 8), num_classes=2)
    assert torch.allclose(net.features(images), (images / 255).flatten(1))
    scale = Scale([0.5, 0.4, 0.3], [0.1, 0.2, 0.3])
    assert create_model("linear", shape=(3, 8, 8), num_classes=2, scale=scale).scale is scale
    net.load_state_dict(create_model("linear", shape=(3, 8, 8), num_classes=2, scale=scale).state_dict())
    assert torch.equal(net.scale.sd, scale.sd)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnet21", "unknown model 'resnet21'; known: linear, mlp, toy, cnn"),
        ("cnn:depth=3", "cnn has no field 'depth'; its fields: width, dropout"),
        ({"width": 3}, "a model needs a name; got the keys width"),
        ("cnn:width=0", "width must be an integer of at least 1, got 0"),
        ("cnn:width=1.5", "width must be an integer, got 1.5"),
        ("cnn:dropout=1", "dropout must be at least 0 and under 1, got 1"),
        ("mlp:hidden=0", "hidden must be an integer of at least 1, got 0"),
        ({"name": "mlp", "hidden": []}, r"hidden must be a width or a list of widths, got \[\]: see linear"),
        ({"name": "mlp", "hidden": [8, "x"]}, "hidden must be an integer or a list of integers, got .8, 'x'."),
        ("mlp:activation=sin", "activation must be one of relu, leaky_relu, tanh, gelu, got 'sin'"),
        ("toy:activation=sin", "activation must be one of relu"),
        ("mnist:embedding=0", "embedding must be an integer of at least 1, got 0"),
        ("convmixer:depth=0", "depth must be an integer of at least 1, got 0"),
        ("torchvision", r"missing 1 required keyword-only argument: 'net'; its fields: net, pretrained, size"),
    ],
)
def test_bad_specs_are_named(spec: str | dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_model(spec, shape=(3, 32, 32), num_classes=10)


def test_bad_heads_and_classes_are_named() -> None:
    for head, message in (
        ("ember", "unknown head 'ember'; known: normface"),
        ("linear:margin=1", "linear has no field 'margin'; its fields: bias"),
        ({"margin": 1}, "a head needs a name; got the keys margin"),
    ):
        with pytest.raises(ValueError, match=message):
            create_model("linear", shape=(4,), num_classes=3, head=head)
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 2, got 1"):
        create_model("linear", shape=(4,), num_classes=1)


def test_every_model_has_a_description() -> None:
    for name, piece in MODELS.items():
        assert piece.purpose, name
        assert piece.formula, name
        assert len(fields(piece)) <= 5  # type: ignore[arg-type]


def test_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_model((512,), "features") == "linear"
    assert default_model((10,), "features") == "mlp"
    assert default_model((1, 8, 8), "images") == "cnn"
    assert default_model((1, 8, 8), "images", device="cuda") == "cnn"
    assert default_model((3, 32, 32), "images") == "cnn"
    assert default_model((3, 32, 40), "images", device="cuda") == "resnet9"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert default_model((3, 128, 128), "images") == "cnn"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    assert default_model((3, 64, 64), "images") == "cnn"
    assert default_model((3, 64, 64), "images", device="cuda") == "torchvision:resnet18"
    assert default_model((3, 128, 128), "images") == "torchvision:resnet18"
    with pytest.raises(ValueError, match="kind must be one of images, features, got 'sound'"):
        default_model((3, 64, 64), "sound")


def test_a_model_learns() -> None:
    """Stripes against noise, by the smallest convolutional net."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (128, 1, 8, 8), dtype=torch.uint8, generator=generator)
    y = torch.arange(128) % 2
    x[y == 1, :, ::2] = 0
    net: Network = create_model("cnn:width=8", shape=(1, 8, 8), num_classes=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(15):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert float((net(x).argmax(1) == y).float().mean()) > 0.98


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_normalization_matches_torch_except_for_the_count(momentum: float | None) -> None:
    ours, theirs = BatchNorm(2, momentum=momentum), nn.BatchNorm2d(2, momentum=momentum)
    for i in range(4):
        x = torch.randn(8, 2, 3, 3, generator=torch.Generator().manual_seed(i)) + i
        assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))
    assert int(ours.num_batches_tracked) == (4 if momentum is None else 0)
