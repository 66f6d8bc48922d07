"""Symmetric cross-entropy: cross-entropy plus its reverse, with log 0 of the one-hot label replaced by log(floor).

    ℓ(m) = α softplus(−m) + β A σ(−m)      A = −log(floor) = 9.21 for the floor 1e-4 of the authors' code
    w(p) = (1 − p)(α + β A p)              emphasis: focus (βA − α)/(2βA) where that is positive

α = 1, β = 0 is cross-entropy. The authors use α = 0.1, β = 1 for 10 classes and α = 6, β = 0.1 for 100.
Wang et al., "Symmetric cross entropy for robust learning with noisy labels" (ICCV 2019), eq. 6.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Unpack

from torch import Tensor, sigmoid

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._curve_loss import curve_loss
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options
from mohs.margin import softplus


def symmetric(m: Tensor, *, alpha: float = 0.1, beta: float = 1.0, floor: float = 1e-4) -> Tensor:
    """The curve ℓ(m), elementwise; alpha and beta are α and β, A = −log(floor)."""
    return alpha * softplus(-m) - beta * math.log(floor) * sigmoid(-m)


def symmetric_loss(
    logits: Tensor, labels: Tensor, *, alpha: float = 0.1, beta: float = 1.0, floor: float = 1e-4, **options: Unpack[Options]
) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    return curve_loss(partial(symmetric, alpha=alpha, beta=beta, floor=floor), logits, labels, **options)


@module_of(symmetric_loss)
class SymmetricCrossEntropyLoss(LossModule):
    """Symmetric cross-entropy as a Module; alpha, beta ≥ 0, 0 < floor ≤ 1."""

    formula = "−α log p + β A (1 − p)"
    purpose = "noisy labels: cross-entropy's speed, MAE's robustness"
    alpha: float = 0.1
    beta: float = 1.0
    floor: float = 1e-4

    def setup(self) -> None:
        check_between("alpha", self.alpha, 0)
        check_between("beta", self.beta, 0)
        check_between("floor", self.floor, 0, 1, ends="(]")

    @property
    def curve(self) -> Curve:
        return partial(symmetric, alpha=self.alpha, beta=self.beta, floor=self.floor)
