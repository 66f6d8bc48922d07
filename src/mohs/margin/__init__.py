"""The margin: one numerically stable number per example, from which the losses are computed.

    m = z_y − log Σ_{k≠y} e^{z_k}          the log-odds of the label: p = σ(m), 1 − p = σ(−m)
    ∂m/∂z = e_y − q                        q: softmax over the other classes, 0 at y

Accurate for logits of any size (|z| = 1e4 in float32 included), because the label's logit is never added to the
others. Half precision is raised to float32 here. −inf masks another class out, as it does in
`F.cross_entropy`; a NaN or +inf logit makes that row NaN.

CUDA tensors go through Triton kernels, one read of the logits for m and one read and one write for the gradient
(`_triton.py`; `MOHS_KERNELS=off` turns them off). Plain batches on CPU take few operations (`_quick.py`). The code below is
the plain version: the reference, and what runs everywhere else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.nn.functional import log_softmax

from mohs.margin._choose import takes
from mohs.margin._fused import fused_margin
from mohs.margin._quick import quick_margin

INF = float("inf")
NO_LABEL = -100
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def margin(logits: Tensor, labels: Tensor, *, ignore_index: int = NO_LABEL) -> Tensor:
    """The margin (log-odds) of each example's label.

    Args:
        logits: (N, K, ...), floating point.
        labels: (N, ...), integer class indices.
        ignore_index: Label of examples to ignore; their margin is that of class 0.

    Returns:
        m (N, ...), in float32 at least.
    """
    if takes(logits):
        check_labels(logits, labels, ignore_index=ignore_index)
        return fused_margin(logits, labels, ignore_index, partial(plain_margin, ignore_index=ignore_index))
    m = quick_margin(logits, labels, ignore_index, plain_margin)
    return plain_margin(logits, labels, ignore_index=ignore_index) if m is None else m


def plain_margin(logits: Tensor, labels: Tensor, *, ignore_index: int = NO_LABEL) -> Tensor:
    """`margin` without the kernels."""
    labels = checked_labels(logits, labels, ignore_index=ignore_index)
    m, _, _ = _Margin.apply(logits, labels.unsqueeze(1))
    return m  # type: ignore[no-any-return]  # (N, ...)


def all_margins(logits: Tensor) -> Tensor:
    """logits (N, K, ...) -> the margin of every class (N, K, ...), as if each were the label.

    Only the top class can have p > ½, where log p − log(1 − p) loses precision: it gets the exact margin.
    """
    top = logits.detach().argmax(1, keepdim=True)  # (N, 1, ...)
    exact = margin(logits, top.squeeze(1)).unsqueeze(1)
    log_p = log_probs(logits).scatter(1, top, -1.0)  # any value: the top is replaced below
    return (log_p - torch.log1p(-log_p.exp())).scatter(1, top, exact)  # (N, K, ...)


def log_probs(logits: Tensor) -> Tensor:
    """Log-softmax over the classes, in float32 at least."""
    return log_softmax(logits, 1, dtype=full_precision(logits.dtype))


def full_precision(dtype: torch.dtype) -> torch.dtype:
    """float64 stays; everything shorter is raised to float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def checked_labels(logits: Tensor, labels: Tensor, *, ignore_index: int = NO_LABEL) -> Tensor:
    """Labels for indexing: shape, dtype and (on CPU, outside torch.compile) range are validated; ignored ones become 0."""
    check_labels(logits, labels, ignore_index=ignore_index)
    labels = labels.long()
    return torch.where(labels == ignore_index, 0, labels)


def check_labels(logits: Tensor, labels: Tensor, *, ignore_index: int = NO_LABEL) -> None:
    """Validate logits, and the shape, dtype and (on CPU, outside torch.compile) range of labels."""
    check_logits(logits)
    expected = (logits.shape[0], *logits.shape[2:])
    if labels.shape != expected:
        raise ValueError(
            f"labels must have shape {expected} for logits of shape {tuple(logits.shape)}, got {tuple(labels.shape)}"
        )
    if labels.dtype not in INTEGERS:
        raise ValueError(f"labels must be integer class indices, got {labels.dtype}; convert them with labels.long()")
    if readable(labels):
        _check_range(labels, classes=logits.shape[1], ignore_index=ignore_index)


def readable(tensor: Tensor) -> bool:
    """Whether values may be read here: on CPU (on other devices a read would synchronize) and outside tracing."""
    return tensor.device.type == "cpu" and not is_traced(tensor)


def is_traced(tensor: Tensor) -> bool:
    """Whether torch.compile or a torch.func transform is running over this tensor, so that it has no value yet."""
    return torch.compiler.is_compiling() or is_functorch_wrapped_tensor(tensor) or is_legacy_batchedtensor(tensor)


def is_transformed(tensor: Tensor) -> bool:
    """Whether a torch.func transform is running, inside which a Module cannot update its buffers (torch.compile can)."""
    return not torch.compiler.is_compiling() and is_functorch_wrapped_tensor(tensor)


def check_logits(logits: Tensor) -> None:
    """Validate that logits are floating point of shape (N, K) or (N, K, d1, ...), K ≥ 2."""
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point, got {logits.dtype}")
    if logits.dim() < 2:
        raise ValueError(f"logits must have shape (N, K) or (N, K, d1, ...), got {tuple(logits.shape)}")
    if logits.shape[1] < 2:
        raise ValueError(f"logits must have at least 2 classes in dimension 1, got shape {tuple(logits.shape)}")


def _check_range(labels: Tensor, *, classes: int, ignore_index: int) -> None:
    if labels.numel() == 0 or (labels.min() >= 0 and labels.max() < classes):
        return
    wrong = ((labels < 0) | (labels >= classes)) & (labels != ignore_index)
    if wrong.any():
        place = [int(i) for i in wrong.nonzero()[0]]
        row = place[0] if len(place) == 1 else tuple(place)
        raise ValueError(
            f"labels[{row}] is {int(labels[tuple(place)])}, but logits have {classes} classes: "
            f"labels must lie in 0..{classes - 1} (or be ignore_index={ignore_index}); {int(wrong.sum())} label(s) do not"
        )


class _Margin(torch.autograd.Function):
    """(logits (N, K, ...), index (N, 1, ...)) -> m, e = exp(z − max) with 0 at the label, Σ e.

    One masked copy of the logits is turned into e in place and saved for the backward pass: two (N, K) arrays
    in total, where cross-entropy needs three. e and Σ e are outputs so that second derivatives are correct.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        own = logits.gather(1, index).to(full_precision(logits.dtype))
        e = logits.to(own.dtype, copy=True).scatter_(1, index, -INF)  # (N, K, ...)
        top = e.amax(1, keepdim=True)
        top.masked_fill_(top == -INF, 0.0)  # all other classes masked: Σ e = 0 and m = +inf
        total = e.sub_(top).exp_().sum(1, keepdim=True)  # (N, 1, ...)
        m = (own - top - total.log()).masked_fill_(own == INF, torch.nan)
        return m.squeeze(1), e, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.dtype = inputs[0].dtype
        ctx.save_for_backward(inputs[1], output[1], output[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        index, e, total = ctx.saved_tensors
        g, g_e, g_total = grads
        g = torch.zeros_like(total) if g is None else g.unsqueeze(1)
        scale = -g / total.masked_fill(total == 0, 1.0)
        grad = e * (scale if g_total is None else scale + g_total)  # (N, K, ...)
        if g_e is not None:
            grad = grad + g_e * e
        return grad.scatter_(1, index, g).to(ctx.dtype), None
