"""A loss on the Triton kernels, from logits to the reduced value, as one autograd function.

For the mean and the sum the gradient is written together with the value and scaled in the backward pass, unless the incoming
gradient is 1. For reduction="none", and for float16, whose gradient must include the loss scale before it is rounded,
the backward pass writes it. Second derivatives take the plain version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mohs.losses._kernels.curves import Curve
from mohs.losses._kernels.launch import launch_loss, weight_sum
from mohs.margin._choose import SHORT, keeps_graph
from mohs.margin._triton import flat, scale_, three, write_gradient

Plain = Callable[[Tensor], Tensor]


def supports(logits: Tensor, labels: Tensor, reduction: str, smoothing: float, *weights: Tensor | None) -> bool:
    """Whether the kernel takes this call: at least one row, no gradient to weights, no smoothing of a deferred gradient."""
    deferred = reduction == "none" or logits.dtype == torch.float16
    learned = any(w is not None and w.requires_grad for w in weights)
    return logits.dtype in SHORT and labels.numel() > 0 and not learned and not (smoothing and deferred)


def fused_loss(
    logits: Tensor,
    labels: Tensor,
    curve: Curve,
    plain: Plain,
    *,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """logits (N, K, ...), labels and sample_weight (N, ...) -> the reduced loss; plain: logits -> the same, without kernels."""
    return _FusedLoss.apply(  # type: ignore[no-any-return]
        logits, labels, weight, sample_weight, curve, ignore_index, reduction, smoothing, plain
    )


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        sample_weight: Tensor | None,
        curve: Curve,
        ignore_index: int,
        reduction: str,
        smoothing: float,
        plain: Plain,
    ) -> Tensor:
        z, y = three(logits), flat(labels)
        sample_weight = None if sample_weight is None else flat(sample_weight)
        needed = ctx.needs_input_grad[0]
        now = needed and reduction != "none" and logits.dtype != torch.float16
        grad = torch.empty_like(z) if now else None
        later = needed and not now
        options = {"ignore_index": ignore_index, "weight": weight, "sample_weight": sample_weight}
        denominator = weight_sum(y, z.shape[1], **options) if later and reduction == "mean" else None  # type: ignore[arg-type]
        rows = launch_loss(
            z, y, curve, smoothing=smoothing, mean=reduction == "mean", denominator=denominator,
            add_up=reduction != "none", grad=grad, pull=later, save=later, **options,  # type: ignore[arg-type]
        )  # fmt: skip
        ctx.plain, ctx.ignore_index, ctx.now, ctx.written = plain, ignore_index, now, grad
        if needed:
            ctx.save_for_backward(logits, y, *(rows[1:4] if later else ()))
        if reduction == "none":
            return rows.value.view(labels.shape)
        return rows.value if rows.value.dim() == 0 else rows.value.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, *saved = ctx.saved_tensors
        nothing = (None,) * 8
        if torch.is_grad_enabled():  # create_graph=True
            return *torch.autograd.grad(ctx.plain(logits), logits, grads[0], create_graph=True), *nothing
        if ctx.now:
            if keeps_graph():
                return (ctx.written * grads[0]).view(logits.shape), *nothing
            grad, ctx.written = ctx.written, None
            return scale_(grad, grads[0]).view(logits.shape), *nothing
        pull, top, total = saved
        z = three(logits)
        own = pull * grads[0].reshape(-1)
        grad = write_gradient(z, labels, top, total, own, ctx.ignore_index, skip=True, out=torch.empty_like(z))
        return grad.view(logits.shape), *nothing
