"""Class structure of features and predictions: homogeneity and completeness, angles within and between classes.

    homogeneity 1 − H(class | group)/H(class)          completeness 1 − H(group | class)/H(group)
    within_k    mean angle of class k's examples to the mean direction c_k of their unit features
    between_jk  angle of c_j and c_k

Groups are the predicted classes, as in AMC's Figure 4, or k-means clusters of unit features. Separation, the smallest angle
between two classes over the mean angle within, is above 1 for well separated classes.
Rosenberg & Hirschberg, "V-measure" (EMNLP 2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.angle import angle, angles, unit
from mohs.evaluate.validate_inputs import numbers, same_length


@dataclass(frozen=True)
class Grouping:
    """From 0 to 1: whether each group has one class, whether each class is in one group, and their harmonic mean."""

    homogeneity: float
    completeness: float
    v_measure: float


@dataclass(frozen=True, eq=False)
class Angles:
    """In radians. within: mean over examples; within_class (K,); between: mean and minimum over pairs of classes."""

    within: float
    between: float
    between_least: float
    within_class: Tensor
    between_classes: Tensor

    @property
    def separation(self) -> float:
        """The smallest angle between two classes over the mean angle within; infinite if classes are points."""
        return self.between_least / self.within if self.within else float("inf")


def grouping(assigned: Any, labels: Any) -> Grouping:
    """Groups (N,), such as predictions, and labels (N,) -> their agreement."""
    from sklearn.metrics import homogeneity_completeness_v_measure

    same_length(assigned=assigned, labels=labels)
    return Grouping(*map(float, homogeneity_completeness_v_measure(_array(labels), _array(assigned))))


def kmeans_grouping(features: Any, labels: Any, *, clusters: int | None = None, restarts: int = 10, seed: int = 0) -> Grouping:
    """k-means on unit features (N, D), by default with as many clusters as there are classes, against labels (N,)."""
    from sklearn.cluster import KMeans

    x = unit(numbers("features", features, dims=(2,))).cpu().numpy()
    same_length(features=x, labels=labels)
    different = len(np.unique(x, axis=0))
    count = len(np.unique(_array(labels))) if clusters is None else clusters
    if not 1 <= count <= different:
        raise ValueError(f"clusters must be between 1 and {different}, the number of distinct directions, got {count}")
    return grouping(KMeans(count, n_init=restarts, random_state=seed).fit_predict(x), labels)


@torch.no_grad()
def class_angles(features: Any, labels: Any) -> Angles:
    """features (N, D), labels (N,) of at least 2 classes -> angles within and between them, classes in sorted order."""
    x = unit(numbers("features", features, dims=(2,))).double()
    names, index = torch.unique(torch.as_tensor(labels).to(x.device), return_inverse=True)
    same_length(features=x, labels=index)
    if len(names) < 2:
        raise DataError(f"labels hold {len(names)} class: angles between classes need at least 2")
    centers = torch.zeros(len(names), x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, index, x)  # (K, D)
    own = angle(x, centers[index])  # (N,)
    within = torch.bincount(index, own) / torch.bincount(index)
    apart = angles(centers, centers).fill_diagonal_(0.0)
    pairs = apart[tuple(torch.triu_indices(len(names), len(names), 1, device=x.device))]
    return Angles(float(own.mean()), float(pairs.mean()), float(pairs.min()), within.cpu(), apart.cpu())


def _array(values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
