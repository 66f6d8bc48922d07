"""Gradient Rescaling normalized over the batch, on Triton kernels: margins, then all rows' weights, then the gradient.

    wᵢ = N softmax(β p^λ (1 − p))ᵢ, or N xᵢ/Σx for the identity          over the N rows that count

For few rows, one launch omits the normalization, a factor, by which the backward pass multiplies either a gradient already
written in float32, or the ∂L/∂m with which it writes the gradient. For more rows, the margins come first, then the weights over
parts of the rows, then the gradient.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.losses._kernels.add_up import MOST, MOST_SUMMED, READY, add_up, all_here
from mohs.losses._kernels.curves import NUMBERS, Curve, exact_exp, half_gradient
from mohs.losses._kernels.curves import parts as parts_of
from mohs.losses._kernels.fused_loss import fused_loss
from mohs.losses._kernels.loss_kernel import row_weights
from mohs.losses._kernels.over_batch import PARTS, Request, over_batch
from mohs.margin import NO_LABEL
from mohs.margin._choose import Plain
from mohs.margin._launch import Launcher
from mohs.margin._triton import INF

FEW = MOST_SUMMED  # maximum number of rows for which one launch sums over the batch
STEEP = 40.0  # largest exponent whose exponential may be omitted at first without loss of digits in float32


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
    """The curve whose weights are exp(x − the highest), or x, scaled up because it may be near the smallest number."""
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
    if 0 < labels.numel() <= FEW and reduction != "none" and how.highest <= STEEP:
        options = (weight, ignore_index, reduction, 0.0, sample_weight)
        later = logits.dtype != torch.float32
        return fused_loss(_curve(how), logits, labels, plain, *options, normal=True, later=later)
    values, floats = _by_exp if how.transform == "exp" else _by_identity, (how.beta, how.lam, how.eps)
    return over_batch(values, logits, labels, lambda _: plain, floats, weight, ignore_index, reduction, sample_weight)


def _by_exp(request: Request, z: Tensor) -> Launcher:
    return _values(request, exp=True)


def _by_identity(request: Request, z: Tensor) -> Launcher:
    return _values(request, exp=False)


def _values(request: Request, *, exp: bool) -> Launcher:
    rows, classes, ignore_index, *kind = request
    block = 256 if rows <= 256 * PARTS else 1024
    return Launcher(rescaling_kernel, PARTS, 8, (rows, classes, ignore_index), (*kind, exp, PARTS, block))


@triton.jit
def share_of(m, kept, beta, lam, EXP: tl.constexpr):
    """β p^λ (1 − p); −inf (0 for the identity) in ignored rows."""
    ce, _, _, n = parts_of(m)
    x = beta * tl.where(lam == 0.0, 1.0, exact_exp(-lam * ce)) * n
    return tl.where(kept, x, -INF if EXP else 0.0)


@triton.jit
def sums(
    part, m_ptr, y_ptr, weight_ptr, sample_ptr, rows, classes, ignore, beta, lam,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, EXP: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Over a part of the rows: the largest x, Σ exp(x − it) (or 0 and Σ x), the number that count, Σ of their weights."""
    step = tl.cdiv(rows, PARTS)
    first = part * step
    stop = tl.minimum(first + step, rows)
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
def rescaling_kernel(
    m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, pull_ptr, value_ptr, parts_ptr, sum_ptr, counter_ptr,
    rows, classes, ignore, beta, lam, eps,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, MEAN: tl.constexpr, APART: tl.constexpr, EXP: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """∂L/∂m of one of PARTS parts of the rows, and with APART their values, otherwise the sum of all.

    Each program sums its part and waits for the others. One that has waited too long sums all parts itself.
    """
    part, every = tl.program_id(0), tl.arange(0, PARTS)
    own_top, own_total, own_count, own_weights = sums(
        part, m_ptr, y_ptr, weight_ptr, sample_ptr, rows, classes, ignore, beta, lam, WEIGHT, SAMPLE, EXP, PARTS, BLOCK
    )  # fmt: skip
    top_ptr = parts_ptr + 2 * MOST
    total_ptr, count_ptr, weights_ptr = top_ptr + PARTS, top_ptr + 2 * PARTS, top_ptr + 3 * PARTS
    tl.store(top_ptr + part, own_top)
    tl.store(total_ptr + part, own_total)
    tl.store(count_ptr + part, own_count)
    tl.store(weights_ptr + part, own_weights)
    top = tl.zeros((PARTS,), tl.float32)
    total = tl.zeros((PARTS,), tl.float32)
    count = tl.zeros((PARTS,), tl.float32)
    weights = tl.zeros((PARTS,), tl.float32)
    if all_here(counter_ptr + READY, PARTS):
        top = tl.load(top_ptr + every, cache_modifier=".cg")
        total = tl.load(total_ptr + every, cache_modifier=".cg")
        count = tl.load(count_ptr + every, cache_modifier=".cg")
        weights = tl.load(weights_ptr + every, cache_modifier=".cg")
    else:
        for other in range(PARTS):
            one, two, three, four = sums(
                other, m_ptr, y_ptr, weight_ptr, sample_ptr, rows, classes, ignore, beta, lam, WEIGHT, SAMPLE, EXP, PARTS, BLOCK
            )  # fmt: skip
            top, total = tl.where(every == other, one, top), tl.where(every == other, two, total)
            count, weights = tl.where(every == other, three, count), tl.where(every == other, four, weights)
    base, whole = merged(top, total, EXP)
    if not EXP:
        whole = tl.maximum(whole, 1.1754943508222875e-38)
    factor = tl.sum(count, 0) / whole
    each = 1.0 / tl.sum(weights, 0) if MEAN else 1.0
    result = tl.zeros((BLOCK,), tl.float32)
    step = tl.cdiv(rows, PARTS)
    begin = part * step
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
        if APART:
            tl.store(value_ptr + row, value, mask=live)
    add_up(tl.sum(result, 0), parts_ptr, sum_ptr, counter_ptr)
