"""AVH loss: cross-entropy on angles, so that an example is easy when it points where its class points.

    L = −log softmax_k(s (π − θ_k))_y = softplus(−m)          m: margin of the logits −s θ_k; the π cancels
    ∂L/∂θ_k = s ([k = y] − P_k)                               P: softmax of the logits

As printed, eq. 5 lacks the −log, and minimizing it would lower the label's probability: here it is added, and the
mean taken in place of the sum. The scale s belongs to the head, so the Module is cross-entropy on what `AVHHead`
returns; `avh_loss` is both in one, for weights that are at hand. Floors by s: `heads/avh.py`.
Chen et al., "Angular visual hardness" (ICML 2020), eq. 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from mohs.angle import angles
from mohs.losses._drop_in import become_module, rebuildable, settings
from mohs.losses.cross_entropy import cross_entropy, cross_entropy_loss
from mohs.margin import NO_LABEL


def avh_logits(features: Tensor, weight: Tensor, *, scale: float) -> Tensor:
    """features (N, D), weight (K, D) -> logits (N, K); scale is s."""
    return -scale * angles(features, weight)  # (N, K)


def avh_loss(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    scale: float,
    class_weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """features (N, D), the head's weight (K, D), labels (N,) -> scalar, or (N,) for reduction="none"; scale is s.

    The options are the other losses', but for `class_weight`, which they call `weight`.
    """
    return cross_entropy_loss(
        avh_logits(features, weight, scale=scale),
        labels,
        weight=class_weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
        sample_weight=sample_weight,
    )


@dataclass(eq=False, repr=False, kw_only=True)
class AVHLoss(nn.Module):
    """AVH loss as a Module: cross-entropy on the logits of `AVHHead`; fields as in `nn.CrossEntropyLoss`."""

    formula: ClassVar[str] = "−log p on the logits −s θ of the AVH head"
    purpose: ClassVar[str] = "trains the angle that AVH scores; needs the AVH head"
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
