"""The map: coordinates and color of each example.

The coordinates are those of the features in the plane of their first two principal components, which the audit stores; without
it, scores as in the report's map. Colors are indices of a palette, one byte per example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mohs.audit.decision_log import FINAL
from mohs.hardness.table import VERDICTS
from mohs.report.verdict_labels import NOT_JUDGED, label_of, shown_order
from mohs.review.database import Array, Database
from mohs.review.query import QueryError, quoted
from mohs.review.review import Review
from mohs.review.source import Source

SCORES = (("variability", "mean_confidence"), ("entropy", "confidence"))  # x and y without a plane
COLORS = (  # class colors; with more classes they repeat
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#ff9da7", "#9c755f", "#6f55d9",
    "#8cd17d", "#d37295", "#a0cbe8", "#ffbe7d", "#b6992d", "#499894", "#d4a6c8", "#f1ce63", "#79706e", "#d7b5a6",
)  # fmt: skip
SCALE = ("#2c7bb6", "#4d9ac6", "#7ab8d6", "#abd3e0", "#d9e6d2", "#f8e6a7", "#fdc877", "#f99f55", "#ea6a3c", "#d7301f")
ENDS = (0.005, 0.995)  # quantiles of a score between which the scale lies
DECIDED = {"accept": "#009e73", "keep": "#0072b2", "change": "#e69f00", "exclude": "#d55e00"}
GRAY = "#9aa3ad"
MOST_CLASSES = 255


class Colors(NamedTuple):
    """For every example the place (N,) uint8 of its color in the palette, and what each color means."""

    colors: Array
    palette: list[str]
    names: list[str]


def axes(source: Source) -> tuple[str, str] | None:
    """The columns of the map; None if there are none."""
    if "x" in source.roles:
        return source.roles["x"], source.roles["y"]
    return next(((x, y) for x, y in SCORES if x in source.columns and y in source.columns), None)


def places(database: Database) -> tuple[Array, Array]:
    """x and y (N,) float32 of every example; NaN without a place."""
    found = axes(database.source)
    if found is None:
        raise QueryError("these examples have no map")
    x, y = (database.numbers(f"SELECT {quoted(name)}::FLOAT FROM examples e ORDER BY e.rowid").astype("<f4") for name in found)
    return x, y


def colors(review: Review, by: str) -> Colors:
    """Colors by verdict, label, suggested, decision, chance, grade, or any column of numbers."""
    roles, columns = review.source.roles, review.source.columns
    if by == "decision":
        return _decisions(review)
    if by == "verdict" and by in roles:
        names = [*shown_order(VERDICTS), NOT_JUDGED]
        return Colors(_places(review.database, roles[by], names), [label_of(name).color for name in names], names)
    if by in ("label", "suggested") and by in roles:
        names = [*review.classes[:MOST_CLASSES], "others"]
        palette = [*(COLORS[i % len(COLORS)] for i in range(len(names) - 1)), GRAY]
        return Colors(_places(review.database, roles[by], names), palette, names)
    column = roles.get(by, by)
    if column not in columns or columns[column].kind != "number":
        raise QueryError(f"the map cannot be colored by {by[:80]!r}")
    return _scale(review.database, column)


def _decisions(review: Review) -> Colors:
    made = np.zeros(review.database.total, np.uint8)
    for id_, one in review.decided():
        if review.row_of(id_) >= 0:
            made[review.row_of(id_)] = 1 + FINAL.index(one.decision)
    return Colors(made, [GRAY, *(DECIDED[name] for name in FINAL)], ["open", *FINAL])


def _places(database: Database, column: str, names: Sequence[str]) -> Array:
    """Place of each value among the names (N,); the last for any other."""
    last = len(names) - 1
    place = f"coalesce(list_position(?::VARCHAR[], CAST({quoted(column)} AS VARCHAR)) - 1, {last})::UTINYINT"
    return database.numbers(f"SELECT {place} FROM examples e ORDER BY e.rowid", [list(names)]).astype(np.uint8)


def _scale(database: Database, column: str) -> Colors:
    values = database.numbers(f"SELECT {quoted(column)}::DOUBLE FROM examples e ORDER BY e.rowid")
    known = np.isfinite(values)
    low, high = np.quantile(values[known], ENDS) if known.any() else (0.0, 1.0)
    steps = len(SCALE)
    place = np.clip((values - low) / ((high - low) or 1.0) * steps, 0, steps - 1)
    names = [f"{low + (high - low) * i / steps:.3g}" for i in range(steps)]
    return Colors(np.where(known, np.nan_to_num(place), steps).astype(np.uint8), [*SCALE, GRAY], [*names, "no value"])
