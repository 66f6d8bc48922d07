"""Labels as given (names, integers with gaps) and as rows 0..K−1 of a head.

    encode(labels, num_classes=K, classes=None) -> index (N,), classes (K names)

With `classes`, in the order of the head's rows, every label must be one of them; integers are class indices when the class
names are strings. Without `classes`, integers within 0..K−1 are class indices; other labels are sorted, as in scikit-learn,
and must have exactly K distinct values. Only in this last case must every class have an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

SHOWN = 5  # classes that an error lists


def encode(
    labels: Any, *, num_classes: int, classes: Sequence[Any] | None = None, first_row: int = 0
) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """labels (N,) of any kind -> row of the head for each (N,) int64, and the class names in that order.

    first_row: row number of the first of these labels, for error messages.
    """
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1:
        raise ValueError(f"labels must have shape (N,), one per row, got shape {values.shape}")
    if values.dtype.kind not in "iuUSOb":
        raise ValueError(f"labels must be integers or names, got {values.dtype}")
    _check_present(values, first_row)
    if classes is not None:
        return _by_class(values, list(classes), num_classes, first_row), list(classes)
    outside = _outside(values, num_classes)
    if values.dtype.kind in "iu" and not outside.any():
        return values.astype(np.int64), list(range(num_classes))
    names, index = np.unique(values, return_inverse=True)
    if len(names) != num_classes:
        row = int(outside.argmax())
        place = f"; labels[{first_row + row}] is {_plain(values[row])!r}, outside 0..{num_classes - 1}" if outside.any() else ""
        raise ValueError(
            f"labels hold {len(names)} different classes ({_shown(names)}) but the head has {num_classes}{place}: "
            "pass classes, the class names in the order of the head's rows"
        )
    return index.astype(np.int64), [_plain(name) for name in names]


def decode(index: Any, classes: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Rows of the head -> class names, as one array of the names' type."""
    rows = index.detach().cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    names: np.ndarray[Any, Any] = np.asarray(list(classes))[rows]
    return names


def _by_class(values: np.ndarray[Any, Any], classes: list[Any], num_classes: int, first_row: int) -> np.ndarray[Any, Any]:
    if len(classes) != num_classes:
        raise ValueError(f"classes has {len(classes)} names but the head has {num_classes} classes")
    row = {_plain(name): i for i, name in enumerate(classes)}
    if len(row) != len(classes):
        raise ValueError("classes holds a name twice")
    numbers = values.dtype.kind in "iu"
    if numbers and (not any(isinstance(name, int) for name in row) or list(row) == list(range(num_classes))):
        index = np.where(_outside(values, num_classes), -1, values).astype(np.int64)
    else:
        index = np.fromiter((row.get(_plain(value), -1) for value in values), np.int64, len(values))
    missing = np.flatnonzero(index < 0)
    if missing.size:
        first = int(missing[0])
        raise ValueError(
            f"labels[{first_row + first}] is {_plain(values[first])!r}, not one of the head's {num_classes} classes "
            f"({_shown(classes)}); {missing.size} label(s) are not: pass classes, the class names in the order of the head's rows"
        )
    return index


def _outside(values: np.ndarray[Any, Any], num_classes: int) -> np.ndarray[Any, Any]:
    """Which integers are not class indices; all False if labels are names."""
    if values.dtype.kind not in "iu":
        return np.zeros(len(values), bool)
    out: np.ndarray[Any, Any] = (values < 0) | (values >= num_classes)
    return out


def _check_present(values: np.ndarray[Any, Any], first_row: int) -> None:
    """Raise if a label is empty (None, NaN), naming its row."""
    if values.dtype.kind != "O":
        return
    empty = [i for i, value in enumerate(values) if value is None or value != value]
    if empty:
        raise ValueError(f"labels[{first_row + empty[0]}] is empty; {len(empty)} label(s) are: give each example a label")


def _shown(names: Sequence[Any] | np.ndarray[Any, Any]) -> str:
    return ", ".join([repr(_plain(name)) for name in names[:SHOWN]] + ["..."] * (len(names) > SHOWN))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
