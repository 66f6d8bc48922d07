"""Gradient Rescaling: the gradient of cross-entropy, rescaled by a function of the label's probability.

    wᵢ = g(β pᵢ^λ (1 − pᵢ)),  g = exp or identity             held constant: the weight is not differentiated
    ∂L/∂zᵢ = (softmax(zᵢ) − e_y) / (2(1 − pᵢ) + ε) · wᵢ / Σ_k w_k
    w(p) = ½ g(β p^λ (1 − p)) before the batch normalization  emphasis: focus λ/(1 + λ), spread set by β

implemented as the gradient of s.detach() · softplus(−m), s = w/(2(1 − p) + ε). Division by the batch's sum ("sum", the
authors' code) makes the L1 norms of a batch's logit gradients add up to 1; a batch of one has weight 1, and each process
normalizes over its own batch. Eq. 6 as printed is "mean". ε lets the gradient of fitted examples vanish; with ε = 0 it does
not. The value of the loss is not meaningful, only its gradient.
"Robust discriminative representation learning via gradient rescaling" (2019; arXiv 1905.11233), eqs. 6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between, check_choice
from mohs.losses._curve_loss import by_emphasis, curve_loss
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._numerics import emphases
from mohs.losses._reduction import Options, check_unsmoothed, reduce
from mohs.margin import INF, NO_LABEL, plain_margin, softplus
from mohs.margin._choose import takes


def weights(m: Tensor, *, beta: float, lam: float, transform: str, kept: Tensor | None = None) -> Tensor:
    """wᵢ = g(β pᵢ^λ (1 − pᵢ)); with a mask `kept`, divided by their mean (for exp a softmax, which cannot overflow)."""
    x = (beta * torch.sigmoid(m) ** lam * torch.sigmoid(-m)).detach()  # 0^0 = 1
    if kept is None:
        return x.exp() if transform == "exp" else x
    if transform == "exp":
        share = torch.softmax(x.masked_fill(~kept, -INF).flatten(), 0).view_as(x)
    else:
        share = x / x.masked_fill(~kept, 0.0).sum().clamp(min=torch.finfo(x.dtype).tiny)
    return kept.sum() * share.masked_fill(~kept, 0.0)


def half_gradient(m: Tensor, *, eps: float) -> Tensor:
    """softplus(−m)/(2(1 − p) + ε) with the denominator held constant: |dℓ/dm| is ½ until 1 − p nears ε."""
    if eps > 0:
        return softplus(-m) / (2 * torch.sigmoid(-m) + eps).detach()
    m = m.clamp(max=torch.finfo(m.dtype).max / 4)  # +inf, if all other classes are masked, would make inf − inf
    near = m.detach().clamp(max=60)  # beyond it softplus(−m) = σ(−m) in float64: the quotient is ½
    return softplus(-near) / (2 * torch.sigmoid(-near)) + 0.5 * (m.detach() - m)


def gradient_rescaling(m: Tensor, *, beta: float = 8.0, lam: float = 0.5, transform: str = "exp", eps: float = 1e-6) -> Tensor:
    """The curve before batch normalization, elementwise; beta is β, lam is λ, transform is g, eps is ε."""
    return weights(m, beta=beta, lam=lam, transform=transform) * half_gradient(m, eps=eps)


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
    if normalize == "mean":
        curve = partial(gradient_rescaling, beta=beta, lam=lam, transform=transform, eps=eps)
        return curve_loss(curve, logits, labels, **options)
    check_unsmoothed(options.get("label_smoothing", 0.0))

    def plain(logits: Tensor, margin_of: Callable[..., Tensor] = plain_margin) -> Tensor:
        ignore_index = options.get("ignore_index", NO_LABEL)
        m = margin_of(logits, labels, ignore_index=ignore_index)
        w = weights(m, beta=beta, lam=lam, transform=transform, kept=labels.long() != ignore_index)
        return reduce(w * half_gradient(m, eps=eps), labels, classes=logits.shape[1], **options)

    value = None
    if takes(logits) and not torch.compiler.is_compiling():
        from mohs.losses._kernels.rescaling import Rescaling, fused_rescaling

        value = fused_rescaling(Rescaling(beta, lam, transform, eps), logits, labels, plain, **options)
    if value is None:
        pair = partial(emphases.gradient_rescaling, beta=beta, lam=lam, transform=transform, normalize=normalize, eps=eps)
        return by_emphasis(pair, logits, labels, plain, over_batch=True, **options)
    return value


@module_of(gradient_rescaling_loss)
class GradientRescalingLoss(LossModule):
    """Gradient Rescaling as a Module; beta, lam ≥ 0. The safe default 8, ½ suits noisy labels; beta=0 gives all examples equal
    weight.
    """

    formula = "gradient ∝ exp(β p^λ (1 − p))"
    purpose = "noisy labels: emphasis moved to likelier examples by λ, sharpened by β"
    beta: float = 8.0
    lam: float = 0.5
    transform: str = "exp"
    normalize: str = "sum"
    eps: float = 1e-6

    def setup(self) -> None:
        check_between("beta", self.beta, 0, 80 if self.transform == "exp" and self.normalize == "mean" else INF)  # exp overflows
        check_between("lam", self.lam, 0)
        check_between("eps", self.eps, 0)
        check_choice("transform", self.transform, ("exp", "identity"))
        check_choice("normalize", self.normalize, ("sum", "mean"))

    @property
    def over_batch(self) -> bool:
        return self.normalize == "sum"

    @property
    def curve(self) -> Curve:
        return partial(gradient_rescaling, beta=self.beta, lam=self.lam, transform=self.transform, eps=self.eps)
