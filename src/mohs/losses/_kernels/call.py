"""What a kernel needs of a loss besides the logits: its labels and options, validated."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mohs.losses._reduction import check_reduction, check_weight, spread_sample_weight
from mohs.margin import NO_LABEL, check_labels, readable
from mohs.margin._choose import SHORT

MOST = 4096  # kinds of calls remembered
_valid: set[tuple[Any, ...]] = set()


class KernelCall(NamedTuple):
    """Labels and options that a kernel takes."""

    labels: Tensor
    weight: Tensor | None
    sample_weight: Tensor | None  # the shape of the labels
    ignore_index: int
    reduction: str
    smoothing: float


def kernel_call(
    logits: Tensor,
    labels: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> KernelCall | None:
    """The validated options if the kernels take this call, whose logits they take: at least one row, no gradient to weights.

    Shapes, dtypes and reduction are validated at the first call with them.
    """
    if torch.compiler.is_compiling():
        return None
    kind = (logits.shape, logits.dtype, labels.shape, labels.dtype, reduction)
    if kind not in _valid or readable(labels):
        if logits.dtype not in SHORT:
            return None
        check_reduction(reduction)
        check_labels(logits, labels, ignore_index=ignore_index)
        if len(_valid) >= MOST:
            _valid.clear()
        _valid.add(kind)
    if weight is not None:
        check_weight(weight, logits.shape[1])
        if weight.requires_grad:
            return None
    if sample_weight is not None:
        if sample_weight.requires_grad:
            return None
        sample_weight = spread_sample_weight(sample_weight, labels)
    return KernelCall(labels, weight, sample_weight, ignore_index, reduction, label_smoothing) if labels.numel() else None
