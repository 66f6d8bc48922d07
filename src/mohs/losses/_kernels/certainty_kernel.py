"""ADR and the entropy penalty on one Triton kernel: softmax, entropy, the τ largest, value and gradient of each row at once.

    ∂z_j = p_j (−h (log p_j + H) − 2 t T + [j among the τ largest] 2 t p_j)      h = ∂F/∂H, t = ∂F/∂T

T and F: `mohs.losses.adr`. log p of the largest class is −log1p of the others' sum, so H is exact for certain predictions too.
For at most 32,768 classes, which a program holds in registers: one read and one write. Second derivatives, float16 (whose
gradient must include the loss scale) and float64 take the plain version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mohs.losses._kernels.curves import exact_exp, log1p
from mohs.margin._choose import keeps_graph, needs_plain, plain_gradient
from mohs.margin._launch import launch
from mohs.margin._triton import INF, layout, load, offsets, scale_, strides, three, width

MOST = 8  # the largest τ
WHOLE = 32768  # the most classes


@triton.jit(do_not_specialize=["rows"])
def certainty_kernel(
    z_ptr, value_ptr, grad_ptr,
    rows, inner, stride_n, stride_k, stride_d, grad_n, grad_k, grad_d,
    log_classes, floor,
    classes: tl.constexpr, WIDTH: tl.constexpr, ENTROPY: tl.constexpr, TAU: tl.constexpr, NORMALIZER: tl.constexpr,
    DETACH: tl.constexpr, GRAD: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """F/N of each row, or H/N with ENTROPY, and its gradient."""
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
    e = tl.where(inside, tl.exp(low), 0.0)
    others = tl.sum(tl.where(cols[None, :] == first[:, None], 0.0, e), 1)
    log_total = log1p(others)
    scale = 1.0 / (1.0 + others)
    entropy = log_total - scale * tl.sum(e * low, 1)
    p = e * scale[:, None]
    if ENTROPY:
        value, by_h, by_t = entropy, tl.full((TILE,), 1.0, tl.float32), tl.zeros((TILE,), tl.float32)
        chosen = tl.zeros((TILE, BLOCK), tl.int1)
        squares = tl.zeros((TILE,), tl.float32)
    else:
        left = tl.where(cols[None, :] == first[:, None], -1.0, tl.where(inside, p, -1.0))
        chosen = cols[None, :] == first[:, None]
        squares = scale * scale
        for _ in tl.static_range(TAU - 1):
            high, place = tl.max(left, 1, return_indices=True)
            squares += high * high
            here = cols[None, :] == place[:, None]
            chosen = chosen | here
            left = tl.where(here, -1.0, left)
        phi = entropy / log_classes
        moves = (phi >= floor) & (phi <= 1.0)
        phi = tl.where(phi < floor, floor, tl.where(phi > 1.0, 1.0, phi))
        exponent = -squares / (2.0 * phi)
        if NORMALIZER:
            exponent -= 0.5 * TAU * tl.log(6.283185307179586 * phi)
        value = exact_exp(exponent)
        by_t = -value / (2.0 * phi)
        by_phi = value * squares / (2.0 * phi * phi)
        if NORMALIZER:
            by_phi -= value * (0.5 * TAU) / phi
        by_h = tl.where(moves, by_phi, 0.0) / log_classes
        if DETACH:
            by_h = tl.zeros((TILE,), tl.float32)
    each = 1.0 / rows
    bad = tl.where(top == INF, float("nan"), top * 0.0)  # a NaN or infinite logit makes its row NaN
    tl.store(value_ptr + row, (value + bad + entropy * 0.0) * each, mask=live)
    if GRAD:
        line = -by_h[:, None] * (low - log_total[:, None] + entropy[:, None]) - (2.0 * by_t * squares)[:, None]
        g = p * tl.where(chosen, line + 2.0 * by_t[:, None] * p, line) * each
        where = grad_ptr + offsets(row, inner, grad_n, grad_d)[:, None] + cols.to(tl.int64)[None, :] * grad_k
        tl.store(where, g.to(grad_ptr.dtype.element_ty), mask=inside)


class Certainty(NamedTuple):
    """Which mean is asked for: of F, or of H (`entropy`)."""

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
        and 2 <= logits.shape[1] <= WHOLE
        and tau <= min(MOST, logits.shape[1])
        and logits.numel() > 0
    )


def fused_certainty(logits: Tensor, asked: Certainty) -> Tensor:
    """logits (N, K, ...) -> the mean of F, or of the entropy."""
    return _FusedCertainty.apply(logits, asked)  # type: ignore[no-any-return]


class _FusedCertainty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, asked: Certainty) -> Tensor:
        z = three(logits)
        how = layout(z)
        if how.loop:  # this kernel holds all classes
            how = how._replace(block=triton.next_power_of_2(how.classes), warps=16)
        grad = torch.empty_like(z) if ctx.needs_input_grad[0] else None
        value = torch.empty(how.rows, dtype=torch.float32, device=logits.device)
        launch(
            certainty_kernel,
            how.programs,
            how.warps,
            (z, value, grad),
            (how.rows, how.inner, *strides(z), *strides(z if grad is None else grad)),
            (math.log(how.classes), asked.floor),
            (
                how.classes,
                width(z, z if grad is None else grad),
                asked.entropy,
                asked.tau,
                asked.normalizer,
                asked.detach,
                grad is not None,
                how.tile,
                how.block,
            ),
            (z, grad),
        )
        ctx.asked, ctx.written = asked, grad
        if grad is not None:
            ctx.save_for_backward(logits)
        return value.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (logits,) = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(ctx.asked.plain, logits, grads[0]), None
        if keeps_graph():
            grad = ctx.written * grads[0]
        else:
            grad, ctx.written = ctx.written, None
            scale_(grad, grads[0])
        return grad.view(logits.shape), None
