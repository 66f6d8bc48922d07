"""CNN-10 of the AVH paper's domain generalization: ten convolutions and a layer of 512.

    7×7 64; pool; 3×[3×3 64]; pool; 3×[3×3 128]; pool; 3×[3×3 256]; pool; 512          batch normalization and ReLU after each

The paper trains it on 224×224 images after ImageNet; at the 64×64 pixels of small PACS the first layer keeps stride 1.
For large images stride=2 keeps the fully connected layer small.
Chen et al., "Angular visual hardness" (ICML 2020), the experiment on PACS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from mohs.models.layers import Body, Shape, check_fields, conv, flat_size, image_shape, with_dropout


@dataclass(frozen=True, kw_only=True)
class CNN10:
    """stride: that of the first convolution."""

    formula: ClassVar[str] = "10 convolutions, 64-64-128-256, linear to embedding"
    purpose: ClassVar[str] = "PACS in the AVH paper: domains unseen in training"
    embedding: int = 512
    stride: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        inside, _, _ = image_shape("cnn10", shape, smallest=15 * self.stride + 1)
        layers: list[nn.Module] = [conv(inside, 64, 7, stride=self.stride), nn.MaxPool2d(2)]
        inside = 64
        for outside in (64, 128, 256):
            for _ in range(3):
                layers.append(conv(inside, outside))
                inside = outside
            layers.append(nn.MaxPool2d(2))
        maps = nn.Sequential(*layers, nn.Flatten())
        hidden = [nn.Linear(flat_size(maps, shape), self.embedding), nn.BatchNorm1d(self.embedding), nn.ReLU(inplace=True)]
        return with_dropout([maps, *hidden], self.dropout), self.embedding
