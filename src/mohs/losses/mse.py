"""Squared error between the class scores and the one-hot label, with or without the mirror bonus.

    ℓ = (1/K) Σ_k (y_k − a_k)²                                a = softmax(z) or sigmoid(z), y one-hot
    mirror bonus: − (y_k a_k)² − ((1 − y_k)(1 − a_k))²        each class then is 2|y_k − a_k| − 1

so squared error with the mirror bonus *is* the absolute error: (2 MAE − K)/K for softmax. The mean over classes is
the paper's; it makes gradients K times smaller than a sum would. Not a curve of the margin (softmax with the
mirror is), and with sigmoid not invariant to a shift of the logits.
Zhao et al., "Well-classified examples are underestimated" (AAAI 2022), Table 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Unpack

from torch import Tensor, nn

from mohs._core.validation import check_choice
from mohs.losses._drop_in import Options, become_module, rebuildable, reduce, settings
from mohs.losses._numerics.label_error import sigmoid_error, softmax_square
from mohs.losses.mae import mae
from mohs.margin import NO_LABEL, checked_labels, margin


def mse_loss(
    logits: Tensor, labels: Tensor, *, activation: str = "softmax", mirror: bool = False, **options: Unpack[Options]
) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    ignore_index = options.get("ignore_index", NO_LABEL)
    index = checked_labels(logits, labels, ignore_index=ignore_index).unsqueeze(1)
    classes = logits.shape[1]
    if activation == "softmax":
        total = 2 * mae(margin(logits, index.squeeze(1))) - classes if mirror else softmax_square(logits, index)
    else:
        total = 2 * sigmoid_error(logits, index, power=1) - classes if mirror else sigmoid_error(logits, index, power=2)
    return reduce(total / classes, labels, classes=classes, **options)


@dataclass(eq=False, repr=False, kw_only=True)
class MeanSquaredErrorLoss(nn.Module):
    """Squared error as a Module; activation "softmax" or "sigmoid", mirror adds Encouraging Loss's mirror bonus."""

    formula: ClassVar[str] = "mean over classes of (y − a)²"
    purpose: ClassVar[str] = "Brier score as a loss; with the mirror bonus it is MAE"
    activation: str = "softmax"
    mirror: bool = False
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self)
        check_choice("activation", self.activation, ("softmax", "sigmoid"))

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return mse_loss(logits, labels, sample_weight=sample_weight, **settings(self))

    __repr__ = rebuildable
