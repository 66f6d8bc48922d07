"""Gradient Rescaling: cross-entropy's direction, with a length chosen by how likely the label is.

    wᵢ = g(β pᵢ^λ (1 − pᵢ)),  g = exp or identity             held constant: the weight is not differentiated
    ∂L/∂zᵢ = (softmax(zᵢ) − e_y) / (2(1 − pᵢ) + ε) · wᵢ / Σ_k w_k
    w(p) = ½ g(β p^λ (1 − p)) before the batch normalization  emphasis: focus λ/(1 + λ), spread set by β

as the gradient of s.detach() · softplus(−m), s = w/(2(1 − p) + ε). Division by the batch's sum (the authors' code, "sum") makes
the L1 norms of a batch's logit gradients add up to 1, takes the weight from a batch of one, and is each rank's own; eq. 6 as
printed is "mean". ε ends the push on fitted examples; with ε = 0 nothing does. The value is no objective to watch.
"Robust discriminative representation learning via gradient rescaling" (2019; arXiv 1905.11233), eqs. 6 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from mohs._core.validation import check_between, check_choice
from mohs.losses._drop_in import Options, become_module, rebuildable, reduce, settings
from mohs.margin import INF, NO_LABEL, margin


def weights(m: Tensor, *, beta: float, lam: float, transform: str, kept: Tensor | None = None) -> Tensor:
    """wᵢ = g(β pᵢ^λ (1 − pᵢ)); with a mask of the kept ones, over their mean (for exp a softmax, which cannot overflow)."""
    x = (beta * torch.sigmoid(m) ** lam * torch.sigmoid(-m)).detach()  # 0^0 = 1
    if kept is None:
        return x.exp() if transform == "exp" else x
    if transform == "exp":
        share = torch.softmax(x.masked_fill(~kept, -INF).flatten(), 0).view_as(x)
    else:
        share = x / x.masked_fill(~kept, 0.0).sum().clamp(min=torch.finfo(x.dtype).tiny)
    return kept.sum() * share.masked_fill(~kept, 0.0)


def unit_pull(m: Tensor, *, eps: float) -> Tensor:
    """softplus(−m)/(2(1 − p) + ε) with the denominator held constant: a pull of ½ on every example until 1 − p nears ε."""
    if eps > 0:
        return softplus(-m) / (2 * torch.sigmoid(-m) + eps).detach()
    near = m.detach().clamp(max=60)  # from there on softplus(−m) = σ(−m) to float64's last digit: the quotient is ½
    return softplus(-near) / (2 * torch.sigmoid(-near)) + 0.5 * (m.detach() - m)


def gradient_rescaling(m: Tensor, *, beta: float = 8.0, lam: float = 0.5, transform: str = "exp", eps: float = 1e-6) -> Tensor:
    """The curve before batch normalization, elementwise; beta is β, lam is λ, transform is g, eps is ε."""
    return weights(m, beta=beta, lam=lam, transform=transform) * unit_pull(m, eps=eps)


def gradient_rescaling_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    beta: float = 8.0,
    lam: float = 0.5,
    transform: str = "exp",
    normalize: str = "sum",
    eps: float = 1e-6,
    **options: Unpack[Options],
) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or N sᵢ ceᵢ / Σw per example for reduction="none"."""
    ignore_index = options.get("ignore_index", NO_LABEL)
    m = margin(logits, labels, ignore_index=ignore_index)
    kept = labels.long() != ignore_index if normalize == "sum" else None
    w = weights(m, beta=beta, lam=lam, transform=transform, kept=kept)
    return reduce(w * unit_pull(m, eps=eps), labels, classes=logits.shape[1], **options)


@dataclass(eq=False, repr=False, kw_only=True)
class GradientRescalingLoss(nn.Module):
    """Gradient Rescaling as a Module; beta, lam ≥ 0. The safe default 8, ½ suits noisy labels; beta=0 weighs all alike."""

    formula: ClassVar[str] = "gradient ∝ exp(β p^λ (1 − p))"
    purpose: ClassVar[str] = "noisy labels: emphasis moved to likelier examples by λ, sharpened by β"
    beta: float = 8.0
    lam: float = 0.5
    transform: str = "exp"
    normalize: str = "sum"
    eps: float = 1e-6
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self)
        check_between("beta", self.beta, 0, 80 if self.transform == "exp" and self.normalize == "mean" else INF)  # exp overflows
        check_between("lam", self.lam, 0)
        check_between("eps", self.eps, 0)
        check_choice("transform", self.transform, ("exp", "identity"))
        check_choice("normalize", self.normalize, ("sum", "mean"))

    def curve(self, m: Tensor) -> Tensor:
        return gradient_rescaling(m, beta=self.beta, lam=self.lam, transform=self.transform, eps=self.eps)

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return gradient_rescaling_loss(logits, labels, sample_weight=sample_weight, **settings(self))

    __repr__ = rebuildable
