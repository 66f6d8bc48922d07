"""Self-paced learning on Triton kernels: the margins, the batch's percentile of the losses and with it λ, then the loss.

The percentile is found by bisection over the bit patterns of the losses, 32 counts by one program, instead of a sort: the host
launches one kernel and waits for nothing. Losses are compared by −m, of which softplus is monotone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.losses._kernels.call import admits
from mohs.losses._kernels.curves import SELF_PACED, Curve, parts
from mohs.losses._kernels.fused_loss import fused_loss
from mohs.margin import NO_LABEL
from mohs.margin._choose import Plain
from mohs.margin._launch import launch
from mohs.margin._triton import INF, flat, margin_forward, three

HELD = 8192  # rows that a program holds; of more, it reads a block at a time
CURVES = {"hard": Curve(SELF_PACED, (0.0, 0.0, 0.0, 0.0)), "linear": Curve(SELF_PACED, (0.0, 1.0, 0.0, 0.0))}


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
    level = threshold if moves is None else _follow(threshold, logits, labels, ignore_index, *moves)
    options = (weight, ignore_index, reduction, 0.0, sample_weight)
    return fused_loss(CURVES[kind], logits, labels, plain(level), *options, level=level)


def _follow(threshold: Tensor, logits: Tensor, labels: Tensor, ignore_index: int, percentile: float, decay: float) -> Tensor:
    """`next_threshold` of a batch, written into the threshold; returns a copy of it."""
    y = flat(labels)
    m, _, _ = margin_forward(three(logits), y, ignore_index)
    level, rows = torch.empty_like(threshold), y.shape[0]
    block = min(HELD, triton.next_power_of_2(rows))
    tensors, constants = (m, y, threshold, level), (rows <= HELD, block)
    launch(threshold_kernel, 1, 4 if block <= 1024 else 32, tensors, (rows, ignore_index), (percentile, decay), constants)
    return level


@triton.jit
def ordered(m_ptr, y_ptr, row, rows, ignore):
    """−m as integers of the same order, and which rows count: those with a label and a number."""
    y = tl.load(y_ptr + row, mask=row < rows, other=ignore).to(tl.int64)
    m = tl.load(m_ptr + row, mask=row < rows, other=0.0)
    bits = (0.0 - m).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits), (row < rows) & (y != ignore) & (m == m)


@triton.jit
def loss_at(key):
    """softplus of a number given by its integer."""
    bits = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    ce, _, _, _ = parts(-bits.to(tl.float32, bitcast=True))
    return ce


@triton.jit
def number_up_to(m_ptr, y_ptr, rows, ignore, key, counts, bound, HELD: tl.constexpr, BLOCK: tl.constexpr):
    """How many of the rows that count have an integer of at most this bound."""
    if HELD:
        return tl.sum((counts & (key <= bound)).to(tl.int32), 0)
    total = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, rows, BLOCK):
        key, counts = ordered(m_ptr, y_ptr, first + tl.arange(0, BLOCK), rows, ignore)
        total += (counts & (key <= bound)).to(tl.int32)
    return tl.sum(total, 0)


@triton.jit
def next_above(m_ptr, y_ptr, rows, ignore, key, counts, bound, HELD: tl.constexpr, BLOCK: tl.constexpr):
    """The smallest integer above this bound."""
    if HELD:
        return tl.min(tl.where(counts & (key > bound), key, 0x7FFFFFFF), 0)
    least = tl.full((BLOCK,), 0x7FFFFFFF, tl.int32)
    for first in range(0, rows, BLOCK):
        key, counts = ordered(m_ptr, y_ptr, first + tl.arange(0, BLOCK), rows, ignore)
        least = tl.minimum(least, tl.where(counts & (key > bound), key, 0x7FFFFFFF))
    return tl.min(least, 0)


@triton.jit(do_not_specialize=["rows", "ignore"])
def threshold_kernel(
    m_ptr, y_ptr, threshold_ptr, level_ptr, rows, ignore, percentile, decay, HELD: tl.constexpr, BLOCK: tl.constexpr
):
    """λ after a batch of margins, as `next_threshold` has it. One program."""
    key, counts = ordered(m_ptr, y_ptr, tl.arange(0, BLOCK), rows, ignore)
    number = number_up_to(m_ptr, y_ptr, rows, ignore, key, counts, 0x7FFFFFFF, HELD, BLOCK)
    place = tl.maximum(percentile * (number - 1).to(tl.float32), 0.0)
    below = tl.floor(place)
    rank = below.to(tl.int32) + 1
    low = tl.full((), -0x80000000, tl.int64)
    high = tl.full((), 0x7FFFFFFF, tl.int64)
    for _ in range(32):
        middle = (low + high) >> 1
        enough = number_up_to(m_ptr, y_ptr, rows, ignore, key, counts, middle.to(tl.int32), HELD, BLOCK) >= rank
        low, high = tl.where(enough, low, middle + 1), tl.where(enough, middle, high)
    here = high.to(tl.int32)
    found = number_up_to(m_ptr, y_ptr, rows, ignore, key, counts, here, HELD, BLOCK)
    after = next_above(m_ptr, y_ptr, rows, ignore, key, counts, here, HELD, BLOCK)
    lower = loss_at(here)
    upper = loss_at(tl.where((place > below) & (found <= rank), after, here))
    q = lower + (place - below) * (upper - lower)
    old = tl.load(threshold_ptr)
    new = tl.where(old == INF, q, decay * old + (1.0 - decay) * q)
    new = tl.where((number > 0) & (q - q == 0.0), new, old)
    tl.store(threshold_ptr, new)
    tl.store(level_ptr, new)
