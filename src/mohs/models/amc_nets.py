"""The networks of the AMC paper: nine, eight or four convolutions, global mean pooling, and features of few dimensions.

    conv_large  3×[3×3, 128]; pool; 3×[3×3, 256]; pool; 3×3 512 without padding; 1×1 256; 1×1 128
    conv_small  3×[3×3,  64]; pool; 3×[3×3, 128]; pool; 3×3 256 without padding; 1×1 128
    amc_mnist     [3×3,  64]; pool;   [3×3,  64]; pool; 3×3 128 without padding; 1×1  64

Batch normalization and leaky ReLU (slope .1) after each convolution, dropout after each pooling; `embedding` is the width
of the last 1×1 convolution, 3 for Figure 4 and 2 for Figure 1. The paper's Gaussian noise on the input is an augmentation
here (`gaussian_noise`). Weights are Glorot uniform; batch normalization keeps PyTorch's settings (the authors': no scale,
ε = 10⁻³, momentum .001, too slow for a short run).
Choi, Som & Turaga, "AMC-Loss" (CVPRW 2020), Table 2 (conv_large) and their code (conv_small).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import nn

from mohs.models.blocks import Body, Shape, check_fields, conv, global_mean, image_shape

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


class AMCNet(Protocol):
    """Hyper-parameters of a network of the AMC paper."""

    formula: ClassVar[str]
    purpose: ClassVar[str]

    def __init__(self, *, dropout: float = 0.5, embedding: int = 128) -> None: ...
    def body(self, shape: Shape) -> Body: ...


def amc_net(
    name: str, key: str, stages: Sequence[Sequence[int]], last: Sequence[int], *, text: str, use: str, doc: str
) -> type[AMCNet]:
    """The class of networks with these stages; the last of `last` is the default width of the features."""

    @dataclass(frozen=True, kw_only=True)
    class Net:
        formula: ClassVar[str] = text
        purpose: ClassVar[str] = use
        dropout: float = 0.5
        embedding: int = last[-1]

        def __post_init__(self) -> None:
            check_fields(self)

        def body(self, shape: Shape) -> Body:
            channels, _, _ = image_shape(key, shape, smallest=SMALLEST)
            widths = (*last[:-1], self.embedding)
            return amc_body(channels, stages, widths, dropout=self.dropout), self.embedding

    Net.__name__ = Net.__qualname__ = name
    Net.__doc__ = doc
    return Net


ConvLarge = amc_net(
    "ConvLarge",
    "conv_large",
    [(128, 128, 128), (256, 256, 256)],
    (512, 256, 128),
    text="9 convolutions, 128-256-512-128, dropout",
    use="AMC's Table 1 on 32×32 images",
    doc="The paper's network for CIFAR and SVHN.",
)
ConvSmall = amc_net(
    "ConvSmall",
    "conv_small",
    [(64, 64, 64), (128, 128, 128)],
    (256, 128),
    text="8 convolutions, 64-128-256-128, dropout",
    use="AMC on 32×32 images at a quarter of the cost",
    doc="The network of the authors' code: half as wide, one convolution fewer.",
)
AMCMnist = amc_net(
    "AMCMnist",
    "amc_mnist",
    [(64,), (64,)],
    (128, 64),
    text="4 convolutions, 64-64-128-64, dropout",
    use="AMC on MNIST; features on the plane or sphere with embedding=2 or 3",
    doc="The paper's network for MNIST; embedding=2 or 3 to draw the features.",
)
