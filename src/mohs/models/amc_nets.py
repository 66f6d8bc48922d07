"""The networks of the AMC paper: nine, eight or four convolutions, global mean pooling, and features of few dimensions.

    conv_large  3×[3×3, 128]; pool; 3×[3×3, 256]; pool; 3×3 512 without padding; 1×1 256; 1×1 128
    conv_small  3×[3×3,  64]; pool; 3×[3×3, 128]; pool; 3×3 256 without padding; 1×1 128
    amc_mnist     [3×3,  64]; pool;   [3×3,  64]; pool; 3×3 128 without padding; 1×1  64

Batch normalization and leaky ReLU (slope .1) after each convolution, dropout after each pooling. The first is the top network
of the paper's Table 2, which made its Table 1 (MNIST included) and Figures 2, 5 and 7; the last is the bottom one, which
made Figures 1 and 4. These have 2 and 3 features (`embedding`) behind a 1×1 convolution of 64 channels: how 64 become 3 the
paper does not say; here by a linear layer without activation after the pooling. The paper's Gaussian noise on the input is
an augmentation here (`gaussian_noise`). Weights are Glorot uniform; batch normalization keeps PyTorch's settings (the
authors': no scale, ε = 10⁻³, momentum .001, too slow for a short run).
Choi, Som & Turaga, "AMC-Loss" (CVPRW 2020), Table 2 (conv_large) and their code (conv_small).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import nn

from mohs.models.layers import Body, Shape, check_fields, conv, global_mean, image_shape

SMALLEST = 12  # two poolings leave the 3×3 that the unpadded convolution needs


def amc_body(
    inside: int, stages: Sequence[Sequence[int]], last: Sequence[int], *, embedding: int, dropout: float
) -> nn.Sequential:
    """Stages of 3×3 convolutions, each pooled; then one 3×3 without padding, and 1×1 convolutions, of the widths in `last`.

    A linear layer makes `embedding` features of the last width, if the two differ.
    """
    layers: list[nn.Module] = []
    for widths in stages:
        for outside in widths:
            layers.append(conv(inside, outside, act="leaky_relu"))
            inside = outside
        layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
    for i, outside in enumerate(last):
        layers.append(conv(inside, outside, 1 if i else 3, padding=0, act="leaky_relu"))
        inside = outside
    body = nn.Sequential(*layers, global_mean(), *([] if embedding == inside else [nn.Linear(inside, embedding)]))
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
            return amc_body(channels, stages, last, embedding=self.embedding, dropout=self.dropout), self.embedding

    Net.__name__ = Net.__qualname__ = name
    Net.__doc__ = doc
    return Net


ConvLarge = amc_net(
    "ConvLarge",
    "conv_large",
    [(128, 128, 128), (256, 256, 256)],
    (512, 256, 128),
    text="9 convolutions, 128-256-512-128, dropout",
    use="AMC's Table 1",
    doc="The top network of the paper's Table 2: MNIST, CIFAR and SVHN.",
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
    use="AMC's Figures 1 and 4 on MNIST: features on the plane or sphere with embedding=2 or 3",
    doc="The bottom network of the paper's Table 2, for features that can be drawn: embedding=2 or 3.",
)
