"""Generalized cross-entropy, between cross-entropy (q → 0) and half the mean absolute error (q = 1).

    ℓ(m) = (1 − p^q)/q = −expm1(−q softplus(−m))/q
    w(p) = p^q (1 − p)                     emphasis: focus q/(1 + q)

Zhang & Sabuncu, "Generalized cross entropy loss for training deep neural networks with noisy labels"
(NeurIPS 2018); eq. 4 of Gradient Rescaling. Its truncated form is in `truncated_gce.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._curve_loss import curve_loss
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options
from mohs.margin import softplus


def gce(m: Tensor, *, q: float = 0.7) -> Tensor:
    """The curve ℓ(m), elementwise; q = 0 is cross-entropy."""
    return softplus(-m) if q == 0 else -torch.expm1(-q * softplus(-m)) / q


def gce_loss(logits: Tensor, labels: Tensor, *, q: float = 0.7, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    return curve_loss(partial(gce, q=q), logits, labels, **options)


@module_of(gce_loss)
class GeneralizedCrossEntropyLoss(LossModule):
    """Generalized cross-entropy as a Module; 0 ≤ q ≤ 1."""

    formula = "(1 − p^q)/q"
    purpose = "noisy labels: a simple, strong baseline"
    q: float = 0.7

    def setup(self) -> None:
        check_between("q", self.q, 0, 1)

    @property
    def curve(self) -> Curve:
        return partial(gce, q=self.q)
