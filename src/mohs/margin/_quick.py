"""The margin on CPU for the common case, in few operations: small batches cost little more than `F.cross_entropy`.

The common case: finite float32 or float64 logits (N, K) and int64 labels that are all classes. Then no label is ignored, no
class is masked, and neither needs an operation of its own: `gather` rejects other labels, and the sum of the margins
shows whether they are finite. The gradient reuses the saved array unless the graph is kept.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from mohs.margin._choose import Plain, keeps_graph, ordinary

INF = float("inf")


def quick_margin(logits: Tensor, labels: Tensor, ignore_index: int, plain: Plain) -> Tensor | None:
    """logits (N, K), labels (N,) -> m (N,); None unless this is the common case. `plain` computes second derivatives."""
    if (
        logits.device.type != "cpu"
        or logits.dim() != 2
        or labels.shape != logits.shape[:1]
        or labels.dtype != torch.int64
        or logits.dtype not in (torch.float32, torch.float64)
        or logits.shape[0] == 0
        or logits.shape[1] < 2
        or 0 <= ignore_index < logits.shape[1]
        or torch.compiler.is_compiling()
        or not ordinary(logits)
        or is_functorch_wrapped_tensor(labels)
    ):
        return None
    try:
        return _QuickMargin.apply(logits, labels, plain)  # type: ignore[no-any-return]
    except (_UncommonError, RuntimeError, IndexError):
        return None


class _UncommonError(Exception):
    """A margin is not finite."""


class _QuickMargin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, plain: Plain) -> Tensor:
        index = labels.unsqueeze(1)
        own = logits.gather(1, index)  # an error for a label that is no class
        e = logits.scatter(1, index, -INF)
        top = e.amax(1, keepdim=True)
        total = e.sub_(top).exp_().sum(1, keepdim=True)
        m = own.sub_(top).sub_(total.log()).squeeze(1)
        if not math.isfinite(m.sum().item()):
            raise _UncommonError
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, labels)
            ctx.e, ctx.total, ctx.plain = e, total, plain
        return m

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return *torch.autograd.grad(ctx.plain(logits, labels), logits, grads[0], create_graph=True), None, None
        g = grads[0].unsqueeze(1)
        scale = g / ctx.total
        if keeps_graph():
            grad = ctx.e * scale.neg_()
        else:
            grad, ctx.e = ctx.e.mul_(scale.neg_()), None
        return grad.scatter_(1, labels.unsqueeze(1), g), None, None
