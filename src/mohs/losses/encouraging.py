"""Encouraging loss: cross-entropy plus a bonus that keeps rewarding well-classified examples.

    ℓ(m) = softplus(−m) + bonus · b(p)                        p = σ(m)
    normal         b = log(1 − p) = −softplus(m)              so ℓ(m) = −m: emphasis w(p) = 1 for every p
    conservative   b as above for p ≤ LE, then its tangent log(1 − LE) − (p − LE)/(1 − LE):
                   w(p) = (1 − p)(1 + p/(1 − LE)) there       LE = `log_end` < 1
    aggressive     b = log(1 − p) − log(1 − start) for p ≥ start, else 0: cross-entropy up to `start`

1 − p is clamped at ε in the logarithm: beyond p = 1 − ε the normal bonus is constant and only cross-entropy's
vanishing gradient remains. This keeps training from diverging, so it is part of the method; ε = 0 is the exact form,
which has no lower bound. LE = 0 is b = −p, which is not cross-entropy; bonus = 0 is.
With label smoothing a every class has its own term: (1 − a) ℓ(m_y) + (a/K) Σ_j ℓ(m_j).
Zhao et al., "Well-classified examples are underestimated in classification with deep neural networks"
(AAAI 2022), eq. 6 (normal) and eq. 7 (conservative).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._curve_loss import smoothed_curve_loss
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options
from mohs.margin import softplus


def encouraging(m: Tensor, *, log_end: float = 0.75, start: float = 0.0, bonus: float = 1.0, eps: float = 1e-5) -> Tensor:
    """The curve ℓ(m), elementwise; log_end is LE, eps is ε."""
    m = m.clamp(max=torch.finfo(m.dtype).max ** 0.5)  # +inf, if all other classes are masked, would make the bonus −inf
    p = torch.sigmoid(m)
    b = -softplus(m)  # log(1 − p)
    if eps > 0:
        b = b.clamp(min=math.log(eps))
    if log_end < 1:
        b = torch.where(p > log_end, math.log1p(-log_end) - (p - log_end) / (1 - log_end), b)
    if start > 0:
        b = torch.where(p >= start, b - math.log1p(-start), 0.0)
    return softplus(-m) + bonus * b


def encouraging_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    log_end: float = 0.75,
    start: float = 0.0,
    bonus: float = 1.0,
    eps: float = 1e-5,
    **options: Unpack[Options],
) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    curve = partial(encouraging, log_end=log_end, start=start, bonus=bonus, eps=eps)
    return smoothed_curve_loss(curve, logits, labels, **options)


@module_of(encouraging_loss)
class EncouragingLoss(LossModule):
    """Encouraging loss as a Module. log_end=1: normal bonus; log_end=1, start=0.5: aggressive; bonus=0: cross-entropy."""

    formula = "−log p + b(p),  b = log(1 − p) up to LE"
    purpose = "clean labels: keeps rewarding well-classified examples (imbalance, OOD, margins)"
    smoothable = True
    log_end: float = 0.75
    start: float = 0.0
    bonus: float = 1.0
    eps: float = 1e-5

    def setup(self) -> None:
        check_between("log_end", self.log_end, 0, 1)
        check_between("bonus", self.bonus, 0)
        check_between("start", self.start, 0, 1, ends="[)")
        check_between("eps", self.eps, 0, 1, ends="[)")
        if self.start > 0 and self.log_end < 1:
            raise ValueError(
                f"start={self.start} needs log_end=1 (got log_end={self.log_end}): the loss would be discontinuous otherwise"
            )

    @property
    def curve(self) -> Curve:
        return partial(encouraging, log_end=self.log_end, start=self.start, bonus=self.bonus, eps=self.eps)
