"""Residual networks for small images: the CIFAR ResNets of 20 to 56 layers, an 18-layer one, and a fast one of 9.

    resnet20, 32, 44, 56   3×3 stem; 3 stages of n = 3, 5, 7, 9 blocks, 16-32-64 wide; shortcuts without parameters
    resnet18               3×3 stem; 4 stages of 2 blocks, 64-128-256-512 wide; 1×1 convolutions where shapes change
    resnet9                64, 128, pool, residual, 256, pool, 512, pool, residual; global max

A shortcut without parameters takes every second pixel and adds channels of zeros (option A).
He, Zhang, Ren & Sun, "Deep residual learning for image recognition" (CVPR 2016), Section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from mohs.models.blocks import (
    BatchNorm,
    Body,
    GlobalMax,
    Shape,
    Times,
    check_dropout,
    check_whole,
    conv,
    global_mean,
    he_normal,
    image_shape,
    with_dropout,
)


class Subsampled(nn.Module):
    """The shortcut without parameters: every stride-th pixel, and channels of zeros."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = extra, stride

    def forward(self, x: Tensor) -> Tensor:
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class Block(nn.Module):
    """relu(f(x) + shortcut(x)), f two 3×3 convolutions."""

    def __init__(self, inside: int, outside: int, stride: int, *, projection: bool = False) -> None:
        super().__init__()
        self.first = conv(inside, outside, stride=stride)
        self.second = nn.Sequential(nn.Conv2d(outside, outside, 3, padding=1, bias=False), BatchNorm(outside))
        self.shortcut: nn.Module = nn.Identity()
        if (inside, stride) != (outside, 1):
            project = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), BatchNorm(outside))
            self.shortcut = project if projection else Subsampled(outside - inside, stride)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.second(self.first(x)) + self.shortcut(x))


class Residual(nn.Module):
    """x + f(x), f two 3×3 convolutions with their activations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(conv(width, width), conv(width, width))

    def forward(self, x: Tensor) -> Tensor:
        sum_: Tensor = x + self.inner(x)
        return sum_


def residual_body(channels: int, widths: Sequence[int], blocks: int, *, dropout: float, projection: bool = False) -> nn.Module:
    """A 3×3 stem and a stage of blocks for each width; every stage but the first halves the image."""
    layers: list[nn.Module] = [conv(channels, widths[0])]
    inside = widths[0]
    for stage, outside in enumerate(widths):
        for i in range(blocks):
            layers.append(Block(inside, outside, 2 if stage and not i else 1, projection=projection))
            inside = outside
    return he_normal(with_dropout([*layers, global_mean()], dropout))


def cifar_resnet(depth: int, shape: Shape, width: int, dropout: float) -> Body:
    """The body of 6n + 2 layers."""
    channels, _, _ = image_shape(f"resnet{depth}", shape, smallest=4)
    widths = (width, 2 * width, 4 * width)
    return residual_body(channels, widths, (depth - 2) // 6, dropout=dropout), widths[-1]


def check(width: int, dropout: float) -> None:
    """Raise unless both can be."""
    check_whole("width", width)
    check_dropout(dropout)


@dataclass(frozen=True, kw_only=True)
class ResNet20:
    """0.27 million weights at width 16."""

    formula: ClassVar[str] = "3 stages of 3 blocks, 16-32-64"
    purpose: ClassVar[str] = "CIFAR: the small standard"
    width: int = 16
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check(self.width, self.dropout)

    def body(self, shape: Shape) -> Body:
        return cifar_resnet(20, shape, self.width, self.dropout)


@dataclass(frozen=True, kw_only=True)
class ResNet32:
    """0.46 million weights at width 16."""

    formula: ClassVar[str] = "3 stages of 5 blocks, 16-32-64"
    purpose: ClassVar[str] = "CIFAR, long-tailed sets: what most papers on imbalance train"
    width: int = 16
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check(self.width, self.dropout)

    def body(self, shape: Shape) -> Body:
        return cifar_resnet(32, shape, self.width, self.dropout)


@dataclass(frozen=True, kw_only=True)
class ResNet44:
    """0.66 million weights at width 16."""

    formula: ClassVar[str] = "3 stages of 7 blocks, 16-32-64"
    purpose: ClassVar[str] = "CIFAR-100 of the Gradient Rescaling paper"
    width: int = 16
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check(self.width, self.dropout)

    def body(self, shape: Shape) -> Body:
        return cifar_resnet(44, shape, self.width, self.dropout)


@dataclass(frozen=True, kw_only=True)
class ResNet56:
    """0.85 million weights at width 16."""

    formula: ClassVar[str] = "3 stages of 9 blocks, 16-32-64"
    purpose: ClassVar[str] = "CIFAR-10 of the Gradient Rescaling paper: deep enough to fit wrong labels"
    width: int = 16
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check(self.width, self.dropout)

    def body(self, shape: Shape) -> Body:
        return cifar_resnet(56, shape, self.width, self.dropout)


@dataclass(frozen=True, kw_only=True)
class ResNet18:
    """11 million weights at width 64; no pooling in the stem, unlike `torchvision:resnet18`."""

    formula: ClassVar[str] = "4 stages of 2 blocks, 64-128-256-512"
    purpose: ClassVar[str] = "images of 32 to 64 pixels where accuracy matters more than time"
    width: int = 64
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check(self.width, self.dropout)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("resnet18", shape, smallest=8)
        widths = [self.width * 2**i for i in range(4)]
        return residual_body(channels, widths, 2, dropout=self.dropout, projection=True), widths[-1]


@dataclass(frozen=True, kw_only=True)
class ResNet9:
    """6.6 million weights at width 64; the features are an eighth of the largest activations.

    At their full size the first steps of SGD at its usual rate are so large that the network may never recover.
    """

    formula: ClassVar[str] = "64-128-256-512 with two residual blocks"
    purpose: ClassVar[str] = "32×32 images: the best accuracy for a short training on a GPU"
    width: int = 64
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check(self.width, self.dropout)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("resnet9", shape, smallest=8)
        a, b, c, d = (self.width * 2**i for i in range(4))
        first = [conv(channels, a), conv(a, b), nn.MaxPool2d(2), Residual(b)]
        layers = [*first, conv(b, c), nn.MaxPool2d(2), conv(c, d), nn.MaxPool2d(2), Residual(d), GlobalMax(), Times(1 / 8)]
        return with_dropout(layers, self.dropout), d
