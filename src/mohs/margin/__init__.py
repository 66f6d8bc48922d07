"""The margin: one numerically stable number per example, from which the losses are computed.

    m = z_y − log Σ_{k≠y} e^{z_k}          the log-odds of the label: p = σ(m), 1 − p = σ(−m)
    ∂m/∂z = e_y − q                        q: softmax over the other classes, 0 at y

Accurate for logits of any size (|z| = 1e4 in float32 included), because the label's logit is never added to the
others. Half precision is raised to float32 here. −inf masks another class out, as it does in
`F.cross_entropy`; a NaN or +inf logit makes that row NaN.

CUDA tensors go through Triton kernels, one read of the logits for m and one read and one write for the gradient
(`_triton.py`; `MOHS_KERNELS=off` turns them off). CPU tensors take few operations (`_quick.py`). The code below is the plain
version, of ordinary differentiable operations: the reference, and what runs everywhere else (second and forward-mode
derivatives, `torch.func`, `torch.compile`, `torch.export`, other devices).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.nn import functional as F  # noqa: N812

from mohs.margin._choose import takes
from mohs.margin._fused import fused_margin
from mohs.margin._quick import on_cpu, quick_margin

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
    plain = partial(plain_margin, labels=labels, ignore_index=ignore_index)
    if takes(logits):
        check_labels(logits, labels, ignore_index=ignore_index)
        return fused_margin(logits, labels, ignore_index, plain)
    if on_cpu(logits, labels):
        return quick_margin(logits, checked_labels(logits, labels, ignore_index=ignore_index), plain)
    return plain(logits)


def plain_margin(logits: Tensor, labels: Tensor, *, ignore_index: int = NO_LABEL) -> Tensor:
    """`margin` by ordinary differentiable operations."""
    index = checked_labels(logits, labels, ignore_index=ignore_index).unsqueeze(1)
    logits = logits.to(full_precision(logits.dtype))
    own, others = logits.gather(1, index), logits.scatter(1, index, -INF)  # (N, 1, ...), (N, K, ...)
    top = others.detach().amax(1, keepdim=True)
    top = top.masked_fill(top == -INF, 0.0)
    total = (others - top).exp().sum(1, keepdim=True)
    alone = total == 0  # all other classes are masked: m = +inf
    m = own - top - total.masked_fill(alone, 1.0).log().masked_fill(alone, -INF)
    return m.masked_fill(own == INF, torch.nan).squeeze(1)  # (N, ...)


def softplus(x: Tensor) -> Tensor:
    """log(1 + eˣ), elementwise: softplus(−m) = −log p. Unlike PyTorch's default it is exact in float64 for x over 20 too."""
    return F.softplus(x, threshold=40.0)  # beyond which e⁻ˣ/x is less than the rounding error of float64


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
    return F.log_softmax(logits, 1, dtype=full_precision(logits.dtype))


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
    shape = logits.shape
    if labels.shape != shape[:1] + shape[2:]:
        raise ValueError(
            f"labels must have shape {(shape[0], *shape[2:])} for logits of shape {tuple(shape)}, got {tuple(labels.shape)}"
        )
    if labels.dtype not in INTEGERS:
        raise ValueError(f"labels must be integer class indices, got {labels.dtype}; convert them with labels.long()")
    if readable(labels):
        _check_range(labels, classes=logits.shape[1], ignore_index=ignore_index)


def readable(tensor: Tensor) -> bool:
    """Whether values may be read here: on CPU (on other devices a read would synchronize) and outside tracing."""
    return tensor.is_cpu and not is_traced(tensor)


def is_traced(tensor: Tensor) -> bool:
    """Whether torch.compile or a torch.func transform is running over this tensor, so that it has no value yet."""
    return torch.compiler.is_compiling() or is_functorch_wrapped_tensor(tensor) or is_legacy_batchedtensor(tensor)


def is_transformed(tensor: Tensor) -> bool:
    """Whether a torch.func transform is running, inside which a Module cannot update its buffers (torch.compile can)."""
    return not torch.compiler.is_compiling() and is_functorch_wrapped_tensor(tensor)


def check_tensors(**given: object) -> None:
    """Validate that these arguments are tensors."""
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(value).__name__}; convert it with torch.as_tensor({name})")


def check_logits(logits: Tensor, *, classes: int = 1) -> None:
    """Validate that logits are floating point of shape (N, K) or (N, K, d1, ...), with at least this number of classes."""
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point, got {logits.dtype}")
    if logits.dim() < 2:
        raise ValueError(f"logits must have shape (N, K) or (N, K, d1, ...), got {tuple(logits.shape)}")
    if logits.shape[1] < classes:
        few = "1 class" if classes == 1 else f"{classes} classes"
        raise ValueError(f"logits must have at least {few} in dimension 1, got shape {tuple(logits.shape)}")


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
