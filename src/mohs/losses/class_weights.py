"""Class imbalance: the number of examples per class, and the class weights that compensate for it.

    n_j = #{i : yᵢ = j}
    w_j ∝ (1 − β) / (1 − β^{n_j}),  Σ_j w_j = K               class-balanced: 1 over the effective number of examples
    deferred: w_j = 1 before epoch `start`, class-balanced from then on

β = 0 gives equal weights, β → 1 weights 1/n_j. A class without examples gets weight 1, the mean of the others, so that
the sum stays K. Pass the result to any loss as `weight`; its mean is then over Σ w_y, as in `F.cross_entropy`.
Cui et al., "Class-balanced loss based on effective number of samples" (CVPR 2019); deferred re-weighting: Cao et al.,
"Learning imbalanced datasets with label-distribution-aware margin loss" (NeurIPS 2019), algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mohs.losses._class_table import check_table, number_table
from mohs.margin import INTEGERS, NO_LABEL, readable


def class_counts(labels: Tensor, num_classes: int, *, ignore_index: int = NO_LABEL) -> Tensor:
    """The number of examples of each class.

    Args:
        labels: Integer class indices, of any shape.
        num_classes: Number of classes K.
        ignore_index: Label that is not counted.

    Returns:
        Counts (K,), int64.
    """
    labels = number_table("labels", labels)
    if labels.dtype not in INTEGERS and labels.numel():
        raise ValueError(f"labels must be integer class indices, got {labels.dtype}; convert them with labels.long()")
    kept = labels.long().flatten()
    kept = kept[kept != ignore_index]
    wrong = kept[(kept < 0) | (kept >= num_classes)]
    if len(wrong):
        raise ValueError(f"labels hold {int(wrong[0])}, but num_classes={num_classes}: they must lie in 0..{num_classes - 1}")
    return torch.bincount(kept, minlength=num_classes)


def class_weights(
    counts: Tensor, class_weight: str | Mapping[int, float] | None = None, *, beta: float = 0.9999
) -> Tensor | None:
    """Class weights for a loss's `weight` option.

    Args:
        counts: Number of training examples of each class (K,), as from `class_counts`.
        class_weight: "auto" for class-balanced weights, a dict {class: weight} (classes not in it get 1), or None.
        beta: β of the class-balanced weights.

    Returns:
        Weights (K,), or None if class_weight is None.
    """
    counts = number_table("counts", counts)
    check_counts(counts, least=0)
    if class_weight is None:
        return None
    if isinstance(class_weight, Mapping):
        return _listed(class_weight, counts)
    if isinstance(class_weight, str) and class_weight == "auto":
        return _balanced(counts, beta)
    raise ValueError(f"class_weight must be None, 'auto' or a dict from class to weight, got {class_weight!r}")


def deferred_weights(counts: Tensor, *, epoch: int, start: int, beta: float = 0.9999) -> Tensor:
    """Class weights (K,) for an epoch (the first is 0): all 1 before `start`, class-balanced from then on."""
    counts = number_table("counts", counts)
    check_counts(counts, least=0)
    weights = _balanced(counts, beta)
    return torch.ones_like(weights) if epoch < start else weights


def checked_counts(counts: Tensor, classes: int) -> Tensor:
    """The counts of a loss as a tensor (K,), validated; their values only if that needs no host synchronization."""
    counts = number_table("counts", counts)
    check_table("counts", counts, (classes,))
    if readable(counts):
        check_counts(counts)
    return counts


def check_counts(counts: Tensor, *, least: int = 1) -> None:
    """Validate that counts are a vector (K,) of finite numbers ≥ `least`, not all 0."""
    if counts.dim() != 1 or len(counts) < 2:
        raise ValueError(f"counts must hold one number for each of at least 2 classes, got shape {tuple(counts.shape)}")
    wrong = ~((counts >= least) & counts.isfinite())
    if wrong.any():
        j = int(wrong.nonzero()[0])
        raise ValueError(
            f"counts[{j}] is {counts[j].item():g}, but must be at least {least}"
            + (": leave out a class without examples, or count it as 1" if least else "")
        )
    if not counts.any():
        raise ValueError("counts are all 0: count the training labels with class_counts(labels, num_classes)")


def _balanced(counts: Tensor, beta: float) -> Tensor:
    if not 0 <= beta < 1:
        raise ValueError(f"beta must be at least 0 and under 1, got {beta}")
    n = counts.to("cpu", torch.float64)
    weights = (1 - beta) / -torch.expm1(n * torch.tensor(beta, dtype=torch.float64).log())  # expm1: accurate for β^n near 1
    return torch.where(n > 0, weights / weights[n > 0].mean(), 1.0).to(counts.device, torch.get_default_dtype())


def _listed(class_weight: Mapping[int, float], counts: Tensor) -> Tensor:
    weights = torch.ones(len(counts))
    for j, value in class_weight.items():
        if j not in range(len(counts)):
            raise ValueError(f"class_weight has an entry for {j!r}, but the classes are the integers 0..{len(counts) - 1}")
        if not 0 <= value < math.inf:
            raise ValueError(f"class_weight[{j}] is {value}, but a weight must be finite and at least 0")
        weights[int(j)] = value
    return weights.to(counts.device)
