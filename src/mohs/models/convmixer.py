"""ConvMixer: patches, then blocks that mix each channel over space and each position over channels.

    stem   h = BN(gelu(conv of stride = size = patch))
    block  h ← h + BN(gelu(depthwise k×k of h));  h ← BN(gelu(1×1 of h))          features: the mean over places

Trockman & Kolter, "Patches are all you need?" (TMLR 2023); ConvMixer-256/8, kernel 5, patch 2 for CIFAR, as in ADR's Table 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mohs.models.layers import BatchNorm, Body, Shape, check_fields, global_mean, image_shape, with_dropout


def mixed(layer: nn.Conv2d) -> nn.Sequential:
    """The layer, GELU, batch normalization: in this order."""
    return nn.Sequential(layer, nn.GELU(), BatchNorm(layer.out_channels))


class MixerBlock(nn.Module):
    """One block: over space with a shortcut, then over channels."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.space = mixed(nn.Conv2d(width, width, kernel, padding="same", groups=width))
        self.channels = mixed(nn.Conv2d(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.channels(x + self.space(x))
        return y


@dataclass(frozen=True, kw_only=True)
class ConvMixer:
    """0.59 million weights at its defaults."""

    formula: ClassVar[str] = "patches, 8 blocks of depthwise and 1×1 convolutions, 256"
    purpose: ClassVar[str] = "CIFAR-10 of the ADR paper; train it with adamw"
    width: int = 256
    depth: int = 8
    kernel: int = 5
    patch: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        channels, _, _ = image_shape("convmixer", shape, smallest=2 * self.patch)
        stem = mixed(nn.Conv2d(channels, self.width, self.patch, self.patch))
        blocks = [MixerBlock(self.width, self.kernel) for _ in range(self.depth)]
        return with_dropout([stem, *blocks, global_mean()], self.dropout), self.width
