"""The error of the class scores against the one-hot label, summed over classes, with a fused backward pass.

    softmax_square   Σ_k (p_k − y_k)²                         slope 2p(d − p·d),  d = p − y
    sigmoid_error    Σ_k |y_k − s_k|^power, power 1 or 2      s = sigmoid(z), one score per class

Plain autograd needs four (N, K) arrays for either; these need two. The saved array is an output as well, so that
second derivatives are correct.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mohs.margin import full_precision


def softmax_square(logits: Tensor, index: Tensor) -> Tensor:
    """logits (N, K, ...), index (N, 1, ...) -> (N, ...)."""
    total, _ = _SoftmaxSquare.apply(logits, index)
    return total  # type: ignore[no-any-return]


def sigmoid_error(logits: Tensor, index: Tensor, *, power: int) -> Tensor:
    """logits (N, K, ...), index (N, 1, ...) -> (N, ...)."""
    total, _ = _SigmoidError.apply(logits, index, power)
    return total  # type: ignore[no-any-return]


class _SoftmaxSquare(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        d = torch.softmax(logits, 1, dtype=full_precision(logits.dtype))  # p, turned into p − y in place
        d.scatter_(1, index, d.gather(1, index) - 1)
        return torch.linalg.vector_norm(d, dim=1).square(), d

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.dtype = inputs[0].dtype
        ctx.save_for_backward(inputs[1], *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        index, total, d = ctx.saved_tensors
        g, g_d = grads
        scale = 2 * (torch.zeros_like(total) if g is None else g).unsqueeze(1)
        own = d.gather(1, index)  # p_y − 1
        center = total.unsqueeze(1) + own  # p·d = Σd² + d_y
        grad = (d - center).mul_(d).mul_(scale)  # p = d except at the label
        grad = grad.scatter_(1, index, scale * (own + 1) * (own - center))
        if g_d is not None:
            p = d.scatter(1, index, own + 1)
            grad = grad + p * (g_d - (p * g_d).sum(1, keepdim=True))
        return grad.to(ctx.dtype), None


class _SigmoidError(torch.autograd.Function):
    """With the sign of the label's logit flipped, sigmoid is |y − s| in every class, and accurate where s_y nears 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, index: Tensor, power: int) -> tuple[Tensor, Tensor]:
        off = logits.to(full_precision(logits.dtype), copy=True)
        off.scatter_(1, index, -off.gather(1, index)).sigmoid_()  # |y − s| (N, K, ...)
        return off.sum(1) if power == 1 else torch.linalg.vector_norm(off, dim=1).square(), off

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.dtype = inputs[0].dtype
        ctx.power = inputs[2]
        ctx.save_for_backward(inputs[1], output[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None, None]:
        index, off = ctx.saved_tensors
        g, g_off = grads
        scale = (off.new_zeros(off.shape[0], *off.shape[2:]) if g is None else g).unsqueeze(1)

        def slope(score: Tensor, g_score: Tensor | None) -> Tensor:
            along = torch.ops.aten.sigmoid_backward  # (g, s) -> g s (1 − s) in one pass
            grad = along(score, score).mul_(2 * scale) if ctx.power == 2 else along(scale.expand_as(score), score)
            return grad if g_score is None else grad + along(g_score, score)  # type: ignore[no-any-return]

        own = slope(off.gather(1, index), None if g_off is None else g_off.gather(1, index))
        return slope(off, g_off).scatter_(1, index, -own).to(ctx.dtype), None, None
