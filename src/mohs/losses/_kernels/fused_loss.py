"""A loss on the Triton kernels, from logits to the reduced value, as one autograd function.

For the mean and the sum the gradient is written together with the value and scaled in the backward pass, unless the incoming
gradient is 1. For reduction="none", and for float16, whose gradient must include the loss scale before it is rounded,
the backward pass writes it. Second derivatives take the plain version.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mohs.losses._kernels.call import KernelCall
from mohs.losses._kernels.curves import Curve, curve_of
from mohs.losses._kernels.launch import launch_loss
from mohs.margin._choose import Plain, keeps_graph, needs_plain, plain_gradient
from mohs.margin._triton import flat, scale_, three, write_gradient

__all__ = ["curve_of", "fused_loss"]


def fused_loss(logits: Tensor, curve: Curve, plain: Plain, call: KernelCall) -> Tensor:
    """logits (N, K, ...) -> the reduced loss; `plain` computes the same without kernels."""
    return _FusedLoss.apply(logits, curve, plain, call)  # type: ignore[no-any-return]


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, curve: Curve, plain: Plain, call: KernelCall) -> Tensor:
        labels, weight, sample_weight, ignore_index, reduction, smoothing = call
        z, y = three(logits), flat(labels)
        if sample_weight is not None:
            sample_weight = flat(sample_weight)
        needed = ctx.needs_input_grad[0]
        now = needed and reduction != "none" and logits.dtype != torch.float16
        later = needed and not now
        grad = torch.empty_like(z) if now else None
        rows = launch_loss(
            z,
            y,
            curve,
            ignore_index=ignore_index,
            weight=weight,
            sample_weight=sample_weight,
            smoothing=smoothing,
            mean=reduction == "mean",
            total=reduction != "none",
            grad=grad,
            pull=later,
            save=later,
        )
        if later:
            ctx.save_for_backward(logits, y, rows.pull, rows.top, rows.total)
        elif now:
            ctx.save_for_backward(logits)
        ctx.plain, ctx.ignore_index, ctx.written = plain, ignore_index, grad
        return rows.value.view(labels.shape) if reduction == "none" else rows.value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits, *saved = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(ctx.plain, logits, grads[0]), None, None, None
        if saved:
            y, pull, top, total = saved
            grad = write_gradient(three(logits), y, top, total, pull, ctx.ignore_index, factor=grads[0], skip=True)
        elif keeps_graph():
            grad = ctx.written * grads[0]
        else:
            grad, ctx.written = ctx.written, None
            scale_(grad, grads[0])
        return grad if grad.dim() == logits.dim() else grad.view(logits.shape), None, None, None
