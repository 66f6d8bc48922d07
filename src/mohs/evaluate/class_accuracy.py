"""Accuracy on imbalanced data: per class, balanced, and on classes with many, medium and few training examples.

    accuracy_k = correct of class k / all of class k          balanced = mean over the classes that have test examples
    many: more than 100 training examples     few: fewer than 20     medium: the others

A group's accuracy is the mean over its classes, as in Liu et al.; on a balanced test set that is the mean over
its examples. Classes without test examples are NaN and are excluded from means.
Liu et al., "Large-scale long-tailed recognition in an open world" (CVPR 2019), section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs.evaluate.validate_inputs import class_labels, same_length

GROUPS = ("many", "medium", "few")


@dataclass(frozen=True)
class Shots:
    """Accuracies from 0 to 1, NaN for an empty group; classes: number of classes of each group."""

    all: float
    balanced: float
    many: float
    medium: float
    few: float
    classes: dict[str, int]


def per_class(predicted: Any, labels: Any, *, classes: int) -> Tensor:
    """predicted (N,), labels (N,) -> the accuracy of each class (K,), float64; NaN without examples."""
    count = same_length(predicted=predicted, labels=labels)
    y = class_labels(labels, count=count, classes=classes)
    right = class_labels(predicted, count=count, classes=classes, name="predicted", device=y.device) == y
    return torch.bincount(y, right.double(), minlength=classes) / torch.bincount(y, minlength=classes)  # (K,)


def balanced_accuracy(predicted: Any, labels: Any, *, classes: int) -> float:
    """The mean of the per-class accuracies."""
    return float(per_class(predicted, labels, classes=classes).nanmean())


def by_shots(predicted: Any, labels: Any, train_counts: Any, *, many: int = 100, few: int = 20) -> Shots:
    """predicted (N,), labels (N,) and training examples by class (K,) -> accuracy on classes with many, medium, few.

    many: classes with more than this; few: classes with fewer than this.
    """
    if not 0 <= few <= many + 1:
        raise ValueError(f"few must be between 0 and many + 1, got few={few}, many={many}: the groups would overlap")
    counts = torch.as_tensor(train_counts).cpu()
    if counts.dim() != 1 or counts.is_floating_point() or not len(counts) or bool((counts < 0).any()):
        raise ValueError(f"train_counts must be integers of at least 0, one per class, got {train_counts!r}")
    accuracy = per_class(predicted, labels, classes=len(counts)).cpu()
    members = {"many": counts > many, "medium": (counts <= many) & (counts >= few), "few": counts < few}
    means = {group: float(accuracy[inside].nanmean()) if inside.any() else math.nan for group, inside in members.items()}
    y = torch.bincount(class_labels(labels, count=len(labels), classes=len(counts)).cpu(), minlength=len(counts))
    overall = float((accuracy.nan_to_num(0.0) * y).sum() / y.sum())
    sizes = {group: int(inside.sum()) for group, inside in members.items()}
    return Shots(overall, float(accuracy.nanmean()), **means, classes=sizes)
