"""Squared error between the class scores and the one-hot label, with or without the mirror bonus.

    ℓ = (1/K) Σ_k (y_k − a_k)²                                a = softmax(z) or sigmoid(z), y one-hot
    mirror bonus: − (y_k a_k)² − ((1 − y_k)(1 − a_k))²        each class then is 2|y_k − a_k| − 1

so squared error with the mirror bonus *is* the absolute error: (2 MAE − K)/K for softmax. The mean over classes is
the paper's; it makes gradients K times smaller than a sum would. Not a curve of the margin (softmax with the
mirror is), and with sigmoid not invariant to a shift of the logits.
Zhao et al., "Well-classified examples are underestimated" (AAAI 2022), Table 5.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_choice
from mohs.losses._drop_in import LossModule
from mohs.losses._numerics.label_error import sigmoid_error, softmax_square
from mohs.losses._reduction import Options, reduce
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


@module_of(mse_loss)
class MeanSquaredErrorLoss(LossModule):
    """Squared error as a Module; activation "softmax" or "sigmoid", mirror adds the mirror bonus of Encouraging Loss."""

    formula = "mean over classes of (y − a)²"
    purpose = "Brier score as a loss; with the mirror bonus it is MAE"
    activation: str = "softmax"
    mirror: bool = False

    def setup(self) -> None:
        check_choice("activation", self.activation, ("softmax", "sigmoid"))
