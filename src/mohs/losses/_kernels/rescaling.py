"""Gradient Rescaling normalized over the batch, on Triton kernels: margins, then all rows' weights, then the gradient.

    wᵢ = N softmax(β p^λ (1 − p))ᵢ, or N xᵢ/Σx for the identity          over the N rows that count

Few rows take one launch, whose last program takes the N numbers of the batch. More rows are divided into parts, whose sums are
taken first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.losses._kernels.add_up import MOST_SUMMED, add_up, can_sum, is_last, sum_of
from mohs.losses._kernels.call import KernelCall
from mohs.losses._kernels.curves import exact_exp, half_gradient
from mohs.losses._kernels.curves import parts as parts_of
from mohs.losses._kernels.loss_kernel import row_weights
from mohs.margin._choose import Plain, needs_plain, plain_gradient
from mohs.margin._launch import launch
from mohs.margin._triton import INF, flat, layout, margin_forward, margins, strides, three, width, write_gradient

FEW, PARTS = 4096, 64  # rows that one program takes; parts of more


class Rescaling(NamedTuple):
    """The hyper-parameters, as in `mohs.losses.gradient_rescaling`."""

    beta: float
    lam: float
    transform: str
    eps: float


def fused_rescaling(logits: Tensor, how: Rescaling, plain: Plain, call: KernelCall) -> Tensor:
    """logits (N, K, ...) -> the reduced loss; `plain` computes the same without kernels."""
    return _FusedRescaling.apply(logits, how, plain, call)  # type: ignore[no-any-return]


class _FusedRescaling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, how: Rescaling, plain: Plain, call: KernelCall) -> Tensor:
        labels, weight, sample_weight, ignore_index, reduction, _ = call
        z, y, apart = three(logits), flat(labels), reduction == "none"
        each = None if sample_weight is None else flat(sample_weight)
        rescale = _in_one_launch if len(y) <= FEW and layout(z.shape).programs <= MOST_SUMMED and can_sum(z) else _in_parts
        value, top, total, pull = rescale(z, y, weight, each, how, ignore_index, reduction)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, y, pull, top, total)
        ctx.plain, ctx.ignore_index = plain, ignore_index
        return value.view(labels.shape) if apart else value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits, y, pull, top, total = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(ctx.plain, logits, grads[0]), None, None, None
        grad = write_gradient(three(logits), y, top, total, pull, ctx.ignore_index, factor=grads[0], skip=True)
        return grad if grad.dim() == logits.dim() else grad.view(logits.shape), None, None, None


def _in_one_launch(
    z: Tensor, y: Tensor, weight: Tensor | None, each: Tensor | None, how: Rescaling, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """logits (N, K, D), labels (N · D,) -> value, top, total and ∂L/∂m."""
    grid, apart = layout(z.shape), reduction == "none"
    rows = grid.rows
    room = torch.empty(5 if apart else 4, rows, dtype=torch.float32, device=z.device)
    top, total, pull, m, *values = room.unbind()
    _, whole, counter = sum_of(z)
    value, steps = values[0] if apart else whole, strides(z)
    launch(
        margin_rescaling_kernel,
        grid.programs,
        grid.warps,
        (z, y, weight, each, counter, m, top, total, value, pull),
        (rows, grid.inner, *steps, ignore_index),
        (how.beta, how.lam, how.eps),
        (
            grid.classes,
            width(steps, steps),
            weight is not None,
            each is not None,
            how.transform == "exp",
            reduction == "mean",
            not apart,
            grid.tile,
            grid.block,
            grid.loop,
            256 if rows <= 256 else 1024,
        ),
        (z, y, weight, each, m, top, total, value, pull),
    )
    return value, top, total, pull


def _in_parts(
    z: Tensor, y: Tensor, weight: Tensor | None, each: Tensor | None, how: Rescaling, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same for any number of rows."""
    m, top, total = margin_forward(z, y, ignore_index)
    rows, apart = len(y), reduction == "none"
    integers, kind = (rows, z.shape[1], ignore_index), (weight is not None, each is not None, how.transform == "exp")
    left, pull, block = m.new_empty(4 * PARTS), torch.empty_like(m), 256 if rows <= 256 * PARTS else 1024
    tensors = (m, y, weight, each, left)
    launch(sums_kernel, PARTS, 8, tensors, integers, (how.beta, how.lam), (*kind, PARTS, block), (y, weight, each))
    whole = counter = None
    if apart:
        value = torch.empty_like(m)
    elif can_sum(z):
        value, whole, counter = sum_of(z)
    else:
        value = m.new_empty(PARTS)
    launch(
        rescaling_kernel,
        PARTS,
        8,
        (*tensors, value, whole, counter, pull),
        integers,
        (how.beta, how.lam, how.eps),
        (*kind, reduction == "mean", not apart, whole is not None, PARTS, block),
        (y, weight, each),
    )
    return value if apart else value.sum() if whole is None else whole, top, total, pull


@triton.jit
def share_of(m, kept, beta, lam, EXP: tl.constexpr):
    """β p^λ (1 − p); −inf (0 for the identity) in rows that do not count."""
    ce, _, _, n = parts_of(m)
    x = beta * tl.where(lam == 0.0, 1.0, exact_exp(-lam * ce)) * n
    return tl.where(kept, x, -INF if EXP else 0.0)


@triton.jit
def sums(
    m_ptr, y_ptr, weight_ptr, sample_ptr, first, stop, classes, ignore, beta, lam,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, EXP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Over rows from first to stop: the largest x, Σ exp(x − it) (or 0 and Σ x), the number that count, Σ of their weights."""
    top = tl.full((BLOCK,), -INF, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    weights = tl.zeros((BLOCK,), tl.float32)
    for begin in range(first, stop, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + row, mask=row < stop, other=ignore).to(tl.int64)
        kept = (row < stop) & (y != ignore)
        x = share_of(tl.load(m_ptr + row, mask=row < stop, other=0.0, cache_modifier=".cg"), kept, beta, lam, EXP)
        w, s = row_weights(y, row, kept & (y >= 0) & (y < classes), kept, weight_ptr, sample_ptr, WEIGHT, SAMPLE)
        weights += tl.where(kept, w * s, 0.0)
        count += tl.where(kept, 1.0, 0.0)
        if EXP:
            higher = tl.where((x > top) | (x != x), x, top)
            base = tl.where(higher == -INF, 0.0, higher)
            total = total * tl.exp(top - base) + tl.where(kept, tl.exp(x - base), 0.0)
            top = higher
        else:
            total += x
    base, whole = merged(top, total, EXP)
    return base, whole, tl.sum(count, 0), tl.sum(weights, 0)


@triton.jit
def merged(top, total, EXP: tl.constexpr):
    """The largest of several tops and Σ total exp(top − it); 0 and Σ total for the identity."""
    if not EXP:
        return 0.0, tl.sum(total, 0)
    highest = tl.max(top, 0)
    base = tl.where(highest == -INF, 0.0, highest)
    return base, tl.sum(tl.where(top == -INF, 0.0, total * tl.exp(top - base)), 0)


@triton.jit(do_not_specialize=["rows", "classes", "ignore"])
def sums_kernel(
    m_ptr, y_ptr, weight_ptr, sample_ptr, part_ptr, rows, classes, ignore, beta, lam,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, EXP: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`sums` of one of PARTS parts of the rows, side by side."""
    part = tl.program_id(0)
    step = tl.cdiv(rows, PARTS)
    first = part * step
    base, whole, count, weights = sums(
        m_ptr, y_ptr, weight_ptr, sample_ptr, first, tl.minimum(first + step, rows), classes, ignore, beta, lam,
        WEIGHT, SAMPLE, EXP, BLOCK,
    )  # fmt: skip
    tl.store(part_ptr + part, base)
    tl.store(part_ptr + PARTS + part, whole)
    tl.store(part_ptr + 2 * PARTS + part, count)
    tl.store(part_ptr + 3 * PARTS + part, weights)


@triton.jit
def rescaled(
    m_ptr, y_ptr, weight_ptr, sample_ptr, value_ptr, pull_ptr, begin, stop, base, whole, count, weights,
    classes, ignore, beta, lam, eps,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, EXP: tl.constexpr, MEAN: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write ∂L/∂m of the rows from begin to stop and, without SUM, their values; the sum of the values."""
    if not EXP:
        whole = tl.maximum(whole, 1.1754943508222875e-38)
    factor = count / whole
    each = 1.0 / weights if MEAN else 1.0
    result = tl.zeros((BLOCK,), tl.float32)
    for first in range(begin, stop, BLOCK):
        row = first + tl.arange(0, BLOCK)
        live = row < stop
        y = tl.load(y_ptr + row, mask=live, other=ignore).to(tl.int64)
        kept = live & (y != ignore)
        m = tl.load(m_ptr + row, mask=live, other=0.0, cache_modifier=".cg")
        x = share_of(m, kept, beta, lam, EXP)
        w, s = row_weights(y, row, kept & (y >= 0) & (y < classes), kept, weight_ptr, sample_ptr, WEIGHT, SAMPLE)
        weight = factor * (tl.exp(x - base) if EXP else x) * w * s * each
        ce, _, _, n = parts_of(m)
        half, slope = half_gradient(m, ce, n, eps)
        value = tl.where(kept, weight * half, 0.0 * each)
        result += value
        tl.store(pull_ptr + row, tl.where(kept, weight * slope, 0.0), mask=live)
        if not SUM:
            tl.store(value_ptr + row, value, mask=live)
    return tl.sum(result, 0)


@triton.jit(do_not_specialize=["rows", "classes", "ignore"])
def rescaling_kernel(
    m_ptr, y_ptr, weight_ptr, sample_ptr, part_ptr, value_ptr, sum_ptr, counter_ptr, pull_ptr,
    rows, classes, ignore, beta, lam, eps,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, EXP: tl.constexpr, MEAN: tl.constexpr, SUM: tl.constexpr, WHOLE: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """∂L/∂m of one of PARTS parts of the rows, and their values; with SUM the sum of these, with WHOLE that of all parts."""
    every = tl.arange(0, PARTS)
    base, whole = merged(tl.load(part_ptr + every), tl.load(part_ptr + PARTS + every), EXP)
    count = tl.sum(tl.load(part_ptr + 2 * PARTS + every), 0)
    weights = tl.sum(tl.load(part_ptr + 3 * PARTS + every), 0)
    step = tl.cdiv(rows, PARTS)
    begin = tl.program_id(0) * step
    result = rescaled(
        m_ptr, y_ptr, weight_ptr, sample_ptr, value_ptr, pull_ptr, begin, tl.minimum(begin + step, rows),
        base, whole, count, weights, classes, ignore, beta, lam, eps, WEIGHT, SAMPLE, EXP, MEAN, SUM, BLOCK,
    )  # fmt: skip
    if WHOLE:
        add_up(result, value_ptr, sum_ptr, counter_ptr)
    elif SUM:
        tl.store(value_ptr + tl.program_id(0), result)


@triton.jit(do_not_specialize=["rows", "ignore"])
def margin_rescaling_kernel(
    z_ptr, y_ptr, weight_ptr, sample_ptr, counter_ptr, m_ptr, top_ptr, total_ptr, value_ptr, pull_ptr,
    rows, inner, stride_n, stride_k, stride_d, ignore, beta, lam, eps,
    classes: tl.constexpr, WIDTH: tl.constexpr, WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, EXP: tl.constexpr,
    MEAN: tl.constexpr, SUM: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The margins of a tile of rows; in the last program ∂L/∂m of all rows, and their values or with SUM the sum of these."""
    margins(
        z_ptr, y_ptr, m_ptr, top_ptr, total_ptr, rows, inner, stride_n, stride_k, stride_d, ignore,
        tl.float32, classes, WIDTH, TILE, BLOCK, LOOP,
    )  # fmt: skip
    if is_last(counter_ptr):
        base, whole, count, weights = sums(
            m_ptr, y_ptr, weight_ptr, sample_ptr, 0, rows, classes, ignore, beta, lam, WEIGHT, SAMPLE, EXP, STEP
        )
        result = rescaled(
            m_ptr, y_ptr, weight_ptr, sample_ptr, value_ptr, pull_ptr, 0, rows,
            base, whole, count, weights, classes, ignore, beta, lam, eps, WEIGHT, SAMPLE, EXP, MEAN, SUM, STEP,
        )  # fmt: skip
        if SUM:
            tl.store(value_ptr, result)
