"""Triton kernels of AVH: rows to unit length in one pass, and the score from cosines in one read.

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
MOST_FEATURES = 8192  # that a program holds
CHUNK_ENTRIES = 2**23  # 32 MB of cosines at a time: within a GPU's cache


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


@triton.jit(do_not_specialize=["rows"])
def avh_kernel(
    cos_ptr, u_ptr, v_ptr, y_ptr, out_ptr, rows, noise,
    classes: tl.constexpr, features: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """AVH of a row from its cosines to all classes, its unit vector, and that of its label."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(y_ptr + row)
    known = (y >= 0) & (y < classes)
    y = tl.where(known, y, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, classes, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        c = tl.load(cos_ptr + row * classes + cols, mask=cols < classes, other=0.0)
        c = tl.where(c > 1.0, 1.0, tl.where(c < -1.0, -1.0, c))
        total += tl.where((cols < classes) & (cols != y), arccos(c), 0.0)
    at = tl.arange(0, BLOCK_D)
    u = tl.load(u_ptr + row * features + at, mask=at < features, other=0.0)
    v = tl.load(v_ptr + y * features + at, mask=at < features, other=0.0)
    across, along = tl.sqrt(tl.sum((u - v) * (u - v), 0)), tl.sqrt(tl.sum((u + v) * (u + v), 0))
    void = (tl.max(tl.abs(u), 0) == 0.0) | (tl.max(tl.abs(v), 0) == 0.0)
    half = tl.minimum(0.5 * tl.minimum(across, along), 1.0)
    own = tl.where(half > 0.5, arccos(1.0 - 2.0 * half * half), 2.0 * asin(half, half * half))
    own = tl.where(across <= along, own, PI - own)
    own = tl.where(void, 0.5 * PI, own) + 0.0 * (across + along)  # NaN stays NaN
    whole = tl.sum(total, 0) + own
    score = tl.where(whole < noise, 1.0 / classes, own / whole)
    tl.store(out_ptr + row, tl.where(known, score, float("nan")))


def fused_avh(features: Tensor, directions: Tensor, labels: Tensor, noise: float) -> Tensor:
    """features (N, D), unit class weights (K, D) in float32, labels (N,) -> AVH (N,); noise: as in `share`."""
    (count, size), classes = features.shape, directions.shape[0]
    features, directions, labels = features.contiguous(), directions.contiguous(), labels.contiguous()
    step = max(1, CHUNK_ENTRIES // max(classes, size))
    units = directions.new_empty(min(step, count), size)
    cosines = directions.new_empty(min(step, count), classes)
    scores = directions.new_empty(count)
    block = triton.next_power_of_2(size)
    for start in range(0, count, step):
        x, y, out = (part[start : start + step] for part in (features, labels, scores))
        n = x.shape[0]
        u, cos = units[:n], cosines[:n]
        launch(unit_kernel, n, 4, (x, u), (n, size), (TINY,), (size, block), (x,))
        with torch.autocast(x.device.type, enabled=False):
            torch.mm(u, directions.T, out=cos)
        constants = (classes, size, min(2048, triton.next_power_of_2(classes)), block)
        launch(avh_kernel, n, 4, (cos, u, directions, y, out), (n,), (noise,), constants, (y, out))
    return scores
