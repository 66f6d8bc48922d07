"""Counts over all rows of a hardness table: what a report says of examples that it does not list.

Tables are counted one after another, so a table that does not fit in memory can be counted in parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mohs.hardness.table import VERDICTS, column

BINS, DOUBT_BINS = 40, 50  # bins of margins, and of p_mislabeled
NARROWEST = 1e-9  # half the width of a histogram whose values are all equal
COLUMNS = ("label", "suggested_label", "verdict", "mohs", "margin", "p_mislabeled")  # columns that are counted
Array = np.ndarray[Any, Any]
Counts = Counter[tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Totals:
    """Numbers of rows.

    Attributes:
        rows: All rows.
        verdicts: Rows by label and verdict; the verdict is None where there is none.
        pairs: Rows by label and suggested label, where the two differ.
        grades: Rows by grade and verdict.
        margins: Rows by bin of the margin and verdict; the outermost bins hold what lies beyond them too.
        doubts: Rows by bin of p_mislabeled, DOUBT_BINS from 0 to 1, and verdict.
        edges: Edges of the bins of the margin; none if there are no margins.
    """

    rows: int
    verdicts: Counts
    pairs: Counts
    grades: Counts
    margins: Counts
    doubts: Counts
    edges: Array

    @staticmethod
    def of(tables: Iterable[pa.Table], edges: Array) -> Totals:
        """Count the rows of these tables, margins between these edges."""
        rows = 0
        verdicts, pairs, grades, margins, doubts = (Counts() for _ in range(5))
        for table in tables:
            rows += len(table)
            found = table.column("verdict").cast(pa.string())
            verdicts.update(_pairs(table.column("label"), found))
            if "suggested_label" in table.column_names:
                given, new = (_plain(table.column(name)) for name in ("label", "suggested_label"))
                other = pc.fill_null(pc.not_equal(given, new), False)
                pairs.update(_pairs(given.filter(other), new.filter(other)))
            if "mohs" in table.column_names:
                grades.update(_pairs(table.column("mohs"), found))
            if len(edges):
                margins.update(_binned(column(table, "margin"), edges, found))
            if "p_mislabeled" in table.column_names:
                doubts.update(_binned(column(table, "p_mislabeled"), np.linspace(0, 1, DOUBT_BINS + 1), found))
        return Totals(rows, verdicts, pairs, grades, margins, doubts, edges)

    def by_verdict(self) -> Counter[Any]:
        """Number of rows with each verdict; None: without one."""
        counts: Counter[Any] = Counter()
        for (_, verdict), number in self.verdicts.items():
            counts[verdict] += number
        return counts


def margin_edges(table: pa.Table) -> Array:
    """Edges of the bins of a histogram of the table's margins, 0 among them; the outermost hundredth on each side is beyond."""
    if "margin" not in table.column_names:
        return np.empty(0)
    values = column(table, "margin").astype(float)
    values = values[np.isfinite(values) & np.asarray(table.column("verdict").is_valid())]
    if not len(values):
        return np.empty(0)
    low, high = np.quantile(values, [0.01, 0.99])
    low, high = min(low, -NARROWEST), max(high, NARROWEST)
    width = (high - low) / BINS
    edges: Array = np.arange(np.floor(low / width), np.ceil(high / width) + 1) * width
    return edges


def _pairs(a: pa.ChunkedArray, b: pa.ChunkedArray) -> Counts:
    """How often each pair of values occurs."""
    grouped = pa.table({"a": _plain(a), "b": _plain(b)}).group_by(["a", "b"]).aggregate([([], "count_all")])
    return Counter({(row["a"], row["b"]): row["count_all"] for row in grouped.to_pylist()})


def _binned(values: Array, edges: Array, verdicts: pa.ChunkedArray) -> Counts:
    """How often each pair of a bin and a verdict occurs, among rows that have both."""
    values = values.astype(float)
    known = np.isfinite(values) & np.asarray(pc.is_in(verdicts, pa.array(VERDICTS)))
    bins = pa.chunked_array([pa.array(np.digitize(values[known], edges[1:-1]))])
    return _pairs(bins, verdicts.filter(pa.array(known)))


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
