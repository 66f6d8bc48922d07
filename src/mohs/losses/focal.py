"""Focal loss: cross-entropy that looks away from examples already learned.

    ℓ(m) = σ(−m)^γ softplus(−m) = −(1 − p)^γ log p
    w(p) = (1 − p)^γ (1 − p − γ p log p)   emphasis: focus near 0, steeper than cross-entropy's

γ = 0 is cross-entropy. The factor (1 − p)^γ is differentiated; some codes hold it constant, which is another loss.
Lin et al., "Focal loss for dense object detection" (ICCV 2017), eq. 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from mohs._core.validation import check_between
from mohs.losses._drop_in import Options, become_module, curve_loss, rebuildable, settings


def focal(m: Tensor, *, gamma: float = 2.0) -> Tensor:
    """The curve ℓ(m), elementwise; gamma is γ."""
    return torch.exp(-gamma * softplus(m)) * softplus(-m)


def focal_loss(logits: Tensor, labels: Tensor, *, gamma: float = 2.0, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    return curve_loss(partial(focal, gamma=gamma), logits, labels, **options)


@dataclass(eq=False, repr=False, kw_only=True)
class FocalLoss(nn.Module):
    """Focal loss as a Module; gamma ≥ 0."""

    formula: ClassVar[str] = "−(1 − p)^γ log p"
    purpose: ClassVar[str] = "many easy examples, clean labels; harmful under label noise"
    gamma: float = 2.0
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self)
        check_between("gamma", self.gamma, 0)

    def curve(self, m: Tensor) -> Tensor:
        return focal(m, gamma=self.gamma)

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return focal_loss(logits, labels, sample_weight=sample_weight, **settings(self))

    __repr__ = rebuildable
