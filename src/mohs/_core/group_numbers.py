"""Names of groups, of any kind and some of them missing, as numbers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import DataError


def group_numbers(values: Any) -> Tensor:
    """Names of groups (N,) -> their numbers (N,), by first appearance; each missing name (None, NaN, "") is a group by itself."""
    known: dict[Any, int] = {}
    found = []
    for place, value in enumerate(listed(values)):
        name = value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value
        name = name.strip() if isinstance(name, str) else name
        if not isinstance(name, Hashable):
            raise DataError(
                f"the group of example {place} is a {type(name).__name__}: groups are names or numbers, one per example"
            )
        found.append(known.setdefault((place,) if _is_missing(name) else name, len(known)))
    return torch.tensor(found, dtype=torch.int64)


def listed(values: Any) -> list[Any]:
    """One value per example, from a list, an array, a tensor or a column."""
    for method in ("tolist", "to_pylist"):
        if hasattr(values, method):
            values = getattr(values, method)()
    if not hasattr(values, "__iter__") or isinstance(values, str):
        raise ValueError(f"group must be the name of a column or one value per example, got {values!r}")
    return list(values)


def _is_missing(value: Any) -> bool:
    try:
        return value is None or value == "" or bool(value != value)
    except TypeError:  # pandas.NA is neither equal to itself nor different
        return True
