"""Emphasis: the size of a loss's gradient on an example whose label has probability p.

    w(p) = |dℓ/dm| = ½ ‖∂ℓ/∂z‖₁            p = σ(m)
    focus ψ = argmax_p w(p)                spread σ = the variance of w over a batch's p

Gradient Rescaling (arXiv 1905.11233), Definitions 1 and 2, whose weight is 2w, the L1 norm of the gradient: its Figure 1 plots
2w, and `spread` is ¼ of its Definition 2. For GR w is the weight before the batch normalization. p is clamped to
[1e-12, 1 − 1e-12].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

NEAREST = 1e-12
FLAT = 1e-3


def emphasis(loss: Callable[..., Tensor], p: Tensor | float) -> Tensor:
    """w(p): how much weight a loss gives to an example whose label has probability p.

    Args:
        loss: A loss of this package, or any callable (logits, labels) -> loss. A callable without a `curve` is evaluated
            on one two-class example at a time, so its reduction does not matter.
        p: Probabilities of the label, of any shape.

    Returns:
        w of the same shape, in float64.

    Example:
        >>> emphasis(mohs.GeneralizedCrossEntropyLoss(q=0.7), 0.5)
        tensor(0.3078, dtype=torch.float64)
    """
    if not callable(loss):
        raise ValueError(f"loss must be a loss or a callable, got {loss!r}; create_loss takes names")
    p = torch.as_tensor(p, dtype=torch.float64)
    if ((p < 0) | (p > 1)).any() or p.isnan().any():
        raise ValueError(f"p must lie in [0, 1], got {float(p[(p < 0) | (p > 1) | p.isnan()].flatten()[0])}")
    m = torch.special.logit(p, eps=NEAREST)
    curve: Callable[[Tensor], Tensor] | None = getattr(loss, "curve", None)
    if curve is None:
        return torch.stack([_half_l1(loss, one) for one in m.flatten()]).view_as(m) if m.numel() else m
    with torch.enable_grad():
        slope: Tensor = torch.autograd.grad(curve(m.requires_grad_()).sum(), m)[0]
    return slope.abs()


def focus(loss: Callable[..., Tensor]) -> float:
    """The smallest p with the largest emphasis, to 1e-6; NaN if the emphasis is nearly the same for every p."""
    low, high = 0.0, 1.0
    for _ in range(4):  # each round narrows the bracket fifty-fold
        p = torch.linspace(low, high, 101, dtype=torch.float64)
        w = emphasis(loss, p)
        top = float(w.max())
        if not math.isfinite(top):
            raise ValueError(f"the emphasis of {loss!r} overflows: give it smaller settings")
        if (low, high) == (0.0, 1.0) and float(w[1:-1].max() - w[1:-1].min()) <= FLAT * top:
            return float("nan")
        at = int((w >= top - 1e-13 * abs(top)).nonzero()[0])
        low, high = float(p[max(at - 1, 0)]), float(p[min(at + 1, 100)])
    return round(float(p[at]), 6)


def spread(loss: Callable[..., Tensor], p: Tensor, *, normalized: bool = False) -> float:
    """The population variance of the emphasis over a batch: ¼ of Gradient Rescaling's Definition 2, whose weight is twice it.

    Args:
        loss: As for `emphasis`.
        p: Probabilities of the labels (N,).
        normalized: Take the variance of w/Σw, the weights of a loss that normalizes over the batch.
    """
    w = emphasis(loss, p)
    if w.numel() == 0:
        raise ValueError("p is empty: a spread needs at least one example")
    return float((w / w.sum() if normalized else w).var(correction=0))


def _half_l1(loss: Callable[..., Tensor], m: Tensor) -> Tensor:
    """½ ‖∂ℓ/∂z‖₁ of one example with two classes and margin m."""
    with torch.enable_grad():
        z = torch.stack([m, torch.zeros_like(m)]).unsqueeze(0).requires_grad_()  # (1, 2)
        (grad,) = torch.autograd.grad(loss(z, torch.zeros(1, dtype=torch.long)).sum(), z)
    return grad.abs().sum() / 2
