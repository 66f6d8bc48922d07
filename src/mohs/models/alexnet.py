"""A small AlexNet for 32×32 images: five convolutions and two fully connected layers, without batch normalization.

    3×3 64 stride 2; pool; 3×3 192; pool; 3×3 384; 3×3 256; 3×3 256; pool; dropout, hidden; dropout, hidden

The ADR paper does not state its CIFAR variant; this one has the widths of the original, smaller kernels and 1,024 hidden
units. He initialization speeds up the start of training. Use a learning rate of 0.01; 0.1 is too large.
After Krizhevsky, Sutskever & Hinton, "ImageNet classification with deep convolutional neural networks" (2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from mohs.models.layers import Body, Shape, check_fields, flat_size, he_normal, image_shape

WIDTHS = (3, 6, 4, 4)  # convolutions after the first, as multiples of its width
POOLED = (True, False, False, True)  # which of them are followed by pooling


@dataclass(frozen=True, kw_only=True)
class AlexNet:
    """4.4 million weights on 32×32 images."""

    formula: ClassVar[str] = "5 convolutions, 2 hidden layers, no normalization"
    purpose: ClassVar[str] = "CIFAR-10 of the ADR paper; a net without batch normalization"
    width: int = 64
    hidden: int = 1024
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("alexnet", shape, smallest=15)  # 15 → 8 → 4 → 2 → 1
        layers: list[nn.Module] = [nn.Conv2d(channels, self.width, 3, 2, 1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        inside = self.width
        for times, pooled in zip(WIDTHS, POOLED, strict=True):
            layers += [nn.Conv2d(inside, times * self.width, 3, padding=1), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(2)] if pooled else []
            inside = times * self.width
        maps = nn.Sequential(*layers, nn.Flatten())
        inside = flat_size(maps, shape)
        for _ in range(2):
            maps.extend([nn.Dropout(self.dropout), nn.Linear(inside, self.hidden), nn.ReLU(inplace=True)])
            inside = self.hidden
        return he_normal(maps), self.hidden
