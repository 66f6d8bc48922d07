"""ADR and the entropy penalty on one Triton kernel: softmax, entropy, the τ largest, value and gradient of each row at once.

    ∂z_j = p_j (−h (log p_j + H) − 2 t T + [j among the τ largest] 2 t p_j)      h = ∂F/∂H, t = ∂F/∂T

T and F: `mohs.losses.adr`. log p of the largest class is −log1p of the others' sum, so H is exact for certain predictions too.
log p_j + H is z_j − Σ p z, without the logarithm of the sum, which would lose digits for uncertain ones.
The logits are read once and the gradient written once; beyond 8192 classes, a second read comes from the cache. Second
derivatives, float16 (whose gradient must include the loss scale) and float64 take the plain version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.losses._kernels.add_up import MOST_SUMMED, add_up, sum_of
from mohs.losses._kernels.curves import exact_exp, log1p
from mohs.margin._choose import apply_eagerly, keeps_graph, needs_plain, plain_gradient
from mohs.margin._launch import Launcher
from mohs.margin._triton import INF, layout, load, offsets, padded, scale_, three, width

MOST = 8  # the largest τ
LONG_WARPS = 4


@triton.jit(do_not_specialize=["rows"])
def certainty_kernel(
    z_ptr, value_ptr, sum_ptr, counter_ptr, grad_ptr,
    rows, inner, stride_n, stride_k, stride_d, grad_n, grad_k, grad_d,
    log_classes, floor,
    classes: tl.constexpr, WIDTH: tl.constexpr, ENTROPY: tl.constexpr, TAU: tl.constexpr, NORMALIZER: tl.constexpr,
    DETACH: tl.constexpr, GRAD: tl.constexpr, SUM: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """F/N of each row of a tile, or H/N with ENTROPY, and its gradient, all classes in registers."""
    if WIDTH:
        stride_n = WIDTH
        grad_n = WIDTH
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    live = row < rows
    cols = tl.arange(0, BLOCK)
    start = offsets(row, inner, stride_n, stride_d)
    inside = live[:, None] & (cols < classes)[None, :]
    z = load(z_ptr, start, cols, live, classes, stride_k, tl.float32)
    top, first = tl.max(z, 1, return_indices=True)
    low = tl.where(inside, z - top[:, None], 0.0)
    e = tl.where(inside, exact_exp(low), 0.0)
    others = tl.sum(tl.where(cols[None, :] == first[:, None], 0.0, e), 1)
    log_total = log1p(others)
    scale = 1.0 / (1.0 + others)
    mean = scale * tl.sum(e * low, 1)
    entropy = log_total - mean
    p = e * scale[:, None]
    chosen = cols[None, :] == first[:, None]
    squares = scale * scale
    if not ENTROPY:
        left = tl.where(chosen, -1.0, tl.where(inside, p, -1.0))
        for _ in tl.static_range(TAU - 1):
            high, place = tl.max(left, 1, return_indices=True)
            squares += high * high
            here = cols[None, :] == place[:, None]
            chosen = chosen | here
            left = tl.where(here, -1.0, left)
    value, by_h, by_t = strength(entropy, squares, log_classes, floor, ENTROPY, TAU, NORMALIZER, DETACH)
    each = 1.0 / rows
    value = checked(value, entropy, top) * each
    if SUM:
        add_up(tl.sum(tl.where(live, value, 0.0), 0), value_ptr, sum_ptr, counter_ptr)
    else:
        tl.store(value_ptr + row, value, mask=live)
    if GRAD:
        line = -by_h[:, None] * (low - mean[:, None]) - (2.0 * by_t * squares)[:, None]
        g = p * tl.where(chosen, line + 2.0 * by_t[:, None] * p, line) * each
        where = grad_ptr + offsets(row, inner, grad_n, grad_d)[:, None] + cols.to(tl.int64)[None, :] * grad_k
        tl.store(where, g.to(grad_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def long_certainty_kernel(
    z_ptr, value_ptr, sum_ptr, counter_ptr, grad_ptr,
    rows, inner, stride_n, stride_k, stride_d, grad_n, grad_k, grad_d,
    log_classes, floor,
    classes: tl.constexpr, WIDTH: tl.constexpr, ENTROPY: tl.constexpr, TAU: tl.constexpr, NORMALIZER: tl.constexpr,
    DETACH: tl.constexpr, GRAD: tl.constexpr, SUM: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """`certainty_kernel` for one row of many classes, in BLOCKS blocks; the gradient reads the row again, from the cache.

    A lane is a position of the block. Each keeps its largest logit: the τ lanes with the highest hold the τ largest of all.
    """
    if WIDTH:
        stride_n = WIDTH
        grad_n = WIDTH
    row = tl.program_id(0)
    z_ptr += offsets(row, inner, stride_n, stride_d)
    lanes = tl.arange(0, BLOCK)
    peaks = tl.full((BLOCK,), -INF, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    spread = tl.zeros((BLOCK,), tl.float32)
    top = -INF
    for begin in range(0, classes, BLOCK):
        cols = begin + lanes
        inside = cols < classes
        z = tl.load(z_ptr + cols.to(tl.int64) * stride_k, mask=inside, other=-INF).to(tl.float32)
        peaks = tl.maximum(peaks, z)
        higher = tl.maximum(top, tl.max(z, 0))
        moved = tl.where(top == -INF, 0.0, top - higher)
        shrink = exact_exp(moved)
        low = tl.where(inside, z - higher, 0.0)
        e = tl.where(inside, exact_exp(low), 0.0)
        spread = shrink * (spread + moved * total) + e * low
        total = total * shrink + e
        top = higher
    which = tl.arange(0, 8)
    lane = tl.full((8,), BLOCK, tl.int32)  # of the τ highest, in descending order
    for k in tl.static_range(TAU):
        _, place = tl.max(peaks, 0, return_indices=True)
        lane = tl.where(which == k, place, lane)
        peaks = tl.where(lanes == place, -INF, peaks)
    at = lane[:, None] + BLOCK * tl.arange(0, BLOCKS)[None, :]
    left = tl.load(z_ptr + at.to(tl.int64) * stride_k, mask=(at < classes) & (lane < BLOCK)[:, None], other=-INF).to(tl.float32)
    first = tl.min(tl.min(tl.where(left == top, at, classes), 1), 0)
    beside = tl.where((lane[:, None] == first % BLOCK) & (at != first), exact_exp(left - top), 0.0)
    others = tl.sum(tl.where(lanes == first % BLOCK, 0.0, total), 0) + tl.sum(tl.sum(beside, 1), 0)
    log_total = log1p(others)
    scale = 1.0 / (1.0 + others)
    mean = scale * tl.sum(spread, 0)
    entropy = log_total - mean
    highest = tl.full((8,), -INF, tl.float32)
    chosen = tl.full((8,), classes, tl.int32)
    for k in tl.static_range(TAU):
        high = tl.max(tl.max(left, 1), 0)
        place = tl.min(tl.min(tl.where(left == high, at, classes), 1), 0)
        highest, chosen = tl.where(which == k, high, highest), tl.where(which == k, place, chosen)
        left = tl.where(at == place, -INF, left)
    best = exact_exp(highest - top) * scale  # 0 beyond τ
    squares = tl.sum(best * best, 0)
    value, by_h, by_t = strength(entropy, squares, log_classes, floor, ENTROPY, TAU, NORMALIZER, DETACH)
    each = 1.0 / rows
    value = checked(value, entropy, top) * each
    if SUM:
        add_up(value, value_ptr, sum_ptr, counter_ptr)
    else:
        tl.store(value_ptr + row, value)
    if GRAD:
        grad_ptr += offsets(row, inner, grad_n, grad_d)
        level = by_h * mean - 2.0 * by_t * squares
        for begin in range(0, classes, BLOCK):
            cols = begin + lanes
            inside = cols < classes
            low = tl.load(z_ptr + cols.to(tl.int64) * stride_k, mask=inside, other=-INF).to(tl.float32) - top
            g = exact_exp(low) * (scale * each) * (level - by_h * low)
            tl.store(grad_ptr + cols.to(tl.int64) * grad_k, g.to(grad_ptr.dtype.element_ty), mask=inside)
        if not ENTROPY:
            tl.debug_barrier()  # the τ largest are written again
            g = best * each * (level - by_h * (highest - top) + 2.0 * by_t * best)
            tl.store(grad_ptr + chosen.to(tl.int64) * grad_k, g.to(grad_ptr.dtype.element_ty), mask=chosen < classes)


@triton.jit
def strength(
    entropy, squares, log_classes, floor, ENTROPY: tl.constexpr, TAU: tl.constexpr, NORMALIZER: tl.constexpr, DETACH: tl.constexpr
):
    """F of H and T, ∂F/∂H and ∂F/∂T; with ENTROPY, F = H."""
    if ENTROPY:
        return entropy, 0.0 * entropy + 1.0, 0.0 * entropy
    phi = entropy / log_classes
    moves = (phi >= floor) & (phi <= 1.0)
    phi = tl.where(phi < floor, floor, tl.where(phi > 1.0, 1.0, phi))
    exponent = -squares / (2.0 * phi)
    if NORMALIZER:
        exponent -= 0.5 * TAU * tl.log(6.283185307179586 * phi)
    value = exact_exp(exponent)
    by_phi = value * squares / (2.0 * phi * phi)
    if NORMALIZER:
        by_phi -= value * (0.5 * TAU) / phi
    by_h = tl.where(moves, by_phi, 0.0) / log_classes
    if DETACH:
        by_h = 0.0 * value
    return value, by_h, -value / (2.0 * phi)


@triton.jit
def checked(value, entropy, top):
    """The value; NaN for a row with a NaN or infinite logit."""
    return value + tl.where(top == INF, float("nan"), top * 0.0) + entropy * 0.0


class Certainty(NamedTuple):
    """The requested mean: of F, or of H (`entropy`)."""

    plain: Callable[[Tensor], Tensor]
    entropy: bool = False
    tau: int = 1
    normalizer: bool = True
    detach: bool = False
    floor: float = 1e-6


def supports(logits: Tensor, tau: int) -> bool:
    """Whether the kernel takes these logits (N, K, ...)."""
    return (
        logits.dtype in (torch.float32, torch.bfloat16)
        and logits.dim() >= 2
        and logits.shape[1] >= 2
        and tau <= min(MOST, logits.shape[1])
        and logits.numel() > 0
    )


def fused_certainty(logits: Tensor, asked: Certainty) -> Tensor:
    """logits (N, K, ...) -> the mean of F, or of the entropy."""
    return apply_eagerly(_FusedCertainty, logits, asked)  # type: ignore[no-any-return]


class _FusedCertainty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, asked: Certainty) -> Tensor:
        z = three(logits)
        grad = torch.empty_like(z) if ctx.needs_input_grad[0] else None
        launcher, sums = _plan(z.shape, z.stride(), None if grad is None else grad.stride(), z.dtype, asked[1:])
        if sums:
            value, whole, counter = sum_of(z)
        else:
            rows = z.shape[0] * z.shape[2] if z.dim() == 3 else z.shape[0]
            value, whole, counter = torch.empty(rows, dtype=torch.float32, device=z.device), None, None
        launcher((z, value, whole, counter, grad), (math.log(z.shape[1]), asked.floor))
        if grad is not None:
            ctx.save_for_backward(logits)
            ctx.plain, ctx.written = asked.plain, grad if z is logits else grad.view(logits.shape)
        return value.sum() if whole is None else whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (g,), grad = grads, ctx.written
        if grad is None or needs_plain(g):
            return plain_gradient(ctx.plain, ctx.saved_tensors[0], g), None
        if keeps_graph():
            return grad * g, None
        ctx.written = None
        return scale_(grad, g), None


@lru_cache(1024)
def _plan(
    shape: tuple[int, ...],
    steps: tuple[int, ...],
    grad_steps: tuple[int, ...] | None,
    dtype: torch.dtype,
    settings: tuple[Any, ...],
) -> tuple[Launcher, bool]:
    """The launch for logits of this shape, strides and dtype, and whether it adds up the values."""
    how = layout(shape)
    entropy, tau, normalizer, detach, _ = settings
    read, written = (padded(steps if one is None else one) for one in (steps, grad_steps))
    sums = how.programs <= MOST_SUMMED
    kind = (
        how.classes,
        width(read, written),
        entropy,
        tau,
        normalizer,
        detach,
        grad_steps is not None,
        sums,
        how.tile,
        how.block,
    )
    integers = (how.rows, how.inner, *read, *written)
    if how.loop:
        blocks = triton.next_power_of_2(-(-how.classes // how.block))
        return Launcher(long_certainty_kernel, how.programs, LONG_WARPS, integers, (*kind, blocks)), sums
    return Launcher(certainty_kernel, how.programs, how.warps, integers, kind), sums
