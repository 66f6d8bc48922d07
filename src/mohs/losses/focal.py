"""Focal loss: cross-entropy that down-weights examples already learned.

    ℓ(m) = σ(−m)^γ softplus(−m) = −(1 − p)^γ log p
    w(p) = (1 − p)^γ (1 − p − γ p log p)   emphasis: focus near 0, steeper than cross-entropy's

γ = 0 is cross-entropy. α multiplies the loss of each class and, unlike `weight`, does not enter the mean's denominator: a number
per class, or a single one for every class but the first, which gets 1 − α (the paper's two classes; with more, the first is
the background). The factor (1 − p)^γ is differentiated; implementations that hold it constant have another loss.
Lin et al., "Focal loss for dense object detection" (ICCV 2017), eq. 4, with α eq. 5.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._class_table import check_table, hold_table
from mohs.losses._curve_loss import curve_loss
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options, reduce
from mohs.margin import NO_LABEL, checked_labels, margin, softplus


def focal(m: Tensor, *, gamma: float = 2.0) -> Tensor:
    """The curve ℓ(m), elementwise; gamma is γ."""
    largest = torch.finfo(m.dtype).max / 4
    m = m.clamp(-largest, largest)  # ±inf, of masked classes, would make 0 · inf
    return torch.exp(-gamma * softplus(m)) * softplus(-m)


def focal_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: float = 2.0,
    alpha: float | Tensor | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"; alpha is α, a number or (K,)."""
    if alpha is None:
        return curve_loss(partial(focal, gamma=gamma), logits, labels, **options)
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
    values = focal(margin(logits, index), gamma=gamma)
    return reduce(values * alpha_of(alpha, index, logits.shape[1]).to(values), labels, classes=logits.shape[1], **options)


def alpha_of(alpha: float | Tensor, index: Tensor, classes: int) -> Tensor:
    """α of each label: index (N, ...) -> (N, ...)."""
    if isinstance(alpha, int | float):
        return torch.where(index == 0, 1.0 - alpha, float(alpha))
    check_table("alpha", alpha, (classes,))
    return alpha.to(index.device)[index]


@module_of(focal_loss)
class FocalLoss(LossModule):
    """Focal loss as a Module; gamma ≥ 0, alpha in [0, 1], or one number ≥ 0 per class; also as `FocalLoss(2.0, 0.25)`."""

    formula = "−(1 − p)^γ log p"
    purpose = "many easy examples, clean labels; harmful under label noise"
    gamma: float = field(default=2.0, kw_only=False)
    alpha: float | Tensor | None = field(default_factory=lambda: None, kw_only=False)  # a class attribute would hide the buffer

    def setup(self) -> None:
        check_between("gamma", self.gamma, 0)
        if isinstance(self.alpha, int | float):
            check_between("alpha", self.alpha, 0, 1)
        elif self.alpha is not None:
            table = hold_table(self, "alpha")
            if table.dim() != 1 or not (table.isfinite() & (table >= 0)).all():
                raise ValueError(f"alpha must be a number, or one finite number of at least 0 per class, got {table.tolist()}")

    @property
    def curve(self) -> Curve:
        if self.alpha is not None:  # then the loss depends on the class too
            raise AttributeError("curve")
        return partial(focal, gamma=self.gamma)
