"""Gradient Rescaling normalized over the batch, on Triton kernels: margins, then all rows' weights, then the gradient.

    wᵢ = N softmax(β p^λ (1 − p))ᵢ, or N xᵢ/Σx for the identity          over the N rows that count

Where one launch can sum over the batch, it leaves out the normalization, a factor: the backward pass multiplies by it, a gradient
already written for few rows of float32, and otherwise the ∂L/∂m with which it writes the gradient. Elsewhere the margins come
first, then the weights, of parts of the rows, then the gradient.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.losses._kernels.add_up import MOST_SUMMED, add_up, can_sum, sum_of
from mohs.losses._kernels.call import admits
from mohs.losses._kernels.curves import NUMBERS, Curve, exact_exp, half_gradient
from mohs.losses._kernels.curves import parts as parts_of
from mohs.losses._kernels.fused_loss import LaterGradient, fused_loss
from mohs.losses._kernels.launch import adds_up
from mohs.losses._kernels.loss_kernel import row_weights
from mohs.losses._reduction import spread_sample_weight
from mohs.margin import NO_LABEL
from mohs.margin._choose import Plain, apply_eagerly
from mohs.margin._launch import Launcher
from mohs.margin._triton import INF, flat, margin_forward, three

FEW, PARTS = MOST_SUMMED, 64  # rows whose gradient is written at once; parts of more
STEEP = 40.0  # largest exponent with whose exponential, left out at first, float32 still has all digits


class Rescaling(NamedTuple):
    """The hyper-parameters, as in `mohs.losses.gradient_rescaling`."""

    beta: float
    lam: float
    transform: str
    eps: float

    @property
    def highest(self) -> float:
        """The largest β p^λ (1 − p) of any p."""
        return _highest(self.beta, self.lam)


@lru_cache(256)
def _highest(beta: float, lam: float) -> float:
    return float(beta * lam**lam / (1 + lam) ** (1 + lam))


@lru_cache(256)
def _curve(how: Rescaling) -> Curve:
    """The curve whose weights are exp(x − the highest), or x, which is scaled up, for it may be near the smallest number."""
    beta, base = (how.beta, how.highest) if how.transform == "exp" else (how.beta * 2.0**40, -1.0)
    return Curve(NUMBERS["gradient_rescaling"], (beta, how.lam, base, how.eps))


def fused_rescaling(
    how: Rescaling,
    logits: Tensor,
    labels: Tensor,
    plain: Plain,
    *,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor | None:
    """The reduced loss, or None where the kernels do not take such a call; the arguments as in `fused_loss`."""
    rows = labels.numel()
    at_once = rows <= FEW and logits.dtype == torch.float32
    if (
        (at_once or (rows and adds_up(rows, logits.shape[1])))
        and reduction != "none"
        and how.highest <= STEEP
        and can_sum(logits)
    ):
        options = (weight, ignore_index, reduction, 0.0, sample_weight)
        return fused_loss(_curve(how), logits, labels, plain, *options, normal=True, later=not at_once)
    if not admits(logits, labels, weight, ignore_index, reduction, sample_weight):
        return None
    each = None if sample_weight is None else flat(spread_sample_weight(sample_weight, labels))
    call = (labels, how, weight, each, ignore_index, reduction, plain)
    return apply_eagerly(_ManyRows, logits, call)  # type: ignore[no-any-return]


class _ManyRows(LaterGradient):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: tuple[Any, ...]) -> Tensor:
        labels, how, weight, each, ignore_index, reduction, plain = call
        y = labels if labels.dim() == 1 and labels.is_contiguous() else flat(labels)
        value, pull, top, total = _in_parts(three(logits), y, weight, each, how, ignore_index, reduction)
        ctx.plain, ctx.ignore_index = plain, ignore_index
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, y, pull, top, total)
        return value.view(labels.shape) if reduction == "none" else value


def _in_parts(
    z: Tensor, y: Tensor, weight: Tensor | None, each: Tensor | None, how: Rescaling, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """logits (N, K, D), labels (N · D,) -> value, ∂L/∂m of each row, and what `margin_forward` gives to write the gradient."""
    rows, classes, exp = y.shape[0], z.shape[1], how.transform == "exp"
    width = max(4 * PARTS, -(-rows // 32) * 32)  # room for each at an aligned address
    m, top, total, pull, left = torch.empty((5, width), dtype=torch.float32, device=z.device).unbind(0)
    margin_forward(z, y, ignore_index, out=(m, top, total))
    apart, sums = reduction == "none", can_sum(z)
    dtypes = (y.dtype, *(None if t is None else t.dtype for t in (weight, each)))
    add, rescale = _plans(rows, classes, ignore_index, dtypes, exp, reduction == "mean", apart, sums)
    tensors = (m, y, weight, each, left)
    add(tensors, (how.beta, how.lam))
    whole = counter = None
    if apart:
        value = m.new_empty(rows)
    elif sums:
        value, whole, counter = sum_of(z)
    else:
        value = m.new_empty(PARTS)
    rescale((*tensors, value, whole, counter, pull), (how.beta, how.lam, how.eps))
    return value if apart else value.sum() if whole is None else whole, pull, top, total


@lru_cache(1024)
def _plans(
    rows: int,
    classes: int,
    ignore_index: int,
    dtypes: tuple[torch.dtype | None, ...],
    exp: bool,
    mean: bool,
    apart: bool,
    sums: bool,
) -> tuple[Launcher, Launcher]:
    """The launches of `sums_kernel` and `rescaling_kernel`; dtypes: of labels, weight and sample_weight."""
    integers, kind = (rows, classes, ignore_index), (dtypes[1] is not None, dtypes[2] is not None, exp)
    block = 256 if rows <= 256 * PARTS else 1024
    add = Launcher(sums_kernel, PARTS, 8, integers, (*kind, PARTS, block))
    return add, Launcher(rescaling_kernel, PARTS, 8, integers, (*kind, mean, not apart, sums and not apart, PARTS, block))


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
        x = share_of(tl.load(m_ptr + row, mask=row < stop, other=0.0), kept, beta, lam, EXP)
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
    if not EXP:
        whole = tl.maximum(whole, 1.1754943508222875e-38)
    factor = count / whole
    each = 1.0 / weights if MEAN else 1.0
    result = tl.zeros((BLOCK,), tl.float32)
    step = tl.cdiv(rows, PARTS)
    begin = tl.program_id(0) * step
    stop = tl.minimum(begin + step, rows)
    for first in range(begin, stop, BLOCK):
        row = first + tl.arange(0, BLOCK)
        live = row < stop
        y = tl.load(y_ptr + row, mask=live, other=ignore).to(tl.int64)
        kept = live & (y != ignore)
        m = tl.load(m_ptr + row, mask=live, other=0.0)
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
    if WHOLE:
        add_up(tl.sum(result, 0), value_ptr, sum_ptr, counter_ptr)
    elif SUM:
        tl.store(value_ptr + tl.program_id(0), tl.sum(result, 0))
