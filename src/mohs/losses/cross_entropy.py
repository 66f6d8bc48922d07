"""Cross-entropy: the loss that every other one here is compared with.

    ℓ(m) = softplus(−m) = −log p           m: margin of the labeled class
    w(p) = 1 − p                           emphasis: falls from 1 to 0, focus 0

Equal to `F.cross_entropy` in value and gradient, label smoothing and class weights included; it takes less
memory and, for many classes, less time, and `sample_weight` besides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Unpack

from torch import Tensor, nn
from torch.nn.functional import softplus

from mohs.losses._drop_in import Options, become_module, rebuildable, settings, smoothed_curve_loss


def cross_entropy(m: Tensor) -> Tensor:
    """The curve ℓ(m), elementwise."""
    return softplus(-m)


def cross_entropy_loss(logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    return smoothed_curve_loss(cross_entropy, logits, labels, **options)


@dataclass(eq=False, repr=False, kw_only=True)
class CrossEntropyLoss(nn.Module):
    """Cross-entropy as a Module; fields as in `nn.CrossEntropyLoss`."""

    formula: ClassVar[str] = "−log p"
    purpose: ClassVar[str] = "the baseline: clean labels, balanced classes"
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self, smoothable=True)

    def curve(self, m: Tensor) -> Tensor:
        return cross_entropy(m)

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return cross_entropy_loss(logits, labels, sample_weight=sample_weight, **settings(self))

    __repr__ = rebuildable
