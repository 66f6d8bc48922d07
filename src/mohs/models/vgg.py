"""A small VGG: three stages of two plain 3×3 convolutions with batch normalization, no shortcuts.

After Simonyan & Zisserman, "Very deep convolutional networks for large-scale image recognition" (ICLR 2015), cut down to
small images, with global average pooling instead of its fully connected layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from mohs.models.layers import Body, Shape, check_fields, conv, global_mean, image_shape, with_dropout


@dataclass(frozen=True, kw_only=True)
class VGG:
    """1.1 million weights at width 64."""

    formula: ClassVar[str] = "6 convolutions, 64-128-256"
    purpose: ClassVar[str] = "32×32 images without shortcuts; one of the nets of the AVH observations"
    width: int = 64
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        inside, _, _ = image_shape("vgg", shape, smallest=8)
        layers: list[nn.Module] = []
        for outside in (self.width, 2 * self.width, 4 * self.width):
            layers += [conv(inside, outside), conv(outside, outside), nn.MaxPool2d(2)]
            inside = outside
        return with_dropout([*layers, global_mean()], self.dropout), inside
