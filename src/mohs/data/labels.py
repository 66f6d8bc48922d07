"""Labels of any type as class indices, and which of them are missing.

Several labels of one example are a set, written as one string: "cat;dog" (`as_set`), and "(none)" if it is empty.

Strings, integers (also as floats such as 2.0) and booleans are labels; None, NaN and empty strings are missing. The classes are
the distinct training labels, sorted, or those declared; a label of another split that is not among them is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError

SHOWN = 5
SEPARATOR, EMPTY = ";", "(none)"  # separator of names in a set, and the empty set
WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")
Array = np.ndarray[Any, Any]


def label_values(labels: Any, name: str, *, row: Callable[[int], str] = "row {}".format) -> tuple[Array, Array]:
    """Labels (N,) as strings or integers, and which of them are missing (N,) bool; row: names a row by its number, for errors."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(f"{name}: labels must have shape (N,), one per example, got shape {values.shape}")
    if values.dtype.kind == "f":
        missing = np.isnan(values)
        broken = np.flatnonzero(~missing & (values != np.round(values)))
        if broken.size:
            at = int(broken[0])
            raise DataError(f"{name}: the label of {row(at)} is {values[at]}: labels are strings or integers")
        return np.where(missing, 0, values).astype(np.int64), missing
    if values.dtype.kind == "O":
        missing = np.fromiter((one is None or one != one or one == "" for one in values), bool, len(values))
        known = {type(one) for one in values[~missing]}
        if len(known) > 1 or not known <= {str, int, bool, float, np.str_, np.int64}:
            kinds = ", ".join(sorted(kind.__name__ for kind in known))
            raise DataError(f"{name}: labels must be strings or integers, all of one type, got {kinds}")
        numbers, kept = np.flatnonzero(~missing).tolist(), np.zeros(0, np.int64)
        if known:
            kept, _ = label_values(np.asarray(values[~missing].tolist()), name, row=lambda at: row(numbers[at]))
        filled = np.zeros(len(values), kept.dtype)
        filled[~missing] = kept
        return filled, missing
    if values.dtype.kind not in "iuUSb":
        raise DataError(f"{name}: labels must be strings or integers, got {values.dtype}")
    values = np.char.decode(values, "utf-8", "backslashreplace") if values.dtype.kind == "S" else values
    return values, values == "" if values.dtype.kind == "U" else np.zeros(len(values), bool)


def as_set(names: Any, separator: str, where: str) -> str:
    """Several labels, or a string of them, as one string: distinct names, sorted."""
    parts = names.split(separator) if isinstance(names, str) else [str(one) for one in names]
    broken = next((one for one in parts if separator in one), None)
    if broken is not None:
        raise DataError(f"{where}: the label {broken!r} contains {separator!r}, which separates labels: rename it")
    return separator.join(sorted({one.strip() for one in parts} - {"", EMPTY})) or EMPTY


def label_sets(labels: Array, classes: Sequence[Any] | None, name: str) -> list[str]:
    """Labels (N, K) of 0 and 1 -> the set of each example's classes as a string (N,)."""
    names = range(labels.shape[1]) if classes is None else classes
    if len(names) != labels.shape[1]:
        raise DataError(f"{name}: {len(names)} class names for labels of {labels.shape[1]} classes: give one per column")
    return [as_set([names[k] for k in np.flatnonzero(row).tolist()], SEPARATOR, name) for row in labels]


def set_members(classes: Sequence[Any], separator: str) -> tuple[list[str], Tensor]:
    """Classes that are sets -> all names, sorted, and which of them (K,) each set has: (sets, K) int64."""
    sets = [[] if one == EMPTY else str(one).split(separator) for one in classes]
    names = sorted({name for one in sets for name in one})
    place = {name: k for k, name in enumerate(names)}
    members = torch.zeros(len(sets), len(names), dtype=torch.int64)
    for row, one in enumerate(sets):
        members[row, [place[name] for name in one]] = 1
    return names, members


def numbers_where_whole(names: Sequence[str | None]) -> list[Any]:
    """Strings as integers where all of them are integers, written plainly: "007" and "1.0" stay strings."""
    if all(not name or WHOLE.fullmatch(name) for name in names):
        return [int(name) if name else None for name in names]
    return list(names)


def classes_in(values: Array) -> list[Any]:
    """The distinct labels, sorted."""
    return [one.item() if isinstance(one, np.generic) else one for one in np.unique(values)]


def class_numbers(values: Array, classes: Sequence[Any], name: str, *, row: Callable[[int], str] = "row {}".format) -> Tensor:
    """Labels (N,) -> class indices (N,) int64; integers are class indices when the class names are strings.

    row: names a row by its number, for errors.
    """
    place = {one: i for i, one in enumerate(classes)}
    if len(place) != len(classes):
        raise DataError(f"{name}: two classes have the same name")
    if values.dtype.kind in "iu" and not any(isinstance(one, int) for one in place):
        place = {i: i for i in range(len(classes))}
    different, inverse = np.unique(values, return_inverse=True)
    index = np.array([place.get(one.item(), -1) for one in different], np.int64)[inverse]
    unknown = np.flatnonzero(index < 0)
    if unknown.size:
        at = int(unknown[0])
        shown = ", ".join([repr(one) for one in classes[:SHOWN]] + ["..."] * (len(classes) > SHOWN))
        raise DataError(
            f"{name}: the label of {row(at)} is {values[at].item()!r}, not one of the {len(classes)} classes ({shown})"
        )
    return torch.from_numpy(index)
