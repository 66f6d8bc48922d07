"""Which rows of a table are mostly missing, and which columns are empty or constant.

    missing_values    share of the row's cells that are null or NaN; flagged over half, if that is unusual in the table
    constant_column   an issue of columns, not of rows: its share is the share of columns that hold one value or none

A column that misses most of its cells is listed with the rows'; constant columns that the reader dropped count as columns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mohs.data.columns import constant_columns
from mohs.issues.found import Array, Found
from mohs.issues.unusual import upper_fence

LIMIT = 0.5  # share of missing cells of a row, or of a column


def column_defects(table: pa.Table) -> dict[str, Found]:
    """Missing values and constant columns of an Arrow table."""
    count = table.num_rows
    missing, constant, sparse = np.zeros(count), [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        empty = _is_missing(column)
        missing += empty
        if empty.mean() > LIMIT:
            sparse.append({"column": name, "share missing": round(float(empty.mean()), 4)})
        values = pc.unique(column.filter(pa.array(~empty)))
        if len(values) == 0 or (len(values) == 1 and not empty.any()):
            constant.append({"column": name, "value": str(values[0].as_py()) if len(values) else "none"})
    dropped = constant_columns(table)
    constant += [{"column": name, "value": "one or none; dropped"} for name in dropped]
    number = max(table.num_columns + len(dropped), 1)
    share = missing / max(table.num_columns, 1)
    return {
        "missing_values": Found(share, (share > LIMIT) & (share > upper_fence(share)), details=sparse),
        "constant_column": Found(np.zeros(count), np.zeros(count, bool), details=constant, part=len(constant) / number),
    }


def _is_missing(column: pa.ChunkedArray) -> Array:
    if pa.types.is_floating(column.type):
        return np.asarray(pc.is_null(column, nan_is_null=True))
    return np.asarray(column.is_null())
