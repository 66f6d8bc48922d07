"""Small networks for the benchmarks; each returns logits, and its last layer is a plain `nn.Linear` called `head`."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn.functional import relu


def conv(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """x + f(x), f two 3×3 convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(conv(width, width), conv(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Net(nn.Module):
    """A body that gives features (N, D), and a linear head."""

    def __init__(self, body: nn.Module, width: int, classes: int = 10) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).float()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def resnet9() -> Net:
    """64-128-256-512 with two residual blocks."""
    pool = lambda: nn.MaxPool2d(2)
    body = [conv(3, 64), conv(64, 128), pool(), Residual(128), conv(128, 256), pool(), conv(256, 512), pool(), Residual(512)]
    return Net(nn.Sequential(*body, nn.AdaptiveMaxPool2d(1), nn.Flatten()), 512)


def vgg() -> Net:
    """Plain convolutions, no shortcuts."""
    widths = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256)]
    layers: list[nn.Module] = []
    for i, pair in enumerate(widths):
        layers += [conv(*pair), *([nn.MaxPool2d(2)] if i % 2 else [])]
    return Net(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 256)


class Basic(nn.Module):
    """The block of CIFAR ResNets, with the parameter-free shortcut (He et al., option A)."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.stride, self.extra = (1 if inside == outside else 2), outside - inside
        self.a = nn.Sequential(
            nn.Conv2d(inside, outside, 3, self.stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
        )
        self.b = nn.Sequential(nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        short = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))
        return relu(self.b(self.a(x)) + short)


def resnet20() -> Net:
    """16-32-64, three blocks each."""
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Basic(a, b) for a, b in itertools.pairwise(widths)]
    return Net(nn.Sequential(conv(3, 16), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 64)


NETS = {"resnet9": resnet9, "resnet20": resnet20, "vgg": vgg}


def make(name: str, *, seed: int) -> Net:
    """The network of that name, drawn from this seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return NETS[name]()
