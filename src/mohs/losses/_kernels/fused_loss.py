"""A loss on the Triton kernels, from logits to the reduced value, as one autograd function.

For the mean and the sum the gradient is written together with the value and scaled in the backward pass, unless the incoming
gradient is 1. For reduction="none", and for float16, whose gradient must include the loss scale before it is rounded,
the backward pass writes it. Second derivatives take the plain version.

A small batch takes less time to compute than to launch from Python. Everything that calls of one kind share, from the validation
of their arguments to the compiled kernel, is therefore computed once and cached.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mohs.losses._kernels.call import UNKNOWN, admits, kind_of, remember
from mohs.losses._kernels.curves import Curve, curve_of
from mohs.losses._kernels.launch import Plan, launch_loss, loss_plan
from mohs.losses._reduction import spread_sample_weight
from mohs.margin import check_labels
from mohs.margin._choose import INTERPRETED, Plain, apply_eagerly, keeps_graph, needs_plain, plain_gradient
from mohs.margin._triton import factor_launcher, flat, scale_, scale_launcher, three, write_gradient

__all__ = ["curve_of", "fused_loss"]

_plans: dict[Any, Plan | None] = {}  # None: not for the kernels


def fused_loss(
    curve: Curve,
    logits: Tensor,
    labels: Tensor,
    plain: Plain,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    sample_weight: Tensor | None,
    *,
    normal: bool = False,
    later: bool = False,
    level: Tensor | None = None,
) -> Tensor | None:
    """The reduced loss, or None if the kernels take the logits but not such a call.

    Args:
        curve: From `curve_of`.
        logits: (N, K, ...).
        labels: (N, ...).
        plain: logits -> the same loss without kernels.
        weight, ignore_index, reduction, label_smoothing, sample_weight: As for every loss.
        normal: Normalize the weights of Gradient Rescaling, as in `loss_plan`, for a mean or sum.
        later: With `normal`, write the gradient in the backward pass.
        level: λ of self-paced learning, on the device.
    """
    needed = logits.requires_grad and torch.is_grad_enabled()
    each = sample_weight
    kind = kind_of(logits, labels, weight, each)
    key = (curve.number, *kind, ignore_index, reduction, label_smoothing != 0, needed, normal, later)
    plan: Plan | None = _plans.get(key, UNKNOWN)
    if plan is UNKNOWN:
        taken = admits(logits, labels, weight, ignore_index, reduction, each)
        if label_smoothing:  # of cross-entropy alone, which is linear in log p
            taken = taken and curve.number == 0 and reduction != "none" and logits.dtype != torch.float16
        plan = remember(_plans, key, _plan(curve, logits, labels, weight, each, key) if taken else None)
    elif INTERPRETED:
        check_labels(logits, labels, ignore_index=ignore_index)  # on a CPU their range is validated at every call
    if plan is None:
        return None
    if each is not None:
        each = flat(spread_sample_weight(each, labels))
    y = labels if labels.dim() == 1 and labels.is_contiguous() else flat(labels)
    floats = (label_smoothing, 0.0, *curve.parameters)
    if not needed:
        value, _ = plan.run(three(logits), y, weight, each, floats, None, level=level)
        return value.view(labels.shape) if reduction == "none" else value
    if later:
        return apply_eagerly(_Normalized, logits, (plan, y, weight, each, floats, plain))  # type: ignore[no-any-return]
    if reduction == "none" or logits.dtype == torch.float16:
        call = (labels, y, curve, weight, each, ignore_index, reduction, label_smoothing, level, plain)
        return apply_eagerly(_LaterGradient, logits, call)  # type: ignore[no-any-return]
    return apply_eagerly(_Gradient, logits, (plan, y, weight, each, floats, level, plain))  # type: ignore[no-any-return]


def _plan(curve: Curve, logits: Tensor, labels: Tensor, weight: Tensor | None, each: Tensor | None, key: Any) -> Plan:
    """The plan of a call that writes value and gradient at once, or, without a gradient, the value."""
    *_, ignore_index, reduction, smooth, needed, normal, later = key
    z = three(logits)
    plan = loss_plan(
        z.shape,
        z.stride(),
        torch.empty_like(z, device="meta").stride() if needed and not later else None,
        (logits.dtype, labels.dtype, *(None if t is None else t.dtype for t in (weight, each)), None, None),
        ignore_index,
        curve.number,
        smooth=smooth,
        mean=reduction == "mean",
        total=reduction != "none",
        normal=normal,
        pull=needed and later,
        save=needed and later,
    )
    if later:
        return plan._replace(after=factor_launcher(z.shape, z.stride(), z.dtype, labels.dtype, ignore_index, factors=2))
    return plan._replace(after=scale_launcher(z.numel(), z.dtype, normal)) if needed else plan


class _Gradient(torch.autograd.Function):
    """The gradient is written in the forward pass and scaled in the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: tuple[Any, ...]) -> Tensor:
        plan, y, weight, each, floats, level, plain = call
        z = three(logits)
        grad = torch.empty_like(z)
        value, ctx.factor = plan.run(z, y, weight, each, floats, grad, level=level)
        ctx.save_for_backward(logits)
        ctx.scale, ctx.plain = plan.after, plain
        ctx.written = grad if z is logits else grad.view(logits.shape)
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (g,), grad = grads, ctx.written
        if grad is None or needs_plain(g):
            return plain_gradient(ctx.plain, ctx.saved_tensors[0], g), None
        if keeps_graph():
            return grad * (g if ctx.factor is None else g * ctx.factor), None
        ctx.written = None
        scale_(grad, g, ctx.factor, ctx.scale)
        return grad, None


class LaterGradient(torch.autograd.Function):
    """Base of the functions whose forward pass saves logits, labels, ∂L/∂m, top and total, and whose backward pass writes ∂z."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits, y, pull, top, total = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(ctx.plain, logits, grads[0]), None
        grad = write_gradient(three(logits), y, top, total, pull, ctx.ignore_index, factor=grads[0], skip=True)
        return grad if grad.dim() == logits.dim() else grad.view(logits.shape), None


class _LaterGradient(LaterGradient):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: tuple[Any, ...]) -> Tensor:
        labels, y, curve, weight, each, ignore_index, reduction, smoothing, level, plain = call
        rows = launch_loss(
            three(logits),
            y,
            curve,
            ignore_index=ignore_index,
            weight=weight,
            sample_weight=each,
            smoothing=smoothing,
            mean=reduction == "mean",
            total=reduction != "none",
            level=level,
            pull=True,
            save=True,
        )
        ctx.save_for_backward(logits, y, rows.pull, rows.top, rows.total)
        ctx.plain, ctx.ignore_index = plain, ignore_index
        return rows.value.view(labels.shape) if reduction == "none" else rows.value


class _Normalized(torch.autograd.Function):
    """Gradient Rescaling normalized over the batch: ∂L/∂m lacks a factor, which the launch returns with the value."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: tuple[Any, ...]) -> Tensor:
        plan, y, weight, each, floats, ctx.plain = call
        room = -(-plan.rows // 32) * 32  # for each at an aligned address
        pull, top, total = torch.empty((3, room), dtype=torch.float32, device=logits.device).unbind(0)
        value, factor = plan.run(three(logits), y, weight, each, floats, None, left=(pull, top, total, None, None, None, None))
        ctx.save_for_backward(logits, y)
        ctx.left, ctx.write = (top, total, pull, factor), plan.after
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits, y = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(ctx.plain, logits, grads[0]), None
        z, (top, total, pull, factor) = three(logits), ctx.left
        grad = torch.empty_like(z)
        ctx.write((z, y, top, total, pull, pull, grads[0], factor, grad))
        return grad if grad.dim() == logits.dim() else grad.view(logits.shape), None
