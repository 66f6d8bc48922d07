"""Self-paced learning on Triton kernels: the margins, the batch's percentile of the losses and with it λ, then the gradient.

The percentile is found without a sort, and without waiting for the device. Losses are compared by −m, of which softplus is
monotone, as integers of the same order. Of few rows, one program quarters the range of these integers until one is left: the last
to end of those that compute the margins, or that of a second launch. Of more, programs count the values of the next 8 bits in
their part of the rows, in four rounds, after each of which they wait for one another. The same launch then computes the loss of
every row from λ and its margin.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.losses._kernels.add_up import GROUP, MOST, MOST_SUMMED, READY, ROUNDS, TALLY, add_up, all_here, is_last
from mohs.losses._kernels.curves import SELF_PACED, Curve, curve, parts
from mohs.losses._kernels.fused_loss import fused_loss
from mohs.losses._kernels.loss_kernel import row_weights
from mohs.losses._kernels.over_batch import PARTS, Request, over_batch
from mohs.margin import NO_LABEL
from mohs.margin._choose import Plain
from mohs.margin._launch import Launcher
from mohs.margin._triton import INF, layout, margin_tile, padded, width

HELD = 8192  # rows that one program holds, fewer than 2^16
ONCE = MOST_SUMMED  # rows whose margins the same launch computes
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
        threshold: λ, which is updated by the batch first if it moves.
        kind: "hard" or "linear".
        logits: (N, K, ...).
        labels: (N, ...).
        plain: λ for these logits -> a function that computes the same loss without kernels.
        moves: Percentile and decay, if λ moves.
        weight, ignore_index, reduction, label_smoothing, sample_weight: As for every loss.
    """
    if label_smoothing or threshold.device != logits.device or threshold.dtype != torch.float32:
        return None
    if moves is None:
        options = (weight, ignore_index, reduction, 0.0, sample_weight)
        same = Curve(SELF_PACED, (0.0, LINEAR[kind], 0.0, 0.0))
        return fused_loss(same, logits, labels, plain(threshold), *options, level=threshold)
    rows = labels.numel()
    at_once = rows <= min(ONCE, HELD)
    values = _of_very_few if at_once else _of_few if rows <= HELD else _of_many
    given = (logits, labels, plain, (*moves, LINEAR[kind]), weight, ignore_index, reduction, sample_weight)
    return over_batch(values, *given, at_once=at_once, threshold=threshold)


def _of_very_few(request: Request, z: Tensor) -> Launcher:
    """All rows in the program that ends last."""
    rows, classes, ignore_index, *kind = request
    how, steps = layout(z.shape), padded(z.stride())
    constants = (classes, width(steps, steps), how.tile, how.block, how.loop, *kind, triton.next_power_of_2(rows))
    return Launcher(at_once_kernel, how.programs, max(4, how.warps), (rows, how.inner, *steps, ignore_index), constants)


def _of_few(request: Request, z: Tensor) -> Launcher:
    """All rows in one program."""
    rows, classes, ignore_index, *kind = request
    block = triton.next_power_of_2(rows)
    return Launcher(few_kernel, 1, 4 if block <= 1024 else 32, (rows, classes, ignore_index), (*kind, block))


def _of_many(request: Request, z: Tensor) -> Launcher:
    """A part of the rows in each program."""
    rows, classes, ignore_index, *kind = request
    return Launcher(many_kernel, PARTS, 8, (rows, classes, ignore_index), (*kind, PARTS, 1024))


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


@triton.jit
def pace_all(
    m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, pull_ptr, value_ptr, sum_ptr,
    rows, classes, ignore, percentile, decay, linear,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, MEAN: tl.constexpr, APART: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """λ after a batch of margins, as `next_threshold` has it, ∂L/∂m of each row, and their values or the sum, in one program."""
    row = tl.arange(0, BLOCK)
    key, counts = ordered(m_ptr, y_ptr, row, rows, ignore)
    number = tl.sum(counts.to(tl.int32), 0)
    place = tl.maximum(percentile * (number - 1).to(tl.float32), 0.0)
    below = tl.floor(place)
    rank = below.to(tl.int32) + 1
    low = tl.min(tl.where(counts, key, 0x7FFFFFFF), 0).to(tl.int64)
    high = tl.maximum(tl.max(tl.where(counts, key, -0x80000000), 0).to(tl.int64), low)
    while low < high:
        first, second, third = low + (high - low) // 4, low + (high - low) // 2, low + 3 * (high - low) // 4
        held = (key <= first.to(tl.int32)).to(tl.int64) + ((key <= second.to(tl.int32)).to(tl.int64) << 16)
        held += (key <= third.to(tl.int32)).to(tl.int64) << 32
        up_to = tl.sum(tl.where(counts, held, 0), 0)  # three counts of 16 bits
        in_first, in_second, in_third = (up_to & 65535) >= rank, ((up_to >> 16) & 65535) >= rank, (up_to >> 32) >= rank
        low = tl.where(in_first, low, tl.where(in_second, first + 1, tl.where(in_third, second + 1, third + 1)))
        high = tl.where(in_first, first, tl.where(in_second, second, tl.where(in_third, third, high)))
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
        tl.store(sum_ptr, tl.sum(value, 0) * each)


@triton.jit(do_not_specialize=["rows", "classes", "ignore"])
def few_kernel(
    m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, pull_ptr, value_ptr, parts_ptr, sum_ptr, counter_ptr,
    rows, classes, ignore, percentile, decay, linear,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, MEAN: tl.constexpr, APART: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`pace_all` in the only program."""
    pace_all(
        m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, pull_ptr, value_ptr, sum_ptr,
        rows, classes, ignore, percentile, decay, linear, WEIGHT, SAMPLE, MEAN, APART, BLOCK,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "ignore"])
def at_once_kernel(
    z_ptr, top_ptr, total_ptr,
    m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, pull_ptr, value_ptr, parts_ptr, sum_ptr, counter_ptr,
    rows, inner, stride_n, stride_k, stride_d, ignore, percentile, decay, linear,
    classes: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, MEAN: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The margins of a tile in each program, and `pace_all` in the one that ends last."""
    margin_tile(
        z_ptr, y_ptr, m_ptr, top_ptr, total_ptr, rows, inner, stride_n, stride_k, stride_d, ignore,
        tl.float32, classes, WIDTH, TILE, BLOCK, LOOP,
    )  # fmt: skip
    programs = tl.num_programs(0)
    group = tl.program_id(0) // GROUP
    if is_last(counter_ptr + 1 + group, tl.minimum(programs - group * GROUP, GROUP)):  # noqa: SIM102 (Triton has no such "and")
        if is_last(counter_ptr, tl.cdiv(programs, GROUP)):
            pace_all(
                m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, pull_ptr, value_ptr, sum_ptr,
                rows, classes, ignore, percentile, decay, linear, WEIGHT, SAMPLE, MEAN, APART, ROWS,
            )  # fmt: skip


@triton.jit
def counted(
    part, prefix, m_ptr, y_ptr, weight_ptr, sample_ptr, rows, classes, ignore,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, STEP: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A histogram of the next 8 bits over one of PARTS parts of the rows, for integers with the bits found so far.

    Also, in the first round, the sum of the part's weights; in the last, its least integer with higher bits so far.
    """
    step = tl.cdiv(rows, PARTS)
    begin = part * step
    stop = tl.minimum(begin + step, rows)
    count = tl.zeros((256,), tl.int32)
    weights = tl.zeros((BLOCK,), tl.float32)
    above = tl.full((BLOCK,), 0x7FFFFFFF, tl.int32)
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
            above = tl.minimum(above, tl.where(counts & ((bits >> 8) > prefix), key, 0x7FFFFFFF))
    return count, tl.sum(weights, 0), tl.min(above, 0)


@triton.jit
def counted_by_all(
    prefix, m_ptr, y_ptr, weight_ptr, sample_ptr, parts_ptr, counter_ptr, rows, classes, ignore,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, STEP: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`counted` of all rows: counts, sum of weights and least integer; each program counts its part and waits for the others.

    A program that has waited too long counts all parts itself.
    """
    every, tally_ptr = tl.arange(0, PARTS), counter_ptr + TALLY + 256 * STEP + tl.arange(0, 256)
    weights_ptr = parts_ptr + 2 * MOST
    least_ptr = (weights_ptr + PARTS).to(tl.pointer_type(tl.int32), bitcast=True)
    part = tl.program_id(0)
    count, own, least = counted(
        part, prefix, m_ptr, y_ptr, weight_ptr, sample_ptr, rows, classes, ignore, WEIGHT, SAMPLE, STEP, PARTS, BLOCK
    )  # fmt: skip
    tl.atomic_add(tally_ptr, count, mask=count > 0, sem="relaxed")
    if STEP == 0:
        tl.store(weights_ptr + part, own)
    if STEP == 3:
        tl.store(least_ptr + part, least)
    weights = tl.zeros((PARTS,), tl.float32)
    if all_here(counter_ptr + READY + STEP, PARTS):
        count = tl.load(tally_ptr, cache_modifier=".cg")
        if STEP == 0:
            weights = tl.load(weights_ptr + every, cache_modifier=".cg")
        if STEP == 3:
            least = tl.min(tl.load(least_ptr + every, cache_modifier=".cg"), 0)
    else:
        count = tl.zeros((256,), tl.int32)
        for other in range(PARTS):
            some, its, its_least = counted(
                other, prefix, m_ptr, y_ptr, weight_ptr, sample_ptr, rows, classes, ignore, WEIGHT, SAMPLE, STEP, PARTS, BLOCK
            )  # fmt: skip
            count += some
            weights = tl.where(every == other, its, weights)
            least = tl.minimum(least, its_least)
    return count, tl.sum(weights, 0), least


@triton.jit
def narrowed(count, prefix, rank):
    """By the counts of a round, one more digit of the percentile's integer: the bits so far, its rank among those that have them,
    how many there are, and the next such integer."""
    digits = tl.arange(0, 256)
    up_to = tl.cumsum(count, 0)
    digit = tl.minimum(tl.sum((up_to < rank).to(tl.int32), 0), 255)
    rank -= tl.sum(tl.where(digits < digit, count, 0), 0)
    among = tl.sum(tl.where(digits == digit, count, 0), 0)
    after = tl.min(tl.where((digits > digit) & (count > 0), digits, 256), 0)
    return prefix * 256 + digit, rank, among, tl.where(after < 256, prefix * 256 + after, 1 << 40)


@triton.jit(do_not_specialize=["rows", "classes", "ignore"])
def many_kernel(
    m_ptr, y_ptr, weight_ptr, sample_ptr, threshold_ptr, level_ptr, pull_ptr, value_ptr, parts_ptr, sum_ptr, counter_ptr,
    rows, classes, ignore, percentile, decay, linear,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, MEAN: tl.constexpr, APART: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`few_kernel` of many rows: one of PARTS parts in each program. The program that ends last changes λ."""
    old = tl.load(threshold_ptr)
    prefix = tl.full((), 0, tl.int64)
    count, weights, least = counted_by_all(
        prefix, m_ptr, y_ptr, weight_ptr, sample_ptr, parts_ptr, counter_ptr, rows, classes, ignore,
        WEIGHT, SAMPLE, 0, PARTS, BLOCK,
    )  # fmt: skip
    number = tl.sum(count, 0)
    place = tl.maximum(percentile * (number - 1).to(tl.float32), 0.0)
    below = tl.floor(place)
    prefix, rank, among, after = narrowed(count, prefix, below.to(tl.int32) + 1)
    for step in tl.static_range(1, 4):
        count, _none, least = counted_by_all(
            prefix, m_ptr, y_ptr, weight_ptr, sample_ptr, parts_ptr, counter_ptr, rows, classes, ignore,
            WEIGHT, SAMPLE, step, PARTS, BLOCK,
        )  # fmt: skip
        prefix, rank, among, after = narrowed(count, prefix, rank)
    here = (prefix - 0x80000000).to(tl.int32)
    after = tl.minimum(after - 0x80000000, least.to(tl.int64)).to(tl.int32)
    upper = loss_at(tl.where((place > below) & (among <= rank), after, here))
    level = moved(old, number, place - below, loss_at(here), upper, decay)
    each = 1.0
    if MEAN:
        each = 1.0 / weights
    result = tl.zeros((BLOCK,), tl.float32)
    step = tl.cdiv(rows, PARTS)
    begin = tl.program_id(0) * step
    stop = tl.minimum(begin + step, rows)
    for first in range(begin, stop, BLOCK):
        row = first + tl.arange(0, BLOCK)
        live = row < stop
        y = tl.load(y_ptr + row, mask=live, other=ignore).to(tl.int64)
        m = tl.load(m_ptr + row, mask=live, other=0.0)
        value, slope, _weight = paced(m, y, row, live, weight_ptr, sample_ptr, classes, ignore, level, linear, WEIGHT, SAMPLE)
        tl.store(pull_ptr + row, tl.where(y == ignore, 0.0, slope * each), mask=live)
        if APART:
            tl.store(value_ptr + row, value, mask=live)
        result += value * each
    if add_up(tl.sum(result, 0), parts_ptr, sum_ptr, counter_ptr):
        tl.store(threshold_ptr, level)
        tl.store(level_ptr, level)
        tl.store(counter_ptr + READY + tl.arange(0, ROUNDS), tl.zeros((ROUNDS,), tl.int32))
        tl.store(counter_ptr + TALLY + tl.arange(0, 256 * ROUNDS), tl.zeros((256 * ROUNDS,), tl.int32))
