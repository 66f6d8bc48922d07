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
from typing import ClassVar, Protocol

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from mohs.models.layers import (
    BatchNorm,
    Body,
    GlobalMax,
    Shape,
    Times,
    check_fields,
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


class CifarResNet(Protocol):
    """Hyper-parameters of a CIFAR ResNet."""

    formula: ClassVar[str]
    purpose: ClassVar[str]

    def __init__(self, *, width: int = 16, dropout: float = 0.0) -> None: ...
    def body(self, shape: Shape) -> Body: ...


def residual_body(channels: int, widths: Sequence[int], blocks: int, *, dropout: float, projection: bool = False) -> nn.Module:
    """A 3×3 stem and a stage of blocks for each width; every stage but the first halves the image."""
    layers: list[nn.Module] = [conv(channels, widths[0])]
    inside = widths[0]
    for stage, outside in enumerate(widths):
        for i in range(blocks):
            layers.append(Block(inside, outside, 2 if stage and not i else 1, projection=projection))
            inside = outside
    return he_normal(with_dropout([*layers, global_mean()], dropout))


def cifar_resnet(depth: int, weights: str, use: str) -> type[CifarResNet]:
    """The class of CIFAR ResNets with this depth, 6n + 2 layers; weights: millions of them at width 16; use: its purpose."""

    @dataclass(frozen=True, kw_only=True)
    class ResNet:
        formula: ClassVar[str] = f"3 stages of {(depth - 2) // 6} blocks, 16-32-64"
        purpose: ClassVar[str] = use
        width: int = 16
        dropout: float = 0.0

        def __post_init__(self) -> None:
            check_fields(self)

        def body(self, shape: Shape) -> Body:
            channels, _, _ = image_shape(f"resnet{depth}", shape, smallest=4)
            widths = (self.width, 2 * self.width, 4 * self.width)
            return residual_body(channels, widths, (depth - 2) // 6, dropout=self.dropout), widths[-1]

    ResNet.__name__ = ResNet.__qualname__ = f"ResNet{depth}"
    ResNet.__doc__ = f"{weights} million weights at width 16."
    return ResNet


ResNet20 = cifar_resnet(20, "0.27", "CIFAR: the standard small network")
ResNet32 = cifar_resnet(32, "0.46", "CIFAR, long-tailed sets: the usual network in papers on imbalance")
ResNet44 = cifar_resnet(44, "0.66", "CIFAR-100 of the Gradient Rescaling paper")
ResNet56 = cifar_resnet(56, "0.85", "CIFAR-10 of the Gradient Rescaling paper: deep enough to fit wrong labels")


@dataclass(frozen=True, kw_only=True)
class ResNet18:
    """11 million weights at width 64; no pooling in the stem, unlike `torchvision:resnet18`."""

    formula: ClassVar[str] = "4 stages of 2 blocks, 64-128-256-512"
    purpose: ClassVar[str] = "images of 32 to 64 pixels where accuracy matters more than time"
    width: int = 64
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("resnet18", shape, smallest=8)
        widths = [self.width * 2**i for i in range(4)]
        return residual_body(channels, widths, 2, dropout=self.dropout, projection=True), widths[-1]


@dataclass(frozen=True, kw_only=True)
class ResNet9:
    """6.6 million weights at width 64; the features are the maxima of the last maps, divided by 8.

    Unscaled, the first steps of SGD at its usual learning rate are too large for the network to recover.
    """

    formula: ClassVar[str] = "64-128-256-512 with two residual blocks"
    purpose: ClassVar[str] = "32×32 images: the best accuracy in a short training on a GPU"
    width: int = 64
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("resnet9", shape, smallest=8)
        a, b, c, d = (self.width * 2**i for i in range(4))
        first = [conv(channels, a), conv(a, b), nn.MaxPool2d(2), Residual(b)]
        layers = [*first, conv(b, c), nn.MaxPool2d(2), conv(c, d), nn.MaxPool2d(2), Residual(d), GlobalMax(), Times(1 / 8)]
        return with_dropout(layers, self.dropout), d
