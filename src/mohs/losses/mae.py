"""Mean absolute error between the predicted distribution and the one-hot label: robust to noise, slow to learn.

    ℓ(m) = 2σ(−m) = 2(1 − p) = Σ_k |p_k − [k = y]|
    w(p) = 2p(1 − p)                       emphasis: focus ½, nothing for examples the model finds unlikely

Ghosh, Kumar & Sastry, "Robust loss functions under label noise for deep neural networks" (AAAI 2017);
on this scale in Gradient Rescaling, eq. 3. Some codes halve it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Unpack

from torch import Tensor, nn, sigmoid

from mohs.losses._drop_in import Options, become_module, curve_loss, rebuildable, settings


def mae(m: Tensor) -> Tensor:
    """The curve ℓ(m), elementwise."""
    return 2 * sigmoid(-m)


def mae_loss(logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    return curve_loss(mae, logits, labels, **options)


@dataclass(eq=False, repr=False, kw_only=True)
class MeanAbsoluteErrorLoss(nn.Module):
    """Mean absolute error as a Module."""

    formula: ClassVar[str] = "2(1 − p)"
    purpose: ClassVar[str] = "heavy label noise with few classes; underfits with many"
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self)

    def curve(self, m: Tensor) -> Tensor:
        return mae(m)

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return mae_loss(logits, labels, sample_weight=sample_weight, **settings(self))

    __repr__ = rebuildable
