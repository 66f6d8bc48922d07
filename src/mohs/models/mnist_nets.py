"""Networks for MNIST: the Encouraging Loss paper's, with features of any width (2 for AVH's pictures), and the one it attacks.

    mnist         BN; 3×3 64 without padding; 3×[3×3 64], pool; 4×[3×3 64], pool; 3×[3×3 64], pool; embedding; BN
                  PReLU and batch normalization after each convolution
    mnist_attack  5×5 16; 5×5 32; pool; 5×5 64; pool; 100 hidden          ReLU, no padding, no normalization

`mnist` with embedding=2 has features that can be drawn; batch_norm=False leaves their norm free, as in AVH's figures (the
paper states only "CNN with 2-D embedding"). The head of the EL paper has no bias:
head="linear:bias=False". Zhao et al., "Well-classified examples are underestimated" (AAAI 2022), their code;
Chen et al., "Angular visual hardness" (ICML 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from mohs.models.layers import BatchNorm, Body, Shape, check_fields, flat_size, image_shape

STAGES = (3, 4, 3)  # convolutions before each pooling


def prelu_conv(inside: int, outside: int, *, padding: int) -> nn.Sequential:
    """3×3 convolution, PReLU, batch normalization: in this order."""
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=padding), nn.PReLU(), BatchNorm(outside))


@dataclass(frozen=True, kw_only=True)
class Mnist:
    """Eleven convolutions and a linear layer to `embedding` features."""

    formula: ClassVar[str] = "11 convolutions of 64, PReLU, linear to embedding"
    purpose: ClassVar[str] = "MNIST of the Encouraging Loss and AVH papers; embedding=2 or 3 to draw the features"
    embedding: int = 256
    width: int = 64
    batch_norm: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("mnist", shape, smallest=10)  # 10 → 8 → 4 → 2 → 1
        layers: list[nn.Module] = [BatchNorm(channels), prelu_conv(channels, self.width, padding=0)]
        for count in STAGES:
            layers += [*(prelu_conv(self.width, self.width, padding=1) for _ in range(count)), nn.MaxPool2d(2)]
        body = nn.Sequential(*layers, nn.Flatten())
        body.append(nn.Linear(flat_size(body, shape), self.embedding))
        return body.extend([nn.BatchNorm1d(self.embedding)] if self.batch_norm else []), self.embedding


@dataclass(frozen=True, kw_only=True)
class MnistAttack:
    """Three 5×5 convolutions and 100 hidden units."""

    formula: ClassVar[str] = "3 convolutions 16-32-64, 100 hidden"
    purpose: ClassVar[str] = "the network under attack in the Encouraging Loss paper's Figure 7"
    hidden: int = 100

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("mnist_attack", shape, smallest=20)  # 20 → 16 → 12 → 6 → 2 → 1
        act = nn.ReLU
        first = [nn.Conv2d(channels, 16, 5), act(), nn.Conv2d(16, 32, 5), act(), nn.MaxPool2d(2)]
        maps = nn.Sequential(*first, nn.Conv2d(32, 64, 5), act(), nn.MaxPool2d(2), nn.Flatten())
        return maps.extend([nn.Linear(flat_size(maps, shape), self.hidden), act()]), self.hidden
