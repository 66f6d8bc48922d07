"""The margin on the Triton kernels: an autograd function for eager mode, and `torch.library` operators for torch.compile.

Second derivatives take the plain version. Triton is imported at the first call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mohs.margin._choose import Plain, needs_plain, plain_gradient


def fused_margin(logits: Tensor, labels: Tensor, ignore_index: int, plain: Plain) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> m (N, ...); `plain` computes the same with plain operations."""
    if torch.compiler.is_compiling():
        return torch.ops.mohs.margin(logits, labels, ignore_index)[0]  # type: ignore[no-any-return]
    return _FusedMargin.apply(logits, labels, ignore_index, plain)  # type: ignore[no-any-return]


class _FusedMargin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, ignore_index: int, plain: Plain) -> Tensor:
        m, top, total = _forward(logits, labels, ignore_index)
        ctx.save_for_backward(logits, labels, top, total)
        ctx.ignore_index, ctx.plain = ignore_index, plain
        return m

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        logits, labels, top, total = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(ctx.plain, logits, grads[0]), None, None, None
        return _gradient(logits, labels, top, total, grads[0], ctx.ignore_index), None, None, None


@torch.library.custom_op("mohs::margin", mutates_args=())
def _margin_op(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    return _forward(logits, labels, ignore_index)


@torch.library.custom_op("mohs::margin_gradient", mutates_args=())
def _gradient_op(logits: Tensor, labels: Tensor, top: Tensor, total: Tensor, grad: Tensor, ignore_index: int) -> Tensor:
    return _gradient(logits, labels, top, total, grad, ignore_index)


@_margin_op.register_fake
def _(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    m = torch.empty_like(labels, dtype=wide, memory_format=torch.contiguous_format)
    return m, torch.empty_like(m), torch.empty_like(m)


@_gradient_op.register_fake
def _(logits: Tensor, labels: Tensor, top: Tensor, total: Tensor, grad: Tensor, ignore_index: int) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, labels, ctx.ignore_index = inputs
    ctx.save_for_backward(logits, labels, *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
    return torch.ops.mohs.margin_gradient(*ctx.saved_tensors, grads[0], ctx.ignore_index), None, None


_margin_op.register_autograd(_backward, setup_context=_save)


def _forward(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    from mohs.margin._triton import flat, margin_forward, three

    m, top, total = margin_forward(three(logits), flat(labels), ignore_index)
    return m.view(labels.shape), top.view(labels.shape), total.view(labels.shape)


def _gradient(logits: Tensor, labels: Tensor, top: Tensor, total: Tensor, grad: Tensor, ignore_index: int) -> Tensor:
    from mohs.margin._triton import flat, three, write_gradient

    z = three(logits)
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    write_gradient(z, flat(labels), flat(top), flat(total), flat(grad), ignore_index, out=out)
    return out.view(logits.shape)
