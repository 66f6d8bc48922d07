"""The options that all losses share, and the reduction of the examples' values to one number.

    mean = Σᵢ wᵢ ℓᵢ / Σᵢ wᵢ        wᵢ = weight[yᵢ] · sample_weightᵢ, and 0 where yᵢ = ignore_index

`sum` is the numerator and `none` its terms. As in `F.cross_entropy`, the mean over zero examples (an empty batch, or
one with all labels ignored) is NaN and the sum is 0; the gradient is 0. Losses of half-precision logits are returned in float32.
"""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from mohs._core.validation import check_between
from mohs.margin import NO_LABEL, check_tensors

REDUCTIONS = ("mean", "sum", "none")
SMOOTHABLE = "cross_entropy, encouraging and avh"


class Options(TypedDict, total=False):
    """The arguments that all losses share."""

    weight: Tensor | None
    ignore_index: int
    reduction: str
    label_smoothing: float
    sample_weight: Tensor | None


def reduce(
    values: Tensor,
    labels: Tensor,
    *,
    classes: int,
    also: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """values (N, ...) -> scalar, or (N, ...) for "none". `also` is added to the values after their class weight."""
    check_reduction(reduction)
    check_unsmoothed(label_smoothing)
    kept = labels.long() != ignore_index  # (N, ...)
    importance = None
    if weight is not None:
        check_weight(weight, classes)
        importance = weight.to(values)[torch.where(kept, labels.long(), 0)]
        values = values * importance
    if also is not None:
        values = values + also
    if sample_weight is not None:
        per_example = spread_sample_weight(sample_weight, labels).to(values)
        values = values * per_example
        importance = per_example if importance is None else importance * per_example
    values = torch.where(kept, values, 0.0)
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    return values.sum() / (kept if importance is None else torch.where(kept, importance, 0.0)).sum()


def spread_sample_weight(sample_weight: Tensor, labels: Tensor) -> Tensor:
    """sample_weight (N,) or as labels (N, d1, ...) -> the shape of labels."""
    check_tensors(sample_weight=sample_weight)
    if sample_weight.shape == labels.shape:
        return sample_weight
    if sample_weight.shape == labels.shape[:1]:
        return sample_weight.view(-1, *[1] * (labels.dim() - 1)).expand(labels.shape)
    shapes = dict.fromkeys((tuple(labels.shape[:1]), tuple(labels.shape)))
    raise ValueError(f"sample_weight must have shape {' or '.join(map(str, shapes))}, got {tuple(sample_weight.shape)}")


def row_weight(labels: Tensor, index: Tensor, classes: int, weight: Tensor | None, sample_weight: Tensor | None) -> Tensor | None:
    """Class weight times sample weight of each example, (N, ...), whose class is index (N, ...); None if there is neither."""
    if weight is not None:
        check_weight(weight, classes)
        weight = weight[index]
    if sample_weight is None:
        return weight
    each = spread_sample_weight(sample_weight, labels)
    return each if weight is None else weight * each


def check_weight(weight: Tensor, classes: int) -> None:
    """Validate that there is one weight per class."""
    if weight.shape != (classes,):
        raise ValueError(f"weight must have one entry for each of the {classes} classes, got shape {tuple(weight.shape)}")


def check_reduction(reduction: str) -> None:
    """Validate the name of the reduction."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")


def check_smoothing(label_smoothing: float) -> None:
    """Validate that 0 ≤ label_smoothing ≤ 1."""
    check_between("label_smoothing", label_smoothing, 0.0, 1.0)


def check_unsmoothed(label_smoothing: float) -> None:
    """Validate that a loss for which label smoothing is not defined is not smoothed."""
    if label_smoothing != 0:
        raise ValueError(f"label_smoothing={label_smoothing} is not defined for this loss (only for {SMOOTHABLE}); use 0")
