"""Triton kernels of AVH: rows to unit length in one pass, and their product with the class weights up to the score in another.

arccos c = π/2 − asin c up to |c| = ½, else 2 asin √((1 − c)/2), mirrored for c < 0     asin: a polynomial, to float32 rounding
θ_y      = 2 asin s up to s = ½, else arccos(1 − 2 s²); s = ‖u − v‖/2              of the label, exact near 0; from ‖u + v‖ near π
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.angle import TINY
from mohs.margin._launch import launch

PI = tl.constexpr(3.141592653589793)
CHUNK_ENTRIES = 2**26  # 256 MB of unit vectors at a time
ROWS = 128  # of a program
DEPTH = 32  # features of a step of the product
PRECISION = "ieee" if torch.version.hip else "tf32x3"  # three products of halves on the matrix units, nearly float32's digits


@triton.jit(do_not_specialize=["rows"])
def unit_kernel(x_ptr, u_ptr, rows, stride, tiny, features: tl.constexpr, BLOCK: tl.constexpr):
    """u = x/‖x‖ of a row, by way of its largest entry, so that no square over- or underflows; 0 for a zero row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < features, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(x), 0)
    x = tl.where(largest < tiny, 0.0, x / tl.where(largest < tiny, 1.0, largest))
    length = tl.sqrt(tl.sum(x * x, 0))
    tl.store(u_ptr + row * features + cols, x / tl.where(largest < tiny, 1.0, length), mask=cols < features)


@triton.jit
def asin(s, z):
    """asin s for 0 ≤ s ≤ ½; z = s²."""
    p = (((4.2163199048e-2 * z + 2.4181311049e-2) * z + 4.5470025998e-2) * z + 7.4953002686e-2) * z + 1.6666752422e-1
    return s + s * z * p


@triton.jit
def arccos(c):
    """arccos c for −1 ≤ c ≤ 1."""
    size = tl.abs(c)
    far = size > 0.5
    z = tl.where(far, 0.5 - 0.5 * size, c * c)
    angle = asin(tl.where(far, tl.sqrt(z), size), z)
    angle = tl.where(far, 2.0 * angle, 0.5 * PI - angle)  # of |c|
    return tl.where(c < 0, PI - angle, angle)


@triton.jit
def directions(base, index, at, features: tl.constexpr, DEPTH: tl.constexpr):
    """Entries `at` (DEPTH,) of the unit vectors with this index (n,): (n, DEPTH), 0 beyond the features."""
    where = base + index.to(tl.int64)[:, None] * features + at[None, :]
    return tl.load(where) if features % DEPTH == 0 else tl.load(where, mask=(at < features)[None, :], other=0.0)


@triton.jit(do_not_specialize=["rows"])
def avh_kernel(
    u_ptr, v_ptr, y_ptr, out_ptr, rows, noise,
    classes: tl.constexpr, features: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """AVH of a tile of rows from their unit vectors and those of the classes; the cosines stay in registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < rows
    row = tl.minimum(row, rows - 1)
    y = tl.load(y_ptr + row)
    known = (y >= 0) & (y < classes)
    y = tl.where(known, y, 0)
    total = tl.zeros((ROWS,), tl.float32)
    for first in range(0, classes, COLS):
        cols = first + tl.arange(0, COLS)
        c = tl.zeros((ROWS, COLS), tl.float32)
        for k in range(0, features, DEPTH):
            at = k + tl.arange(0, DEPTH)
            u = directions(u_ptr, row, at, features, DEPTH)
            v = directions(v_ptr, tl.minimum(cols, classes - 1), at, features, DEPTH)
            c = tl.dot(u, v.T, c, input_precision=PRECISION)
        c = tl.where(c > 1.0, 1.0, tl.where(c < -1.0, -1.0, c))
        total += tl.sum(tl.where((cols < classes)[None, :] & (cols[None, :] != y[:, None]), arccos(c), 0.0), 1)
    across = tl.zeros((ROWS,), tl.float32)
    along = tl.zeros((ROWS,), tl.float32)
    u_length = tl.zeros((ROWS,), tl.float32)
    v_length = tl.zeros((ROWS,), tl.float32)
    for k in range(0, features, DEPTH):
        at = k + tl.arange(0, DEPTH)
        u = directions(u_ptr, row, at, features, DEPTH)
        v = directions(v_ptr, y, at, features, DEPTH)
        across += tl.sum((u - v) * (u - v), 1)
        along += tl.sum((u + v) * (u + v), 1)
        u_length += tl.sum(u * u, 1)
        v_length += tl.sum(v * v, 1)
    half = tl.minimum(0.5 * tl.sqrt(tl.minimum(across, along)), 1.0)
    own = tl.where(half > 0.5, arccos(1.0 - 2.0 * half * half), 2.0 * asin(half, half * half))
    own = tl.where(across <= along, own, PI - own)
    own = tl.where((u_length == 0.0) | (v_length == 0.0), 0.5 * PI, own) + 0.0 * (across + along)  # NaN stays NaN
    whole = total + own
    score = tl.where(whole < noise, 1.0 / classes, own / whole)
    tl.store(out_ptr + row, tl.where(known, score, float("nan")), mask=live)


def fused_avh(features: Tensor, weight: Tensor, labels: Tensor, noise: float) -> Tensor:
    """features (N, D), unit class weights (K, D) in float32, labels (N,) -> AVH (N,); noise: as in `share`."""
    (count, size), classes = features.shape, weight.shape[0]
    features, weight, labels = features.contiguous(), weight.contiguous(), labels.contiguous()
    step = max(ROWS, CHUNK_ENTRIES // size)
    units, scores = weight.new_empty(min(step, count), size), weight.new_empty(count)
    cols = min(128, max(16, triton.next_power_of_2(classes)))
    for start in range(0, count, step):
        x, y, out = (part[start : start + step] for part in (features, labels, scores))
        n = x.shape[0]
        u = units[:n]
        launch(unit_kernel, n, 4, (x, u), (n, size), (TINY,), (size, triton.next_power_of_2(size)))
        precision = "ieee" if size <= DEPTH else PRECISION  # with few features, cosines within rounding of 1 are common
        constants = (classes, size, precision, ROWS, cols, DEPTH)
        launch(avh_kernel, -(-n // ROWS), 8, (u, weight, y, out), (n,), (noise,), constants)
    return scores
