"""Self-paced learning on Triton kernels: the margins, the batch's percentile of the losses and with it λ, then the gradient.

The percentile is found without a sort, and without waiting for the device. Losses are compared by −m, of which softplus is
monotone, as integers of the same order. Of few rows, one program halves the range of these integers until one is left. Of
more, each of four launches counts the next 8 bits, of parts of the rows side by side. With λ at hand the same launch takes the
loss of every row from its margin; the backward pass writes the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.losses._kernels.add_up import add_up, can_sum, sum_of
from mohs.losses._kernels.call import admits
from mohs.losses._kernels.curves import SELF_PACED, Curve, curve, parts
from mohs.losses._kernels.fused_loss import LaterGradient, fused_loss
from mohs.losses._kernels.loss_kernel import row_weights
from mohs.losses._reduction import spread_sample_weight
from mohs.margin import NO_LABEL
from mohs.margin._choose import Plain, apply_eagerly
from mohs.margin._launch import Launcher
from mohs.margin._triton import INF, flat, margin_forward, three

HELD = 8192  # rows that one program holds
PARTS = 64  # parts of more
COUNTS = 4 * PARTS * 256  # of the 8 bits of each round, in each part; then the least integer above, and the state of each round
LINEAR = {"hard": 0.0, "linear": 1.0}
PACED = tl.constexpr(SELF_PACED)


def paced_loss(
    threshold: Tensor,
    kind: str,
    logits: Tensor,
    labels: Tensor,
    plain: Callable[[Tensor], Plain],
    *,
    moves: tuple[float, float] | None,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor | None:
    """The reduced loss, or None where the kernels do not take such a call, though they take the logits.

    Args:
        threshold: λ, to which the batch is added first if it moves.
        kind: "hard" or "linear".
        logits: (N, K, ...).
        labels: (N, ...).
        plain: λ for these logits -> a function that computes the same loss without kernels.
        moves: Percentile and decay, if λ moves.
        weight, ignore_index, reduction, label_smoothing, sample_weight: As for every loss.
    """
    if not admits(logits, labels, weight, ignore_index, reduction, sample_weight) or label_smoothing:
        return None
    if threshold.device != logits.device or threshold.dtype != torch.float32:
        return None
    if moves is None:
        options = (weight, ignore_index, reduction, 0.0, sample_weight)
        same = Curve(SELF_PACED, (0.0, LINEAR[kind], 0.0, 0.0))
        return fused_loss(same, logits, labels, plain(threshold), *options, level=threshold)
    each = None if sample_weight is None else flat(spread_sample_weight(sample_weight, labels))
    call = (labels, threshold, (*moves, LINEAR[kind]), plain, weight, each, ignore_index, reduction)
    return apply_eagerly(_Paced, logits, call)  # type: ignore[no-any-return]


class _Paced(LaterGradient):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: tuple[Any, ...]) -> Tensor:
        labels, threshold, floats, plain, weight, each, ignore_index, reduction = call
        z, y = three(logits), labels if labels.dim() == 1 and labels.is_contiguous() else flat(labels)
        rows, classes, apart = y.shape[0], z.shape[1], reduction == "none"
        room = max(4 * PARTS, -(-rows // 32) * 32)  # for each at an aligned address
        m, top, total, pull, level = torch.empty((5, room), dtype=torch.float32, device=z.device).unbind(0)
        margin_forward(z, y, ignore_index, out=(m, top, total))
        dtypes = (y.dtype, None if weight is None else weight.dtype, None if each is None else each.dtype)
        sums = can_sum(z)
        *counts, last = _plans(rows, classes, ignore_index, dtypes, reduction == "mean", apart, sums, rows <= HELD)
        value, whole, counter = m, None, None
        if apart:
            value = m.new_empty(rows)
        elif sums:
            value, whole, counter = sum_of(z)
        elif counts:
            value = m.new_empty(PARTS)
        else:
            whole = m.new_empty(())
        given = (m, y, weight, each, threshold, level)
        if counts:
            number = torch.empty(COUNTS + 2 * PARTS, dtype=torch.int32, device=z.device)
            for count in counts:
                count((*given, number), floats[:1])
            last((*given, number, value, whole, counter, pull), floats)
        else:
            last((*given, value if apart else whole, pull), floats)
        ctx.plain, ctx.ignore_index = lambda z: plain(level[0])(z), ignore_index
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, y, pull, top, total)
        return value.view(labels.shape) if apart else value.sum() if whole is None else whole


@lru_cache(1024)
def _plans(
    rows: int,
    classes: int,
    ignore_index: int,
    dtypes: tuple[torch.dtype | None, ...],
    mean: bool,
    apart: bool,
    sums: bool,
    held: bool,
) -> tuple[Launcher, ...]:
    """The launches between margin and gradient; dtypes: of labels, weight and sample_weight."""
    integers, kind = (rows, classes, ignore_index), (dtypes[1] is not None, dtypes[2] is not None)
    if held:
        block = triton.next_power_of_2(rows)
        return (Launcher(few_kernel, 1, 4 if block <= 1024 else 32, integers, (*kind, mean, apart, block)),)
    block = 1024
    counts = [Launcher(count_kernel, PARTS, 8, integers, (*kind, step, PARTS, block)) for step in range(4)]
    return *counts, Launcher(many_kernel, PARTS, 8, integers, (*kind, mean, apart, sums and not apart, PARTS, block))


@triton.jit
def ordered(m_ptr, y_ptr, row, stop, ignore):
    """−m as integers of the same order, and which rows count: those with a label and a number."""
    y = tl.load(y_ptr + row, mask=row < stop, other=ignore).to(tl.int64)
    m = tl.load(m_ptr + row, mask=row < stop, other=0.0)
    bits = (0.0 - m).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits), (row < stop) & (y != ignore) & (m == m)


@triton.jit
def loss_at(key):
    """softplus of a number given by its integer."""
    bits = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    ce, _, _, _ = parts(-bits.to(tl.float32, bitcast=True))
    return ce


@triton.jit
def moved(old, number, share, lower, upper, decay):
    """λ after a batch of `number` losses, whose percentile lies by this share between two of them."""
    q = lower + share * (upper - lower)
    new = tl.where(old == INF, q, decay * old + (1.0 - decay) * q)
    return tl.where((number > 0) & (q - q == 0.0), new, old)


@triton.jit
def paced(m, y, row, live, weight_ptr, sample_ptr, classes, ignore, level, linear, WEIGHT: tl.constexpr, SAMPLE: tl.constexpr):
    """Of each row: w s ℓ(m), its slope, and w s; 0 in ignored rows."""
    kept = live & (y != ignore)
    w, s = row_weights(y, row, kept & (y >= 0) & (y < classes), kept, weight_ptr, sample_ptr, WEIGHT, SAMPLE)
    value, slope = curve(m, level, linear, 0.0, 0.0, PACED)
    return tl.where(kept, w * s * value, 0.0), tl.where(kept, w * s * slope, 0.0), tl.where(kept, w * s, 0.0)


@triton.jit(do_not_specialize=["rows", "classes", "ignore"])
def few_kernel(
    m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, value_ptr, pull_ptr,
    rows, classes, ignore, percentile, decay, linear,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, MEAN: tl.constexpr, APART: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """λ after a batch of margins, as `next_threshold` has it, ∂L/∂m of each row, and their values or the sum. One program."""
    row = tl.arange(0, BLOCK)
    key, counts = ordered(m_ptr, y_ptr, row, rows, ignore)
    number = tl.sum(counts.to(tl.int32), 0)
    place = tl.maximum(percentile * (number - 1).to(tl.float32), 0.0)
    below = tl.floor(place)
    rank = below.to(tl.int32) + 1
    low = tl.full((), -0x80000000, tl.int64)
    high = tl.full((), 0x7FFFFFFF, tl.int64)
    for _ in range(32):
        middle = (low + high) >> 1
        enough = tl.sum((counts & (key <= middle.to(tl.int32))).to(tl.int32), 0) >= rank
        low, high = tl.where(enough, low, middle + 1), tl.where(enough, middle, high)
    here = high.to(tl.int32)
    found = tl.sum((counts & (key <= here)).to(tl.int32), 0)
    after = tl.min(tl.where(counts & (key > here), key, 0x7FFFFFFF), 0)
    upper = loss_at(tl.where((place > below) & (found <= rank), after, here))
    level = moved(tl.load(threshold_ptr), number, place - below, loss_at(here), upper, decay)
    tl.store(threshold_ptr, level)
    tl.store(level_ptr, level)
    live = row < rows
    y = tl.load(y_ptr + row, mask=live, other=ignore).to(tl.int64)
    m = tl.load(m_ptr + row, mask=live, other=0.0)
    value, slope, weight = paced(m, y, row, live, weight_ptr, sample_ptr, classes, ignore, level, linear, WEIGHT, SAMPLE)
    each = 1.0
    if MEAN:
        each = 1.0 / tl.sum(weight, 0)
    tl.store(pull_ptr + row, tl.where(y == ignore, 0.0, slope * each), mask=live)
    if APART:
        tl.store(value_ptr + row, value, mask=live)
    else:
        tl.store(value_ptr, tl.sum(value, 0) * each)


@triton.jit
def narrowed(number_ptr, prefix, rank, STEP: tl.constexpr, PARTS: tl.constexpr):
    """By the counts of a round, one more digit of the integer sought: the bits so far, its rank among those that have them, how
    many there are, and the next such integer."""
    digits = tl.arange(0, 256)
    at = tl.arange(0, PARTS)[:, None] * 256 + digits[None, :]
    count = tl.sum(tl.load(number_ptr + STEP * PARTS * 256 + at), 0)
    up_to = tl.cumsum(count, 0)
    digit = tl.minimum(tl.sum((up_to < rank).to(tl.int32), 0), 255)
    rank -= tl.sum(tl.where(digits < digit, count, 0), 0)
    among = tl.sum(tl.where(digits == digit, count, 0), 0)
    after = tl.min(tl.where((digits > digit) & (count > 0), digits, 256), 0)
    return prefix * 256 + digit, rank, among, tl.where(after < 256, prefix * 256 + after, 1 << 40)


@triton.jit
def sought(number_ptr, percentile, PARTS: tl.constexpr):
    """How many losses count, the place of the percentile among them, and the rank of the loss below it."""
    at = tl.arange(0, PARTS)[:, None] * 256 + tl.arange(0, 256)[None, :]
    number = tl.sum(tl.sum(tl.load(number_ptr + at), 0), 0)
    place = tl.maximum(percentile * (number - 1).to(tl.float32), 0.0)
    return number, place, tl.floor(place).to(tl.int32) + 1


@triton.jit(do_not_specialize=["rows", "classes", "ignore"])
def count_kernel(
    m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, number_ptr, rows, classes, ignore, percentile,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, STEP: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """How often each value of the next 8 bits occurs in one of PARTS parts of the rows, of integers that begin as the one sought.

    The first round adds up the weights of the part. The last keeps the old λ, and the least integer with higher bits so far.
    """
    part = tl.program_id(0)
    state_ptr = number_ptr + (4 * 256 + 1) * PARTS
    prefix = tl.full((), 0, tl.int64)
    if STEP == 1:
        _, _, rank = sought(number_ptr, percentile, PARTS)
        prefix, rank, _, _ = narrowed(number_ptr, prefix, rank, 0, PARTS)
    if STEP > 1:
        prefix = tl.load(state_ptr + 2 * STEP - 2).to(tl.int64)
        prefix, rank, _, _ = narrowed(number_ptr, prefix, tl.load(state_ptr + 2 * STEP - 1), STEP - 1, PARTS)
    if STEP > 0:  # noqa: SIM102 (decided when compiling: before, there is no rank)
        if part == 0:
            tl.store(state_ptr + 2 * STEP, prefix.to(tl.int32))  # at most 24 bits
            tl.store(state_ptr + 2 * STEP + 1, rank)
    step = tl.cdiv(rows, PARTS)
    begin = part * step
    stop = tl.minimum(begin + step, rows)
    count = tl.zeros((256,), tl.int32)
    weights = tl.zeros((BLOCK,), tl.float32)
    above = tl.full((BLOCK,), 1 << 40, tl.int64)
    for first in range(begin, stop, BLOCK):
        row = first + tl.arange(0, BLOCK)
        key, counts = ordered(m_ptr, y_ptr, row, stop, ignore)
        bits = key.to(tl.int64) + 0x80000000
        alike = counts & ((bits >> (32 - 8 * STEP)) == prefix)
        count += tl.histogram(((bits >> (24 - 8 * STEP)) & 255).to(tl.int32), 256, mask=alike)
        if STEP == 0:
            y = tl.load(y_ptr + row, mask=row < stop, other=ignore).to(tl.int64)
            kept = (row < stop) & (y != ignore)
            w, s = row_weights(y, row, kept & (y >= 0) & (y < classes), kept, weight_ptr, sample_ptr, WEIGHT, SAMPLE)
            weights += tl.where(kept, w * s, 0.0)
        if STEP == 3:
            above = tl.minimum(above, tl.where(counts & ((bits >> 8) > prefix), bits, 1 << 40))
    tl.store(number_ptr + (STEP * PARTS + part) * 256 + tl.arange(0, 256), count)
    if STEP == 0:
        tl.store(level_ptr + PARTS + part, tl.sum(weights, 0))
    if STEP == 3:
        least = tl.minimum(tl.min(above, 0) - 0x80000000, 0x7FFFFFFF)
        tl.store(number_ptr + 4 * 256 * PARTS + part, least.to(tl.int32))
        if part == 0:
            tl.store(level_ptr + 1, tl.load(threshold_ptr))


@triton.jit(do_not_specialize=["rows", "classes", "ignore"])
def many_kernel(
    m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, number_ptr, value_ptr, sum_ptr, counter_ptr, pull_ptr,
    rows, classes, ignore, percentile, decay, linear,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, MEAN: tl.constexpr, APART: tl.constexpr, WHOLE: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`few_kernel` after the rounds of `count_kernel`: one of PARTS parts of the rows; with WHOLE the sum of all parts."""
    part, every = tl.program_id(0), tl.arange(0, PARTS)
    state_ptr = number_ptr + (4 * 256 + 1) * PARTS
    number, place, _first = sought(number_ptr, percentile, PARTS)
    bits, rank, among, after = narrowed(number_ptr, tl.load(state_ptr + 6).to(tl.int64), tl.load(state_ptr + 7), 3, PARTS)
    here = (bits - 0x80000000).to(tl.int32)
    least = tl.min(tl.load(number_ptr + 4 * 256 * PARTS + every), 0)
    after = tl.minimum(after - 0x80000000, least.to(tl.int64)).to(tl.int32)
    below = tl.floor(place)
    upper = loss_at(tl.where((place > below) & (among <= rank), after, here))
    level = moved(tl.load(level_ptr + 1), number, place - below, loss_at(here), upper, decay)
    each = 1.0
    if MEAN:
        each = 1.0 / tl.sum(tl.load(level_ptr + PARTS + every), 0)
    if part == 0:
        tl.store(threshold_ptr, level)
        tl.store(level_ptr, level)
    result = tl.zeros((BLOCK,), tl.float32)
    step = tl.cdiv(rows, PARTS)
    begin = part * step
    stop = tl.minimum(begin + step, rows)
    for first in range(begin, stop, BLOCK):
        row = first + tl.arange(0, BLOCK)
        live = row < stop
        y = tl.load(y_ptr + row, mask=live, other=ignore).to(tl.int64)
        m = tl.load(m_ptr + row, mask=live, other=0.0)
        value, slope, _ = paced(m, y, row, live, weight_ptr, sample_ptr, classes, ignore, level, linear, WEIGHT, SAMPLE)
        tl.store(pull_ptr + row, tl.where(y == ignore, 0.0, slope * each), mask=live)
        if APART:
            tl.store(value_ptr + row, value, mask=live)
        result += value * each
    if WHOLE:
        add_up(tl.sum(result, 0), value_ptr, sum_ptr, counter_ptr)
    elif not APART:
        tl.store(value_ptr + part, tl.sum(result, 0))
