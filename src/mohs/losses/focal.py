"""Focal loss: cross-entropy that down-weights examples already learned.

    ℓ(m) = σ(−m)^γ softplus(−m) = −(1 − p)^γ log p
    w(p) = (1 − p)^γ (1 − p − γ p log p)   emphasis: focus near 0, steeper than cross-entropy's

γ = 0 is cross-entropy. The factor (1 − p)^γ is differentiated; implementations that hold it constant have another loss.
Lin et al., "Focal loss for dense object detection" (ICCV 2017), eq. 4.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

import torch
from torch import Tensor
from torch.nn.functional import softplus

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._drop_in import LossModule, Options, curve_loss


def focal(m: Tensor, *, gamma: float = 2.0) -> Tensor:
    """The curve ℓ(m), elementwise; gamma is γ."""
    largest = torch.finfo(m.dtype).max / 4
    m = m.clamp(-largest, largest)  # ±inf, of masked classes, would make 0 · inf
    return torch.exp(-gamma * softplus(m)) * softplus(-m)


def focal_loss(logits: Tensor, labels: Tensor, *, gamma: float = 2.0, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    return curve_loss(partial(focal, gamma=gamma), logits, labels, **options)


@module_of(focal_loss)
class FocalLoss(LossModule):
    """Focal loss as a Module; gamma ≥ 0."""

    formula = "−(1 − p)^γ log p"
    purpose = "many easy examples, clean labels; harmful under label noise"
    gamma: float = 2.0

    def setup(self) -> None:
        check_between("gamma", self.gamma, 0)

    def curve(self, m: Tensor) -> Tensor:
        return focal(m, gamma=self.gamma)
