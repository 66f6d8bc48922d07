"""Units: the examples of a group that share a label, such as the images of a patient, which are judged together.

A label that belongs to a patient is wrong for all of the patient's images or for none, and twenty images that look mislabeled are
one piece of evidence, not twenty. So the examples of a group with the same label form a unit, whose scores are the means of
theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SHARED = 0.9  # labels belong to groups if at least this share of the examples has the commonest label of its group


def share_labels(groups: Array, labels: Array) -> bool:
    """Whether the examples (N,) of a group nearly always have the same label."""
    _, unit, size = np.unique(np.stack([groups, labels]), axis=1, return_inverse=True, return_counts=True)
    most: dict[Any, int] = {}
    for group, count in zip(groups.tolist(), size[unit].tolist(), strict=True):
        most[group] = max(most.get(group, 0), count)
    return sum(most.values()) >= SHARED * len(labels)


def units_of(groups: Array, labels: Array) -> Array:
    """A number for each example (N,), equal for examples with the same group and label."""
    unit: Array = np.unique(np.stack([groups, labels]), axis=1, return_inverse=True)[1]
    return unit.reshape(-1)


def unit_means(values: Array, unit: Array) -> Array:
    """The means (U, ...) over the examples (N, ...) of each unit; NaN if any is NaN."""
    count = int(unit.max()) + 1
    sums = np.zeros((count, *values.shape[1:]))
    np.add.at(sums, unit, values)
    means: Array = sums / np.bincount(unit, minlength=count).reshape(-1, *[1] * (values.ndim - 1))
    return means
