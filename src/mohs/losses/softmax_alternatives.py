"""Softmax alternatives: cross-entropy with the exponential replaced by a square.

    spherical   p_k = (z_k² + ε) / Σ_j (z_j² + ε)             ∂ℓ/∂z_j = 2z_j / Σ_k (z_k² + ε) − [j = y] 2z_y / (z_y² + ε)
    Taylor      p_k = f_k / Σ_j f_j,  f = 1 + z + z²/2        ∂ℓ/∂z_j = (1 + z_j)(1 / Σ_k f_k − [j = y] / f_y)

ℓ = −log p_y. Either is softmax of u = log(z² + ε), and Taylor is spherical on 1 + z with ε = 1, for f = ((1 + z)² + 1)/2.
log(z² + ε) = 2 log hypot(z, √ε) squares nothing, so logits of any finite size do. Not invariant to a shift of the logits,
nor curves of the margin. Spherical is blind to the sign of z and its gradient, large as 1/√ε, vanishes at z_y = 0; a logit
of −inf masks nothing out here but makes its row NaN, as +inf does.
De Brébisson & Vincent, "An exploration of softmax alternatives belonging to the spherical loss family" (ICLR 2016).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from mohs.losses._drop_in import Options, become_module, curve_loss, rebuildable, settings
from mohs.losses.cross_entropy import cross_entropy
from mohs.margin import check_logits, full_precision


def log_square(z: Tensor, *, eps: float) -> Tensor:
    """log(z² + ε), elementwise, in float32 at least: the logits u whose softmax is spherical."""
    z = z.to(full_precision(z.dtype))
    return 2 * torch.hypot(z, z.new_full((), eps**0.5)).log()


def spherical_loss(logits: Tensor, labels: Tensor, *, eps: float = 1e-6, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"; eps is ε."""
    check_logits(logits)
    return curve_loss(cross_entropy, log_square(logits, eps=eps), labels, **options)


def taylor_loss(logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    check_logits(logits)
    return spherical_loss(1 + logits.to(full_precision(logits.dtype)), labels, eps=1.0, **options)


@dataclass(eq=False, repr=False, kw_only=True)
class SphericalLoss(nn.Module):
    """The log-spherical softmax loss as a Module; eps > 0."""

    formula: ClassVar[str] = "−log (z_y² + ε)/Σ_k (z_k² + ε)"
    purpose: ClassVar[str] = "softmax alternative for few classes: squares in place of exponentials"
    eps: float = 1e-6
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self)
        if not self.eps > 0:
            raise ValueError(f"eps must be over 0 (the loss is singular at z_y = 0 without it), got {self.eps}")

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return spherical_loss(logits, labels, sample_weight=sample_weight, **settings(self))

    __repr__ = rebuildable


@dataclass(eq=False, repr=False, kw_only=True)
class TaylorLoss(nn.Module):
    """The second-order Taylor softmax loss as a Module."""

    formula: ClassVar[str] = "−log f(z_y)/Σ_k f(z_k),  f = 1 + z + z²/2"
    purpose: ClassVar[str] = "softmax alternative for few classes: lighter tails than exp"
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self)

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return taylor_loss(logits, labels, sample_weight=sample_weight, **settings(self))

    __repr__ = rebuildable
