"""Truncated generalized cross-entropy: examples whose label is unlikely are ignored.

    ℓ(m) = (1 − max(p, k)^q)/q                                the instantaneous form
    ℓ(m, v) = v [(1 − p^q)/q − (1 − k^q)/q],  v ∈ {0, 1}      with a keep mask over the training examples
    w(p) = p^q (1 − p) where p > k (or v = 1), else 0

The mask is refreshed on the whole training set every few epochs (the authors: every 10 from epoch 40):
`keep[ids] = keep_mask(logits, labels)`, then `loss(logits, labels, keep=keep[ids])`. The mean is over all
examples, kept or not. Zhang & Sabuncu (NeurIPS 2018), eq. 11; eq. 5 of Gradient Rescaling is the instantaneous form.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._curve_loss import curve_loss
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options, reduce
from mohs.losses.gce import gce
from mohs.margin import NO_LABEL, margin


def truncated_gce(m: Tensor, *, q: float = 0.7, threshold: float = 0.5) -> Tensor:
    """The instantaneous curve ℓ(m), elementwise; threshold is k."""
    return gce(m.clamp(min=math.log(threshold) - math.log1p(-threshold)), q=q)


def keep_mask(logits: Tensor, labels: Tensor, *, threshold: float = 0.5) -> Tensor:
    """Mask of the examples to keep: p > k. logits (N, K, ...), labels (N, ...) -> bool (N, ...)."""
    with torch.no_grad():
        return torch.sigmoid(margin(logits, labels)) > threshold


def truncated_gce_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    q: float = 0.7,
    threshold: float = 0.5,
    keep: Tensor | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """logits (N, K, ...), labels (N, ...), keep (N, ...) of this batch -> scalar, or per example for reduction="none"."""
    if keep is None:
        return curve_loss(partial(truncated_gce, q=q, threshold=threshold), logits, labels, **options)
    if keep.shape != labels.shape:
        raise ValueError(f"keep must have the shape of labels, {tuple(labels.shape)}, got {tuple(keep.shape)}")
    m = margin(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
    dropped = (1 - threshold**q) / q if q > 0 else -math.log(threshold)
    return reduce((gce(m, q=q) - dropped) * keep, labels, classes=logits.shape[1], **options)


@module_of(truncated_gce_loss)
class TruncatedGeneralizedCrossEntropyLoss(LossModule):
    """Truncated generalized cross-entropy as a Module; 0 ≤ q ≤ 1, 0 < threshold < 1 is the paper's k."""

    formula = "(1 − max(p, k)^q)/q"
    purpose = "noisy labels, with the least likely examples pruned"
    q: float = 0.7
    threshold: float = 0.5

    def setup(self) -> None:
        check_between("q", self.q, 0, 1)
        check_between("threshold", self.threshold, 0, 1, ends="()")

    @property
    def curve(self) -> Curve:
        return partial(truncated_gce, q=self.q, threshold=self.threshold)

    def forward(
        self,
        input: Tensor,  # noqa: A002
        target: Tensor,
        *,
        keep: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        if keep is None:
            return super().forward(input, target, sample_weight=sample_weight)
        return truncated_gce_loss(input, target, keep=keep, sample_weight=sample_weight, **self.arguments())
