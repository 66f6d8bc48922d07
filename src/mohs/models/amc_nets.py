"""The networks of the AMC paper: nine, eight or four convolutions, global mean pooling, and features of few dimensions.

    conv_large  3×[3×3, 128]; pool; 3×[3×3, 256]; pool; 3×3 512 without padding; 1×1 256; 1×1 128
    conv_small  3×[3×3,  64]; pool; 3×[3×3, 128]; pool; 3×3 256 without padding; 1×1 128
    amc_mnist     [3×3,  64]; pool;   [3×3,  64]; pool; 3×3 128 without padding; 1×1  64

Batch normalization and leaky ReLU (slope .1) after each convolution, dropout after each pooling; `embedding` is the width
of the last 1×1 convolution, 3 for Figure 4 and 2 for Figure 1. The paper's Gaussian noise on the input is an augmentation
here (`gaussian_noise`). Weights are drawn as Glorot's uniform; batch normalization keeps PyTorch's own settings (the
authors': no scale, ε = 10⁻³, momentum .001, which a short run never warms up).
Choi, Som & Turaga, "AMC-Loss" (CVPRW 2020), Table 2 (conv_large) and their code (conv_small).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from mohs.models.blocks import Body, Shape, check_dropout, check_whole, conv, global_mean, image_shape

SMALLEST = 12  # two poolings leave the 3×3 that the unpadded convolution needs


def amc_body(inside: int, stages: Sequence[Sequence[int]], last: Sequence[int], *, dropout: float) -> nn.Sequential:
    """Stages of 3×3 convolutions, each pooled; then one 3×3 without padding, and 1×1 convolutions, of the widths in `last`."""
    layers: list[nn.Module] = []
    for widths in stages:
        for outside in widths:
            layers.append(conv(inside, outside, act="leaky_relu"))
            inside = outside
        layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
    for i, outside in enumerate(last):
        layers.append(conv(inside, outside, 1 if i else 3, padding=0, act="leaky_relu"))
        inside = outside
    body = nn.Sequential(*layers, global_mean())
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
    return body


@dataclass(frozen=True, kw_only=True)
class ConvLarge:
    """The paper's network for CIFAR and SVHN."""

    formula: ClassVar[str] = "9 convolutions, 128-256-512-128, dropout"
    purpose: ClassVar[str] = "AMC's Table 1 on 32×32 images"
    dropout: float = 0.5
    embedding: int = 128

    def __post_init__(self) -> None:
        check_dropout(self.dropout)
        check_whole("embedding", self.embedding)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("conv_large", shape, smallest=SMALLEST)
        stages = [(128, 128, 128), (256, 256, 256)]
        return amc_body(channels, stages, (512, 256, self.embedding), dropout=self.dropout), self.embedding


@dataclass(frozen=True, kw_only=True)
class ConvSmall:
    """The network of the authors' code: half as wide, one convolution fewer."""

    formula: ClassVar[str] = "8 convolutions, 64-128-256-128, dropout"
    purpose: ClassVar[str] = "AMC on 32×32 images at a quarter of the cost"
    dropout: float = 0.5
    embedding: int = 128

    def __post_init__(self) -> None:
        check_dropout(self.dropout)
        check_whole("embedding", self.embedding)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("conv_small", shape, smallest=SMALLEST)
        stages = [(64, 64, 64), (128, 128, 128)]
        return amc_body(channels, stages, (256, self.embedding), dropout=self.dropout), self.embedding


@dataclass(frozen=True, kw_only=True)
class AMCMnist:
    """The paper's network for MNIST; embedding=2 or 3 to draw the features."""

    formula: ClassVar[str] = "4 convolutions, 64-64-128-64, dropout"
    purpose: ClassVar[str] = "AMC on MNIST; features on the plane or sphere with embedding=2 or 3"
    dropout: float = 0.5
    embedding: int = 64

    def __post_init__(self) -> None:
        check_dropout(self.dropout)
        check_whole("embedding", self.embedding)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("amc_mnist", shape, smallest=SMALLEST)
        return amc_body(channels, [(64,), (64,)], (128, self.embedding), dropout=self.dropout), self.embedding
