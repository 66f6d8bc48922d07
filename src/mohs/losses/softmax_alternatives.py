"""Softmax alternatives: cross-entropy with the exponential replaced by a square.

    spherical   p_k = (z_k² + ε) / Σ_j (z_j² + ε)             ∂ℓ/∂z_j = 2z_j / Σ_k (z_k² + ε) − [j = y] 2z_y / (z_y² + ε)
    Taylor      p_k = f_k / Σ_j f_j,  f = 1 + z + z²/2        ∂ℓ/∂z_j = (1 + z_j)(1 / Σ_k f_k − [j = y] / f_y)

ℓ = −log p_y. Either is softmax of u = log(z² + ε), and Taylor is spherical on 1 + z with ε = 1, for f = ((1 + z)² + 1)/2.
log(z² + ε) is computed as 2 log hypot(z, √ε), which cannot overflow for finite logits. Not invariant to a shift of the
logits, nor curves of the margin. Spherical ignores the sign of z; its gradient reaches 1/√ε and vanishes at z_y = 0. A logit
of −inf masks its class, as for cross-entropy; +inf makes the row NaN.
De Brébisson & Vincent, "An exploration of softmax alternatives belonging to the spherical loss family" (ICLR 2016).
"""

from __future__ import annotations

from dataclasses import field
from typing import Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.losses._curve_loss import curve_loss
from mohs.losses._drop_in import LossModule
from mohs.losses._reduction import Options
from mohs.losses.cross_entropy import cross_entropy
from mohs.margin import INF, check_logits, full_precision


def log_square(z: Tensor, *, eps: float) -> Tensor:
    """log(z² + ε), elementwise, in float32 at least, −inf for −inf: the logits u whose softmax is spherical."""
    z = z.to(full_precision(z.dtype))
    masked = z == -INF
    return (2 * torch.hypot(z.masked_fill(masked, 0.0), z.new_full((), eps**0.5)).log()).masked_fill(masked, -INF)


def spherical_loss(logits: Tensor, labels: Tensor, *, eps: float = 1e-6, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"; eps is ε."""
    check_logits(logits)
    return curve_loss(cross_entropy, log_square(logits, eps=eps), labels, **options)


def taylor_loss(logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    check_logits(logits)
    return spherical_loss(1 + logits.to(full_precision(logits.dtype)), labels, eps=1.0, **options)


@module_of(spherical_loss)
class SphericalLoss(LossModule):
    """The log-spherical softmax loss as a Module; eps > 0."""

    formula = "−log (z_y² + ε)/Σ_k (z_k² + ε)"
    purpose = "softmax alternative for few classes: squares instead of exponentials"
    eps: float = 1e-6

    def setup(self) -> None:
        if not self.eps > 0:
            raise ValueError(f"eps must be over 0 (the loss is singular at z_y = 0 without it), got {self.eps}")


@module_of(taylor_loss)
class TaylorLoss(LossModule):
    """The second-order Taylor softmax loss as a Module."""

    formula = "−log f(z_y)/Σ_k f(z_k),  f = 1 + z + z²/2"
    purpose = "softmax alternative for few classes: lighter tails than exp"
    weight: Tensor | None = field(default_factory=lambda: None, kw_only=False)  # first, as in `nn.CrossEntropyLoss`
