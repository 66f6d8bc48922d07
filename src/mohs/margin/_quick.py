"""A function of the margin on CPU, in few operations: small batches cost little more than `F.cross_entropy`, large ones less.

    p = softmax(z), pₒ = p but 0 at the label, n = Σ pₒ = 1 − p_y without cancellation, m = log(p_y/n)
    L = Σᵢ aᵢ ℓ(mᵢ)          ∂L/∂z = a w · (−1 at the label, pₒ/n elsewhere)         a: weights; w = −dℓ/dm: emphasis

A curve ℓ gives its value and emphasis together, so autograd sees one operation from the logits to the loss. Only pₒ/n and p_y/n
matter, so for few classes, where PyTorch's softmax is slow, exp(z − z_y) replaces p, and beyond |m| = 60, where p_y or n would
underflow, exp(z − max over the others) replaces pₒ. At 128 × 10 an operation costs its call, not its arithmetic, so their number
matters. One (N, K) array is allocated, and the gradient reuses it unless the graph is kept. Second derivatives take the plain
version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mohs.margin._choose import Plain, apply_eagerly, eager, keeps_graph, needs_plain, plain_gradient

INF = float("inf")
ZERO = torch.zeros((), device="cpu")
FEW = 48  # classes
SAFE = 60.0  # e⁻⁶⁰ is far above float32's smallest number
Pair = Callable[[Tensor], tuple[Tensor, Tensor]]  # m (N, 1, ...) -> ℓ(m), w = −dℓ/dm


def on_cpu(logits: Tensor, labels: Tensor) -> bool:
    """Whether these are plain CPU tensors with values: neither traced nor in a forward-mode derivative."""
    return logits.is_cpu and labels.is_cpu and labels.numel() > 0 and eager(logits)


def quick_margin(logits: Tensor, index: Tensor, plain: Plain) -> Tensor:
    """logits (N, K, ...), index (N, ...) of classes -> m (N, ...)."""
    return quick_loss(logits, index, lambda m: (m, torch.full_like(m, -1.0)), plain)


def times(number: float, y: Tensor) -> Tensor:
    """number · y, in half the time for small y: the factor of a product is first converted to a tensor, `alpha` is not."""
    return torch.add(ZERO, y, alpha=number)


def quick_loss(
    logits: Tensor,
    index: Tensor,
    curve: Pair,
    plain: Plain,
    *,
    reduction: str = "none",
    weight: Tensor | None = None,
    kept: Tensor | None = None,
) -> Tensor:
    """A curve of the margin, reduced.

    Args:
        logits: (N, K, ...).
        index: (N, ...), int64 classes.
        curve: The curve with its emphasis.
        plain: The same loss by differentiable operations.
        reduction: "mean", "sum" or "none".
        weight: (N, ...), weights of the examples.
        kept: (N, ...), False for examples to ignore.

    Returns:
        A scalar, or (N, ...) for "none".

    Raises:
        RuntimeError: An entry of the index is not a class.
    """
    return apply_eagerly(_QuickLoss, logits, index, curve, plain, reduction, weight, kept)  # type: ignore[no-any-return]


class _QuickLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        index: Tensor,
        curve: Pair,
        plain: Plain,
        reduction: str,
        weight: Tensor | None,
        kept: Tensor | None,
    ) -> Tensor:
        index = index.unsqueeze(1)
        m, others, total = _margins(logits, index)
        value, push = curve(m)
        if weight is not None:
            weight = weight.to(m).unsqueeze(1)
            value, push = value * weight, push * weight
        if kept is not None:
            dropped = ~kept.unsqueeze(1)
            value, push = value.masked_fill(dropped, 0.0), push.masked_fill(dropped, 0.0)
            weight = (~dropped).to(m) if weight is None else weight.masked_fill(dropped, 0.0)
        if reduction == "mean" and weight is None:
            ctx.share = 1 / value.numel()
            value = value.mean()
        elif reduction == "mean":
            share = 1 / (weight.sum().item() or math.nan)  # type: ignore[union-attr]
            value = value.sum().mul_(share)
            ctx.share = share if kept is None or kept.any() else 0.0  # the gradient of no example at all is 0, as in torch
        else:
            ctx.share = 1.0
            value = value.sum() if reduction == "sum" else value.squeeze(1)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits)
            ctx.plain, ctx.index, ctx.others, ctx.total, ctx.push = plain, index, others, total, push
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        (g,) = grads
        if needs_plain(g):
            return plain_gradient(ctx.plain, logits, g), None, None, None, None, None, None
        push = ctx.push * g.unsqueeze(1) if g.dim() else times(g.item() * ctx.share, ctx.push)
        scale = push / ctx.total
        if keeps_graph():
            grad = ctx.others * scale
        else:
            grad, ctx.others = ctx.others.mul_(scale), None
        grad = grad.scatter_(1, ctx.index, push.neg_())
        return grad if grad.dtype == logits.dtype else grad.to(logits.dtype), None, None, None, None, None, None


def _margins(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """logits (N, K, ...), index (N, 1, ...) -> m, the weights of the other classes (0 at the label), and their sum."""
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    if logits.shape[1] < FEW:
        z = logits if logits.dtype == wide else logits.to(wide)
        others = (z - z.gather(1, index)).exp_()  # p/p_y: the label weighs 1
        total = others.scatter_(1, index, 0.0).sum(1, keepdim=True)
        m = total.log().neg_()
    else:
        others = torch.softmax(logits, 1, dtype=wide)
        own = others.gather(1, index)
        total = others.scatter_(1, index, 0.0).sum(1, keepdim=True)
        m = own.div_(total).log_()
    least, most = m.aminmax()
    if least.item() >= -SAFE and most.item() <= SAFE:  # False for NaN
        return m, others, total
    return _from_logits(logits.to(wide), index)


def _from_logits(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The margins of logits of any size, infinite ones included: the other classes have weight exp(z − max)."""
    own, others = logits.gather(1, index), logits.scatter(1, index, -INF)
    top = others.amax(1, keepdim=True)
    top.masked_fill_(top == -INF, 0.0)  # all other classes are masked: the sum is 0 and m = +inf
    total = others.sub_(top).exp_().sum(1, keepdim=True)
    m = (own - top).sub_(total.log()).masked_fill_(own == INF, torch.nan)
    return m, others, total.masked_fill_(total == 0, 1.0)
