"""Columns of lists of numbers as matrices: a row of a Parquet file is a row of the matrix.

Reads lists, large lists and lists of fixed size, of any numeric type; a null entry becomes NaN. An empty row, or one of
another length, raises an error that names file, column and row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from mohs._core.errors import DataError


def matrix(column: pa.Array, name: str, file: str, first_row: int, width: int) -> np.ndarray[Any, Any]:
    """A column of n lists of `width` numbers -> (n, width), in float64 if the numbers are, else float32."""
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != width)
    if wrong.size:
        row, length = first_row + int(wrong[0]), int(lengths[wrong[0]])
        what = "is empty" if length < 0 else f"holds {length} numbers"
        raise DataError(f"{file}: {name} of row {row} {what}, where others hold {width}: all rows must have the same length")
    values = column.flatten()
    values = pc.fill_null(values.cast(pa.float64() if values.type == pa.float64() else pa.float32(), safe=False), np.nan)
    entries: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return entries.reshape(len(column), width)


def width_of(files: Iterable[pyarrow.parquet.ParquetFile], column: str, names: Sequence[str]) -> int:
    """Length of this column's lists, from its type or its first row; names: file names, for errors."""
    for file, name in zip(files, names, strict=True):
        width = _width(file, column, name)
        if width:
            return width
    return 0


def _width(file: pyarrow.parquet.ParquetFile, column: str, name: str) -> int:
    kind = file.schema_arrow.field(column).type
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not listed or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise DataError(f"{name}: column {column!r} must hold a list of numbers per row, got {kind}")
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    for part in file.iter_batches(1, columns=[column]):
        length = pc.list_value_length(part.column(0))[0].as_py()
        if not length:
            raise DataError(f"{name}: {column} of row 0 is empty: every row needs a list of numbers")
        return int(length)
    return 0
