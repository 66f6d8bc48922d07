"""Logit-adjusted loss: cross-entropy that expects the classes' frequencies, so the logits need not learn them.

    ℓ = −log softmax(z + τ log π)_y                           π_j = n_j / Σ_k n_k, the training frequencies
    ∂ℓ/∂z = softmax(z + τ log π) − e_y

Predict with z itself, without the adjustment: for τ = 1 its argmax minimizes the balanced error. τ = 0, or equal counts,
is cross-entropy. Every class needs an example (log 0).
Menon et al., "Long-tail learning via logit adjustment" (ICLR 2021), the loss of section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from mohs._core.validation import check_between
from mohs.losses._drop_in import Options, become_module, rebuildable, reduce, settings
from mohs.losses._numerics.class_table import check_table, hold_table
from mohs.losses.class_weights import check_counts
from mohs.losses.cross_entropy import cross_entropy
from mohs.margin import NO_LABEL, checked_labels, full_precision, margin, readable


def log_prior(counts: Tensor) -> Tensor:
    """log π (K,) of counts (K,) of at least 1."""
    return (counts / counts.sum()).log()


def logit_adjusted_loss(
    logits: Tensor, labels: Tensor, *, counts: Tensor, tau: float = 1.0, **options: Unpack[Options]
) -> Tensor:
    """logits (N, K, ...), labels (N, ...), counts (K,) -> scalar, or per example for reduction="none"; tau is τ."""
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
    counts = torch.as_tensor(counts)
    check_table("counts", counts, (logits.shape[1],))
    if readable(counts):
        check_counts(counts)
    shift = tau * log_prior(counts.to(logits.device, full_precision(logits.dtype)))  # float32 at least, and so is the sum
    adjusted = logits + shift.view(-1, *[1] * (logits.dim() - 2))  # (N, K, ...)
    return reduce(cross_entropy(margin(adjusted, index)), labels, classes=logits.shape[1], **options)


@dataclass(eq=False, repr=False, kw_only=True)
class LogitAdjustedLoss(nn.Module):
    """The logit-adjusted loss as a Module; counts (K,) of the training labels, tau ≥ 0."""

    formula: ClassVar[str] = "−log softmax(z + τ log π)_y"
    purpose: ClassVar[str] = "imbalanced classes: logits fit for the balanced error"
    counts: Tensor
    tau: float = 1.0
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self)
        check_counts(hold_table(self, "counts"))
        check_between("tau", self.tau, 0)

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return logit_adjusted_loss(logits, labels, sample_weight=sample_weight, **settings(self))

    __repr__ = rebuildable
