"""Features out of a table's columns: numbers side by side, or lists of numbers, checked row by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mohs._core.errors import DataError


def numeric_columns(columns: pa.Table, vectors: Sequence[str], used: Sequence[str]) -> list[str]:
    """The column of lists that holds the features, or all columns of numbers that are not used for something else."""
    kinds = {one: columns.schema.field(one).type for one in columns.column_names if one not in used}
    listed = [one for one in vectors if one in kinds and is_list(kinds[one])]
    listed = listed or [one for one, kind in kinds.items() if is_list(kind)]
    if len(listed) > 1 and listed[0] not in vectors:
        raise DataError(f"columns {', '.join(listed)} all hold lists: call the one with the features 'features'")
    return listed[:1] or [one for one, kind in kinds.items() if is_number(kind)]


def feature_matrix(columns: pa.Table, names: Sequence[str], file: Path, rows: Sequence[int]) -> np.ndarray[Any, Any]:
    """(N, D) float32 of these columns; `rows` are the rows' numbers in the file, for errors."""
    if is_list(columns.schema.field(names[0]).type):
        return _checked(_lists(columns.column(names[0]), names[0], file, rows), [names[0]], file, rows)
    parts = [columns.column(one).cast(pa.float64()).to_numpy(zero_copy_only=False) for one in names]
    return _checked(np.stack(parts, axis=1), names, file, rows)


def is_list(kind: pa.DataType) -> bool:
    """A column of lists of numbers."""
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed and is_number(kind.value_type))


def is_number(kind: pa.DataType) -> bool:
    """Whole numbers, floats, decimals or truth values."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind))


def _lists(column: pa.ChunkedArray, name: str, file: Path, rows: Sequence[int]) -> np.ndarray[Any, Any]:
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    width = int(lengths[0]) if len(lengths) else 0
    other = np.flatnonzero(lengths != width)
    if other.size or not width:
        at = int(other[0]) if other.size else 0
        raise DataError(
            f"{file}: {name} of row {rows[at]} has {lengths[at]} numbers, row {rows[0]} has {width}: all must have as many"
        )
    flat = pc.list_flatten(column).cast(pa.float64()).to_numpy(zero_copy_only=False)
    matrix: np.ndarray[Any, Any] = flat.reshape(-1, width)
    return matrix


def _checked(matrix: np.ndarray[Any, Any], names: Sequence[str], file: Path, rows: Sequence[int]) -> np.ndarray[Any, Any]:
    wrong = np.argwhere(~np.isfinite(matrix))
    if len(wrong):
        row, at = (int(one) for one in wrong[0])
        column = repr(names[at]) if len(names) > 1 else f"{names[0]!r}" + (f", entry {at}" if matrix.shape[1] > 1 else "")
        number = len({int(one) for one in wrong[:, 0]})
        raise DataError(
            f"{file}: row {rows[row]}, column {column} is missing, NaN or infinite; {number} row(s) have such: mend or drop them"
        )
    return matrix.astype(np.float32)
