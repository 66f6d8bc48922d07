"""A loss that takes many operations on every logit, over blocks of rows that fit the cache.

The value of a row depends on that row alone, so its gradient is known once the value is: each block is differentiated at once
and only the gradient is kept. This needs two (N, K) arrays instead of one for each operation, and reads them from the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mohs.margin import full_precision
from mohs.margin._choose import keeps_graph, needs_plain, plain_gradient
from mohs.margin._quick import on_cpu

ENTRIES = 1 << 17  # entries of a block
Rows = Callable[..., Tensor]  # (logits (N, K, ...), other arrays (N, ...)) -> values (N, ...)


def by_row_blocks(function: Rows, logits: Tensor, *others: Tensor) -> Tensor:
    """function(logits, *others), where row i of the result depends on row i of the arguments alone."""
    small = logits.numel() <= ENTRIES
    if small or not on_cpu(logits, logits) or any(other.requires_grad for other in others) or not logits.requires_grad:
        return function(logits, *others)
    return _RowBlocks.apply(logits, function, *others)  # type: ignore[no-any-return]


class _RowBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, function: Rows, *others: Tensor) -> Tensor:
        rows = max(1, ENTRIES * len(logits) // logits.numel())
        gradient = torch.empty_like(logits, dtype=full_precision(logits.dtype))
        values = []
        for z, g, *rest in zip(*(torch.split(x, rows) for x in (logits, gradient, *others)), strict=True):
            with torch.enable_grad():
                leaf = z.detach().to(gradient.dtype).requires_grad_()
                value = function(leaf, *rest)
                g.copy_(torch.autograd.grad(value.sum(), leaf)[0])
            values.append(value.detach())
        ctx.save_for_backward(logits, *others)
        ctx.function, ctx.gradient = function, gradient
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits, *others = ctx.saved_tensors
        none = [None] * (1 + len(others))
        if needs_plain(grads[0]):
            return plain_gradient(lambda z: ctx.function(z, *others), logits, grads[0]), *none
        g = grads[0].unsqueeze(1)
        if keeps_graph():
            grad = ctx.gradient * g
        else:
            grad, ctx.gradient = ctx.gradient.mul_(g), None
        return grad.to(logits.dtype), *none
