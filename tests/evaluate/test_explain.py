"""Grad-CAM: the map it finds, its values by hand, its numbers against loops, and on which pixels it falls."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from mohs.evaluate.cam_layer import find_cam_layer
from mohs.evaluate.cam_metrics import area, blurred, deletion, insertion, inside, map_entropy
from mohs.evaluate.explain import explain
from mohs.evaluate.outputs import logits_over

pytest.importorskip("captum", reason="captum is not installed (the explain extra)")


class Block(nn.Module):
    """A pre-norm transformer block of one head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mlp = (
            nn.Linear(width, 3 * width),
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches of 4, a class token or the mean."""

    def __init__(self, *, token: bool, width: int = 16) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width)) if token else None
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).mT
        if self.token is not None:
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0] if self.token is not None else x.mean(1))


def quadrants(n: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    """Noise with a bright patch in one quadrant of 16×16, whose texture is the class; images, labels, masks of the patch."""
    generator = torch.Generator().manual_seed(0)
    x, mask = 0.2 * torch.rand(n, 1, 16, 16, generator=generator), torch.zeros(n, 16, 16)
    y, place = torch.arange(n) % 2, torch.randint(4, (n,), generator=generator)
    for i in range(n):
        top, left = 8 * int(place[i] // 2) + 1, 8 * int(place[i] % 2) + 1
        patch = torch.zeros(6, 6)
        patch[::2] = 1.0
        x[i, 0, top : top + 6, left : left + 6] = patch if y[i] else patch.T
        mask[i, top : top + 6, left : left + 6] = 1
    return x, y, mask


@pytest.fixture(scope="module")
def striped() -> nn.Module:
    torch.manual_seed(0)
    x, y, _ = quadrants()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8),
        nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net.eval()


def test_the_map_is_found() -> None:
    x = torch.rand(1, 3, 16, 24)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 7 * 11, 5))
    assert find_cam_layer(plain, x).layer == "1"  # with its activation, before the pooling
    squeezing = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 5, 1), nn.Flatten())
    assert find_cam_layer(squeezing, x).layer == "0"  # a map of one pixel shows nothing
    with_token, mean = ViT(token=True).train(), ViT(token=False)
    found = find_cam_layer(with_token, x)
    assert (found.layer, found.extra, found.grid) == ("blocks.1.norm1", 1, (4, 6))  # the last where patches still matter
    found = find_cam_layer(mean, x)
    assert (found.layer, found.extra, found.grid) == ("norm", 0, (4, 6))
    assert with_token.training
    assert not any(module._forward_hooks for module in with_token.modules())


def test_matches_values_computed_by_hand(striped) -> None:
    x, _, _ = quadrants(5)
    maps = explain(striped, x, batch_size=2, steps=1).maps
    front, back = striped[:6], striped[6:]
    features = front(x).detach().requires_grad_()
    back(features).amax(1).sum().backward()
    cam = (features.grad.mean((2, 3), keepdim=True) * features).sum(1, keepdim=True).relu().detach()
    cam = interpolate(cam, size=(16, 16), mode="bilinear", align_corners=False).squeeze(1)
    torch.testing.assert_close(maps, cam / cam.amax((1, 2), keepdim=True))
    other = explain(striped, x, 1 - striped(x).argmax(1), steps=1).maps
    assert not torch.equal(other, maps)
    torch.testing.assert_close(explain(striped, x, layer="5", steps=1).maps, maps)


def test_tokens_as_computed_by_hand() -> None:
    torch.manual_seed(1)
    net, x = ViT(token=True).eval(), torch.rand(3, 3, 16, 16)
    tokens = net.blocks[1].norm1(net.blocks[0](torch.cat([net.token.expand(3, -1, -1), net.patch(x).flatten(2).mT], 1)))
    caught: list[Tensor] = []
    with net.blocks[1].norm1.register_forward_hook(lambda m, a, out: caught.append(out)):
        logits = net(x)
    torch.testing.assert_close(caught[0], tokens)
    (gradient,) = torch.autograd.grad(logits.amax(1).sum(), caught[0])
    cam = (gradient[:, 1:].mean(1, keepdim=True) * tokens[:, 1:]).sum(2).relu().view(3, 1, 4, 4)
    cam = interpolate(cam, size=(16, 16), mode="bilinear", align_corners=False).squeeze(1)
    top = cam.amax((1, 2), keepdim=True)
    torch.testing.assert_close(explain(net, x, steps=1).maps, (cam / top.where(top > 0, 1)).detach(), rtol=1e-4, atol=1e-5)


def test_maps_fall_on_the_object_and_the_numbers_agree(striped) -> None:
    x, y, masks = quadrants(60)
    assert (striped(x).argmax(1) == y).all()
    found = explain(striped, x, steps=8)
    assert found.layer == "5"
    random = torch.rand(60, 16, 16, generator=torch.Generator().manual_seed(0))
    assert inside(found.maps, masks).nanmean() > 2 * inside(random, masks).mean()
    guess = striped(x).argmax(1)
    assert found.deletion.mean() < deletion(striped, x, random, guess, steps=8).mean()
    assert found.insertion.mean() > insertion(striped, x, random, guess, steps=8).mean()
    assert set(found.means()) == {"area", "entropy", "deletion", "insertion"}
    assert found.empty == 0
    assert striped[0].weight.requires_grad
    uint8 = explain(striped, (x * 255).round().byte(), steps=2)
    assert uint8.area.mean() == pytest.approx(float(found.area.mean()), abs=0.02)


def test_numbers_of_known_maps() -> None:
    maps = torch.zeros(4, 4, 4)
    maps[0, 1, 1] = 1
    maps[1] = 0.3
    maps[2, 0] = torch.tensor([1.0, 0.6, 0.5, 0.4])
    assert area(maps)[:3].tolist() == pytest.approx([1 / 16, 1, 3 / 16])
    assert map_entropy(maps)[:2].tolist() == pytest.approx([0, 1], abs=1e-6)
    mass = [1 / 2.5, 0.6 / 2.5, 0.5 / 2.5, 0.4 / 2.5]
    assert float(map_entropy(maps)[2]) == pytest.approx(-sum(p * math.log(p) for p in mass) / math.log(16))
    assert area(maps)[3].isnan()
    assert map_entropy(maps)[3].isnan()
    assert inside(maps[:2], torch.tensor(1.0).expand(2, 4, 4)).tolist() == pytest.approx([1, 1])


@torch.no_grad()
def test_deletion_and_insertion_match_a_loop() -> None:
    torch.manual_seed(0)
    net, x, maps = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), torch.rand(2, 1, 3, 4), torch.rand(2, 3, 4)
    for curve, before, after in ((deletion, x, x.mean((2, 3), keepdim=True).expand_as(x)), (insertion, blurred(x), x)):
        got = curve(net, x, maps, torch.tensor([0, 2]), steps=12)
        for i, k in enumerate((0, 2)):
            order = sorted(range(12), key=lambda j, i=i: -float(maps[i].flatten()[j]))
            image = before[i].flatten().clone()
            values = [float(net(image.view(1, 1, 3, 4)).softmax(1)[0, k])]
            for j in order:
                image[j] = after[i].flatten()[j]
                values.append(float(net(image.view(1, 1, 3, 4)).softmax(1)[0, k]))
            assert float(got[i]) == pytest.approx(sum((a + b) / 2 for a, b in pairwise(values)) / 12, rel=1e-5)
    assert blurred(torch.full((1, 3, 9, 9), 0.4)).sub(0.4).abs().max() < 1e-6


def test_a_trained_mohs_network(trained, digits) -> None:
    found = explain(trained, digits[0][1200:1230], digits[1][1200:1230], steps=5)
    assert found.layer == "body.4"
    assert found.maps.shape == (30, 8, 8)
    assert logits_over(trained, digits[0][:3]).shape == (3, 10)


def test_what_is_refused(striped) -> None:
    x, _, _ = quadrants(4)
    with pytest.raises(ValueError, match="Sequential has no convolution with a map of more than one pixel and no grid of tokens"):
        explain(nn.Sequential(nn.Flatten(), nn.Linear(256, 2)), x)
    with pytest.raises(
        ValueError, match=r"layer='9' is not a module of Sequential that runs once and returns a tensor \(maps, the last"
    ):
        explain(striped, x, layer="9")
    with pytest.raises(ValueError, match=r"layer='8' gives shape \(1, 2\), neither a map nor tokens"):
        explain(striped, x, layer="8")
    with pytest.raises(ValueError, match=r"classes\[1\] is 2, but there are 2 classes"):
        explain(striped, x, torch.tensor([0, 2, 0, 0]))
    with pytest.raises(ValueError, match=r"images must have shape \(N, C, H, W\), got"):
        explain(striped, x.flatten(1))
    with pytest.raises(ValueError, match=r"maps must have shape \(N, H, W\)"):
        area(x)
    with pytest.raises(ValueError, match=r"masks must have the maps' shape"):
        inside(x[:, 0], x)
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        explain(striped, x, steps=0)
