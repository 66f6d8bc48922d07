"""Triton kernels of the margin: the margin in one read of the logits, and the gradient in one read and one write.

    top, total = max and Σ exp(z_k − top) over the classes other than the label, online; m = z_y − top − log total
    ∂z_k = pull · ([k = y] − [k ≠ y] exp(z_k − top)/total)        pull: ∂L/∂m of the row

A program takes a tile of ROWS rows and all classes (K ≤ 8192), or one row and loops over blocks of classes. Sums are float32
(float64 for float64 logits) and in a fixed order, so results repeat exactly. Rows are addressed as (n, d) of logits
(N, K, D), so that images and strided logits need no copy. The number of classes is a compile-time constant, by which masked
loads are seen to be whole. A label outside 0..K−1 makes its row NaN.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.margin._launch import Launcher

IN_REGISTERS = 8192  # classes that a program holds; with more, few programs would run at a time
SMALL = 1 << 22  # entries that torch multiplies by 1 in less time than one of these kernels is launched
INF = tl.constexpr(float("inf"))


class Layout(NamedTuple):
    """How a kernel walks over logits (N, K, D): rows, classes, the launch, and the strides of n, k and d."""

    rows: int
    classes: int
    inner: int
    tile: int
    block: int
    warps: int
    loop: bool
    programs: int


@lru_cache(1024)
def layout(shape: tuple[int, ...]) -> Layout:
    """The shape of logits, (N, K) or (N, K, D) -> the tile that keeps most loads in flight."""
    examples, classes, inner = (*shape, 1)[:3]
    rows, block = examples * inner, triton.next_power_of_2(classes)
    if block > IN_REGISTERS:
        return Layout(rows, classes, inner, 1, 4096, 8, True, rows)
    tile = max(1, min(128, 1024 // block))
    warps = 2 if block == 1024 else 4 if tile * block <= 4096 else 8
    return Layout(rows, classes, inner, tile, block, warps, False, -(-rows // tile))


def three(logits: Tensor) -> Tensor:
    """logits (N, K, d1, ...) -> (N, K, D), a view where the strides allow; (N, K) stays as it is."""
    return logits if logits.dim() == 2 else logits.flatten(2)


def padded(steps: tuple[int, ...]) -> tuple[int, ...]:
    """Strides over n and k, and over d if there is one -> over all three."""
    return steps if len(steps) == 3 else (*steps, 0)


def width(steps: tuple[int, ...], grad_steps: tuple[int, ...]) -> int:
    """The distance of rows, as a compile-time constant by which loads of 16 bytes are seen to be aligned; 0 if it may vary.

    Both: from `padded`, of the logits and of their gradient.
    """
    return steps[0] if steps[2] == 0 and steps == grad_steps else 0


def flat(x: Tensor) -> Tensor:
    """x (N, ...) -> (N · ...,), contiguous."""
    x = x.contiguous()
    return x if x.dim() == 1 else x.view(-1)


@triton.jit
def offsets(rows, inner, stride_n, stride_d):
    """Where each row begins: (n, d) of row number n · inner + d."""
    return (rows // inner).to(tl.int64) * stride_n + (rows % inner).to(tl.int64) * stride_d


@triton.jit
def load(z_ptr, start, cols, live, classes, stride_k, dtype: tl.constexpr):
    """A tile of logits; −inf beyond the classes and in masked rows."""
    where = start[:, None] + cols.to(tl.int64)[None, :] * stride_k
    return tl.load(z_ptr + where, mask=live[:, None] & (cols < classes)[None, :], other=-INF).to(dtype)


@triton.jit
def label_logit(z_ptr, start, labels, live, classes, stride_k, dtype: tl.constexpr):
    """The label's logit of each row; NaN for a label that is not a class."""
    known = live & (labels >= 0) & (labels < classes)
    own = tl.load(z_ptr + start + labels.to(tl.int64) * stride_k, mask=known, other=0.0).to(dtype)
    return tl.where(known, own, float("nan"))


@triton.jit
def fold(z, top, total):
    """The running maximum and Σ exp(z − top) with one more block of others (−inf where the label is)."""
    higher = tl.maximum(top, tl.max(z, 1))
    base = tl.where(higher == -INF, 0.0, higher)
    total = total * tl.exp(top - base) + tl.sum(tl.exp(z - base[:, None]), 1)
    return higher, total


@triton.jit
def margin_of(own, top, total):
    """m and the base of the exponentials: `top`, or 0 where all others are masked."""
    base = tl.where(top == -INF, 0.0, top)
    return tl.where(own == INF, float("nan"), own - base - tl.log(total)), base


@triton.jit
def margin_tile(
    z_ptr, y_ptr, m_ptr, top_ptr, total_ptr,
    rows, inner, stride_n, stride_k, stride_d, ignore,
    dtype: tl.constexpr, classes: tl.constexpr, WIDTH: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """m, the base of the exponentials and their sum for each row of a tile; an ignored label is read as class 0."""
    if WIDTH:
        stride_n = WIDTH
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    live = row < rows
    y = tl.load(y_ptr + row, mask=live, other=0).to(tl.int64)
    y = tl.where(y == ignore, 0, y)
    start = offsets(row, inner, stride_n, stride_d)
    own = label_logit(z_ptr, start, y, live, classes, stride_k, dtype)
    top = tl.full((TILE,), -INF, dtype)
    total = tl.zeros((TILE,), dtype)
    if LOOP:
        for first in range(0, classes, BLOCK):
            cols = first + tl.arange(0, BLOCK)
            z = load(z_ptr, start, cols, live, classes, stride_k, dtype)
            top, total = fold(tl.where(cols[None, :] == y[:, None], -INF, z), top, total)
    else:
        cols = tl.arange(0, BLOCK)
        z = load(z_ptr, start, cols, live, classes, stride_k, dtype)
        top, total = fold(tl.where(cols[None, :] == y[:, None], -INF, z), top, total)
    m, base = margin_of(own, top, total)
    tl.store(m_ptr + row, m, mask=live)
    tl.store(top_ptr + row, base, mask=live)
    tl.store(total_ptr + row, total, mask=live)


@triton.jit(do_not_specialize=["rows", "ignore"])
def margin_kernel(
    z_ptr, y_ptr, m_ptr, top_ptr, total_ptr,
    rows, inner, stride_n, stride_k, stride_d, ignore,
    dtype: tl.constexpr, classes: tl.constexpr, WIDTH: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """`margin_tile` in each program."""
    margin_tile(
        z_ptr, y_ptr, m_ptr, top_ptr, total_ptr, rows, inner, stride_n, stride_k, stride_d, ignore,
        dtype, classes, WIDTH, TILE, BLOCK, LOOP,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "ignore"])
def gradient_kernel(
    z_ptr, y_ptr, top_ptr, total_ptr, own_ptr, others_ptr, factor_ptr, second_ptr, grad_ptr,
    rows, inner, stride_n, stride_k, stride_d, grad_n, grad_k, grad_d, ignore,
    dtype: tl.constexpr, classes: tl.constexpr, WIDTH: tl.constexpr, OPPOSITE: tl.constexpr, SKIP: tl.constexpr,
    FACTOR: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """∂z = own at the label, others · exp(z − top)/total elsewhere.

    OPPOSITE: others = −own. SKIP: 0 in ignored rows. FACTOR: own times one factor (1), one for each row (2), or two (3).
    """
    if WIDTH:
        stride_n = WIDTH
        grad_n = WIDTH
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    live = row < rows
    y = tl.load(y_ptr + row, mask=live, other=0).to(tl.int64)
    kept = live
    if SKIP:
        kept = live & (y != ignore)
    y = tl.where(y == ignore, 0, y)
    base = tl.load(top_ptr + row, mask=kept, other=0.0)
    total = tl.load(total_ptr + row, mask=kept, other=1.0)
    own = tl.load(own_ptr + row, mask=kept, other=0.0)
    if FACTOR == 1:
        own = own * tl.load(factor_ptr)
    elif FACTOR == 2:
        own = own * tl.load(factor_ptr + row, mask=kept, other=0.0)
    elif FACTOR == 3:
        own = own * (tl.load(factor_ptr) * tl.load(second_ptr))
    scale = -own if OPPOSITE else tl.load(others_ptr + row, mask=kept, other=0.0)
    scale = scale / tl.where(total == 0.0, 1.0, total)
    start = offsets(row, inner, stride_n, stride_d)
    out = grad_ptr + offsets(row, inner, grad_n, grad_d)
    if LOOP:
        for first in range(0, classes, BLOCK):
            cols = first + tl.arange(0, BLOCK)
            z = load(z_ptr, start, cols, kept, classes, stride_k, dtype)
            store_gradient(out, z, cols, y, base, own, scale, 0.0, live, kept, classes, grad_k)
    else:
        cols = tl.arange(0, BLOCK)
        z = load(z_ptr, start, cols, kept, classes, stride_k, dtype)
        store_gradient(out, z, cols, y, base, own, scale, 0.0, live, kept, classes, grad_k)


@triton.jit
def store_gradient(out, z, cols, y, base, own, scale, even, live, kept, classes, grad_k):
    """Write a tile of the gradient: own at the label, scale · exp(z − base) elsewhere, plus even (TILE, 1) or (TILE, BLOCK)."""
    g = tl.where(cols[None, :] == y[:, None], own[:, None], scale[:, None] * tl.exp(z - base[:, None])) + even
    g = tl.where(kept[:, None], g, 0.0)
    where = out[:, None] + cols.to(tl.int64)[None, :] * grad_k
    tl.store(where, g.to(out.dtype.element_ty), mask=live[:, None] & (cols < classes)[None, :])


@triton.jit
def scale_kernel(x_ptr, factor_ptr, second_ptr, entries, SECOND: tl.constexpr, BLOCK: tl.constexpr):
    """x ← factor · x, in place; nothing is read or written if the factor is 1. With SECOND it is a product of two."""
    factor = tl.load(factor_ptr)
    if SECOND:
        factor *= tl.load(second_ptr)
    if factor != 1.0:
        for first in range(tl.program_id(0).to(tl.int64) * BLOCK, entries, tl.num_programs(0) * BLOCK):
            at = first + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + at, mask=at < entries)
            tl.store(x_ptr + at, (x.to(tl.float32) * factor).to(x.dtype), mask=at < entries)


def tl_dtype(dtype: torch.dtype) -> Any:
    """The type in which a kernel computes."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def margin_forward(
    logits: Tensor, labels: Tensor, ignore_index: int, *, out: tuple[Tensor, Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """logits (N, K) or (N, K, D), labels (N · D,) -> m, top and total, (N · D,) each, written to `out` if it is given."""
    if out is None:
        kept = torch.float64 if logits.dtype == torch.float64 else torch.float32
        m = torch.empty(labels.shape[0], dtype=kept, device=logits.device)
        out = (m, torch.empty_like(m), torch.empty_like(m))
    if labels.shape[0]:
        launcher = margin_launcher(logits.shape, logits.stride(), logits.dtype, labels.dtype, ignore_index)
        launcher((logits, labels, *out))
    return out


@lru_cache(1024)
def margin_launcher(
    shape: tuple[int, ...], steps: tuple[int, ...], dtype: torch.dtype, labels: torch.dtype, ignore_index: int
) -> Launcher:
    """The launcher for logits of this shape, strides and dtype, and labels of this dtype."""
    how, steps = layout(shape), padded(steps)
    constants = (tl_dtype(dtype), how.classes, width(steps, steps), how.tile, how.block, how.loop)
    return Launcher(margin_kernel, how.programs, how.warps, (how.rows, how.inner, *steps, ignore_index), constants)


def write_gradient(
    logits: Tensor,
    labels: Tensor,
    top: Tensor,
    total: Tensor,
    own: Tensor,
    ignore_index: int,
    *,
    others: Tensor | None = None,
    factor: Tensor | None = None,
    skip: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """∂z (N, K, D): own at the label, others (−own unless given) · softmax of the others elsewhere.

    top, total: from `margin_forward`; all (N · D,). factor: multiplies own, a scalar or one of each row in the shape of the
    labels. skip: 0 in ignored rows.
    """
    grad = torch.empty_like(logits) if out is None else out
    factors = 0
    if factor is not None:
        factors = 2 if any(factor.stride()) else 1  # one of each row, or a scalar, which may be expanded
        if factors == 2:
            factor = flat(factor)
    if labels.shape[0]:
        given = (logits, labels, top, total, own, own if others is None else others, factor, None, grad)
        dtypes = tuple([None if t is None else t.dtype for t in given])
        kind = (ignore_index, others is None, skip, factors)
        _gradient_launcher(logits.shape, logits.stride(), grad.stride(), dtypes, *kind)(given)
    return grad


@lru_cache(1024)
def _gradient_launcher(
    shape: tuple[int, ...],
    steps: tuple[int, ...],
    grad_steps: tuple[int, ...],
    dtypes: tuple[torch.dtype | None, ...],
    ignore_index: int,
    opposite: bool,
    skip: bool,
    factors: int,
) -> Launcher:
    """The launcher for logits of this shape, strides of logits and gradient, and tensors of these dtypes, the logits first."""
    how, steps, grad_steps = layout(shape), padded(steps), padded(grad_steps)
    kind = (tl_dtype(dtypes[0]), how.classes, width(steps, grad_steps), opposite, skip, factors)  # type: ignore[arg-type]
    integers = (how.rows, how.inner, *steps, *grad_steps, ignore_index)
    return Launcher(gradient_kernel, how.programs, how.warps, integers, (*kind, how.tile, how.block, how.loop))


def scale_(x: Tensor, factor: Tensor, second: Tensor | None = None, launcher: Launcher | None = None) -> Tensor:
    """x (dense, of any strides) ← factor · x, in place; factor and a second one, if given, are scalars on the device.

    launcher: from `scale_launcher` for this number of entries, if already available.
    """
    if second is None and x.numel() <= SMALL:
        return x.mul_(factor)
    if launcher is None:
        launcher = scale_launcher(x.numel(), x.dtype, second is not None)
    launcher((x, factor, second))
    return x


@lru_cache(1024)
def scale_launcher(entries: int, dtype: torch.dtype, second: bool) -> Launcher:
    """The launcher for this number of entries of this dtype, and one or two float32 scalars."""
    return Launcher(scale_kernel, min(1056, -(-entries // 4096)), 8, (entries,), (second, 4096))


@lru_cache(1024)
def factor_launcher(
    shape: tuple[int, ...], steps: tuple[int, ...], dtype: torch.dtype, labels: torch.dtype, ignore_index: int, factors: int
) -> Launcher:
    """What `write_gradient` launches with skip and one or two scalars as factors, into a tensor like the logits.

    Its tensors: logits, labels, top, total, own, own, the first factor, the second or None, and where the gradient goes.
    """
    like = torch.empty_strided(shape, steps, dtype=dtype, device="meta")
    dtypes = (dtype, labels, *(torch.float32,) * (4 + factors), dtype)
    return _gradient_launcher(shape, steps, torch.empty_like(like).stride(), dtypes, ignore_index, True, True, 2 * factors - 1)
