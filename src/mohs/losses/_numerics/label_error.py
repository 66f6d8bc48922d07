"""The error of the class scores against the one-hot label, summed over classes, with a fused backward pass.

    softmax_square   Σ_k (p_k − y_k)²                         slope 2p(d − p·d),  d = p − y
    sigmoid_error    Σ_k |y_k − s_k|^power, power 1 or 2      s = sigmoid(z), one score per class

Plain autograd needs four (N, K) arrays for either; these need two. Tracing, `torch.func`, second and forward-mode
derivatives take the plain version.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from mohs.margin import full_precision
from mohs.margin._choose import eager, needs_plain, plain_gradient


def softmax_square(logits: Tensor, index: Tensor) -> Tensor:
    """logits (N, K, ...), index (N, 1, ...) -> (N, ...)."""
    if eager(logits):
        return _SoftmaxSquare.apply(logits, index)  # type: ignore[no-any-return]
    return plain_softmax_square(logits, index)


def plain_softmax_square(logits: Tensor, index: Tensor) -> Tensor:
    """`softmax_square` by ordinary differentiable operations."""
    p = torch.softmax(logits, 1, dtype=full_precision(logits.dtype))
    return p.scatter_add(1, index, torch.full_like(p, -1.0).gather(1, index)).square().sum(1)


def sigmoid_error(logits: Tensor, index: Tensor, *, power: int) -> Tensor:
    """logits (N, K, ...), index (N, 1, ...) -> (N, ...)."""
    if eager(logits):
        return _SigmoidError.apply(logits, index, power)  # type: ignore[no-any-return]
    return plain_sigmoid_error(logits, index, power=power)


def plain_sigmoid_error(logits: Tensor, index: Tensor, *, power: int) -> Tensor:
    """`sigmoid_error` by ordinary differentiable operations."""
    off = _flipped(logits, index).sigmoid()
    return off.sum(1) if power == 1 else off.square().sum(1)


def _flipped(logits: Tensor, index: Tensor) -> Tensor:
    """With the sign of the label's logit flipped, sigmoid is |y − s| in every class, and accurate where s_y nears 1."""
    logits = logits.to(full_precision(logits.dtype))
    return logits.scatter(1, index, -logits.gather(1, index))


class _SoftmaxSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor) -> Tensor:
        d = torch.softmax(logits, 1, dtype=full_precision(logits.dtype))  # p, turned into p − y in place
        d.scatter_(1, index, d.gather(1, index) - 1)
        total: Tensor = torch.linalg.vector_norm(d, dim=1).square()
        ctx.save_for_backward(logits, index)
        ctx.total, ctx.d = total, d
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits, index = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(partial(plain_softmax_square, index=index), logits, grads[0]), None
        d, scale = ctx.d, 2 * grads[0].unsqueeze(1)
        own = d.gather(1, index)  # p_y − 1
        center = ctx.total.unsqueeze(1) + own  # p·d = Σd² + d_y
        grad = (d - center).mul_(d).mul_(scale)  # p = d except at the label
        return grad.scatter_(1, index, scale * (own + 1) * (own - center)).to(logits.dtype), None


class _SigmoidError(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, power: int) -> Tensor:
        ctx.save_for_backward(logits, index)
        off = _flipped(logits, index).sigmoid_()  # |y − s| (N, K, ...)
        ctx.off, ctx.power = off, power
        total: Tensor = off.sum(1) if power == 1 else torch.linalg.vector_norm(off, dim=1).square()
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits, index = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(partial(plain_sigmoid_error, index=index, power=ctx.power), logits, grads[0]), None, None
        scale = grads[0].unsqueeze(1)

        def slope(score: Tensor) -> Tensor:
            along = torch.ops.aten.sigmoid_backward  # (g, s) -> g s (1 − s) in one pass
            return along(score, score).mul_(2 * scale) if ctx.power == 2 else along(scale.expand_as(score), score)  # type: ignore[no-any-return]

        own = slope(ctx.off.gather(1, index))
        return slope(ctx.off).scatter_(1, index, -own).to(logits.dtype), None, None
