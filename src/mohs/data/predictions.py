"""Predictions instead of inputs: a model's logits or probabilities for each example, with one or several labels.

    scores (N, K), labels (N,)                 one label per example
    scores (N, K), labels (N, K) of 0 and 1    several classes: every set of them is a class of the examples; classes without
                                               examples are removed
    scores (N, K, d1, ...), labels (N, d1, ...) tokens or pixels; −100 where there is no label

The label of an example with several positions is the most common one among them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.arrays import as_array
from mohs._core.errors import DataError
from mohs.data.examples import Examples
from mohs.data.labels import SEPARATOR, Array, class_numbers, classes_in, label_sets, label_values
from mohs.margin import NO_LABEL

SCORES = ("probs", "probabilities", "pred_probs", "logits")  # names of the scores in a file


class Predictions:
    """Scores (N, K, ...) and labels (N, ...) of N examples; a batch is the scores."""

    kind = "predictions"

    def __init__(self, scores: Array, labels: Array) -> None:
        self.scores, self.labels = scores, labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> Sequence[int]:
        return tuple(self.scores.shape)

    def __getitem__(self, places: Tensor) -> Tensor:
        return torch.from_numpy(self.scores[places.numpy()])

    def take(self, places: Tensor, /) -> Predictions:
        return Predictions(self.scores[places.numpy()], self.labels[places.numpy()])

    def fingerprint(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.scores).tobytes())
        digest.update(np.ascontiguousarray(self.labels).tobytes())
        return digest.hexdigest()[:16]


def predicted_examples(
    scores: Any, labels: Any, *, classes: Sequence[Any] | None = None, keys: Sequence[Any] | None = None, name: str = "data"
) -> Examples:
    """The examples of a model's predictions and their labels.

    Args:
        scores: Logits or probabilities (N, K) or (N, K, d1, ...).
        labels: Class names or indices (N,), 0 and 1 (N, K), or class indices (N, d1, ...).
        classes: Class names in the order of the scores.
        keys: The owner's names of the examples.
        name: Name of the data set.
    """
    scores, given = as_array(scores).astype(np.float32), as_array(labels)
    if scores.ndim < 2 or len(given) != len(scores):
        shapes = f"{scores.shape} and {given.shape}"
        raise DataError(f"{name}: predictions must have shape (N, K) or (N, K, ...) for N labels, got {shapes}")
    names = list(range(scores.shape[1])) if classes is None else list(classes)
    if len(names) != scores.shape[1]:
        raise DataError(f"{name}: {len(names)} class names for predictions of {scores.shape[1]} classes: give one per column")
    if given.shape == scores.shape[:2] and scores.ndim == 2:
        used = sorted(np.flatnonzero((given == 1).any(0)).tolist(), key=lambda k: str(names[k]))  # as `set_members` has them
        sets = np.array(label_sets(given, names, name))
        known, inputs = classes_in(sets), Predictions(scores[:, used], given[:, used])
        return Examples(inputs, class_numbers(sets, known, name), known, name=name, keys=keys, separator=SEPARATOR)
    if given.ndim == 1:
        values, missing = label_values(given, name)
        if missing.any():
            raise DataError(f"{name}: the label of row {int(missing.argmax())} is missing: leave out its predictions too")
        index = class_numbers(values, names, name)
        return Examples(Predictions(scores, index.numpy()), index, names, name=name, keys=keys)
    if given.shape != (len(scores), *scores.shape[2:]) or given.dtype.kind not in "iu":
        raise DataError(
            f"{name}: labels must be class indices of shape {(len(scores), *scores.shape[2:])}, got {given.dtype} {given.shape}"
        )
    outside = (given != NO_LABEL) & ((given < 0) | (given >= len(names)))
    if outside.any():
        row = int(np.argwhere(outside)[0][0])
        raise DataError(f"{name}: a label of row {row} is outside 0..{len(names) - 1} (and not {NO_LABEL}, which means none)")
    common = [np.bincount(row[row != NO_LABEL], minlength=len(names)).argmax() for row in given.reshape(len(given), -1)]
    return Examples(Predictions(scores, given), torch.tensor(np.array(common)), names, name=name, keys=keys)
