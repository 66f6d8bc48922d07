"""From a curve ℓ of the margin to a loss of logits and labels, by the fastest implementation for the call.

    a CUDA tensor            the kernel of the curve (`_kernels`), or the margin's, and autograd over the curve
    a CPU tensor             margin, curve and emphasis as one operation (`margin/_quick.py`)
    terms of all classes     on CPU blocks of rows (`_numerics/row_blocks.py`)

Everything else (tracing, `torch.func`, second and forward-mode derivatives) takes the plain version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mohs.losses._numerics.emphases import with_emphasis
from mohs.losses._reduction import Options, check_reduction, check_smoothing, check_unsmoothed, reduce, row_weight
from mohs.losses.soft_labels import smoothed_terms
from mohs.margin import NO_LABEL, check_logits, checked_labels, full_precision, margin, plain_margin
from mohs.margin._choose import takes
from mohs.margin._quick import Pair, on_cpu, quick_loss

_kernels: Any = None  # module of the kernels, imported at the first call
Curve = Callable[[Tensor], Tensor]
Margin = Callable[..., Tensor]
Plain = Callable[..., Tensor]  # (logits, margin function) -> loss


def curve_loss(
    curve: Curve,
    logits: Tensor,
    labels: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """A loss that depends on the label's probability alone: its curve ℓ(m) at each example's margin, reduced."""
    if label_smoothing:
        check_unsmoothed(label_smoothing)
    options: Options = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction, "sample_weight": sample_weight}

    def plain(logits: Tensor, margin_of: Margin = plain_margin) -> Tensor:
        m = margin_of(logits, labels, ignore_index=ignore_index)
        return reduce(curve(m), labels, classes=logits.shape[1], **options)

    if takes(logits):
        return _by_kernel(curve, logits, labels, plain, weight, ignore_index, reduction, 0.0, sample_weight)
    return by_emphasis(with_emphasis(curve), logits, labels, plain, **options)


def smoothed_curve_loss(
    curve: Curve,
    logits: Tensor,
    labels: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """(1 − a) ℓ(m_y) + (a/K) Σ_j ℓ(m_j), a: the label smoothing; each class's term is multiplied by its class weight."""
    options: Options = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction, "sample_weight": sample_weight}
    a = label_smoothing
    if a == 0:
        return curve_loss(curve, logits, labels, **options)
    check_smoothing(a)
    check_logits(logits)

    def plain(logits: Tensor, margin_of: Margin = plain_margin) -> Tensor:
        logits = logits.to(full_precision(logits.dtype))  # once, so that the two gradients are added in float32
        own, every = smoothed_terms(curve, logits, labels, margin_of=margin_of, weight=weight, ignore_index=ignore_index)
        every = a / logits.shape[1] * every
        return reduce((1 - a) * own, labels, classes=logits.shape[1], also=every, **options)

    if takes(logits):
        return _by_kernel(curve, logits, labels, plain, weight, ignore_index, reduction, a, sample_weight)
    return plain(logits, margin)


def by_emphasis(
    pair: Pair | None,
    logits: Tensor,
    labels: Tensor,
    plain: Plain,
    *,
    over_batch: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """A loss on CPU from a curve with its emphasis; the plain version where there is none, or for other tensors.

    Args:
        pair: m (N, 1, ...) -> ℓ(m), w = −dℓ/dm.
        logits: (N, K, ...).
        labels: (N, ...).
        plain: The same loss by differentiable operations, given a function for the margin.
        over_batch: Whether the curve of an example depends on the other examples, so that none may be ignored.
        weight, ignore_index, reduction, label_smoothing, sample_weight: As for every loss.

    Returns:
        A scalar, or (N, ...) for reduction="none".
    """
    if pair is None or not on_cpu(logits, labels):
        return plain(logits, margin)
    check_reduction(reduction)
    check_unsmoothed(label_smoothing)
    if (
        weight is None
        and sample_weight is None
        and logits.dim() > 1
        and logits.is_floating_point()
        and labels.dtype == torch.int64
        and labels.shape == logits.shape[:1] + logits.shape[2:]
        and not 0 <= ignore_index < logits.shape[1]
    ):
        try:
            return quick_loss(logits, labels, pair, plain, reduction=reduction)
        except RuntimeError:  # a label that is not a class: ignored, or out of range
            pass
    index = checked_labels(logits, labels, ignore_index=ignore_index)
    kept = labels != ignore_index
    ignores = not kept.all()
    each = row_weight(labels, index, logits.shape[1], weight, sample_weight)
    if (over_batch and ignores) or (each is not None and each.requires_grad):
        return plain(logits, margin)
    return quick_loss(logits, index, pair, plain, reduction=reduction, weight=each, kept=kept if ignores else None)


def _by_kernel(curve: Curve, logits: Tensor, labels: Tensor, plain: Plain, *options: Any) -> Tensor:
    """The loss by its kernel where there is one for this call, or the plain version with the kernels of the margin.

    options: weight, ignore_index, reduction, label_smoothing and sample_weight, in this order.
    """
    global _kernels
    if torch.compiler.is_compiling():
        return plain(logits, margin)
    if _kernels is None:
        from mohs.losses._kernels import fused_loss as _kernels
    known = _kernels.curve_of(curve)
    value = None if known is None else _kernels.fused_loss(known, logits, labels, plain, *options)
    return plain(logits, margin) if value is None else value
