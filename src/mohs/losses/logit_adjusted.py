"""Logit-adjusted loss: cross-entropy with the class prior added to the logits, so that they need not learn it.

    ℓ = −log softmax(z + τ log π)_y                           π_j = n_j / Σ_k n_k, the training frequencies
    ∂ℓ/∂z = softmax(z + τ log π) − e_y

Predict with z itself, without the adjustment: for τ = 1 its argmax minimizes the balanced error. τ = 0, or equal counts,
is cross-entropy. Every class needs an example (log 0).
Menon et al., "Long-tail learning via logit adjustment" (ICLR 2021), the loss of section 5.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._class_table import hold_table
from mohs.losses._drop_in import LossModule
from mohs.losses._reduction import Options, reduce
from mohs.losses.class_weights import check_counts, checked_counts
from mohs.losses.cross_entropy import cross_entropy
from mohs.margin import NO_LABEL, checked_labels, full_precision, margin


def log_prior(counts: Tensor) -> Tensor:
    """log π (K,) of counts (K,) of at least 1."""
    return (counts / counts.sum()).log()


def logit_adjusted_loss(
    logits: Tensor, labels: Tensor, *, counts: Tensor, tau: float = 1.0, **options: Unpack[Options]
) -> Tensor:
    """logits (N, K, ...), labels (N, ...), counts (K,) -> scalar, or per example for reduction="none"; tau is τ."""
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
    counts = checked_counts(counts, logits.shape[1])
    shift = tau * log_prior(counts.to(logits.device, full_precision(logits.dtype)))  # float32 at least, as is the sum
    adjusted = logits + shift.view(-1, *[1] * (logits.dim() - 2))  # (N, K, ...)
    return reduce(cross_entropy(margin(adjusted, index)), labels, classes=logits.shape[1], **options)


@module_of(logit_adjusted_loss)
class LogitAdjustedLoss(LossModule):
    """The logit-adjusted loss as a Module; counts (K,) of the training labels, tau ≥ 0."""

    formula = "−log softmax(z + τ log π)_y"
    purpose = "imbalanced classes: minimizes the balanced error"
    counts: Tensor
    tau: float = 1.0

    def setup(self) -> None:
        check_counts(hold_table(self, "counts"))
        check_between("tau", self.tau, 0)
