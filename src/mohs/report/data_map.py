"""The data map: one point per example, packed so that 50,000 of them fit into a page.

    u16 x, u16 y, u16 label, u16 predicted, u8 verdict, u8 probability of a wrong label in percent
    (one array after another, gzip, base64)

x and y are scaled from 0 ... limit to 0 ... 65535. Names follow as gzipped JSON, unless the ids are the row numbers. Beyond
100,000 examples the easy ones are thinned out evenly. Confidence against variability is the data map of Swayamdipta et al.,
"Dataset cartography" (EMNLP 2020).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from mohs._core.plain_text import shorten
from mohs.hardness.table import VERDICTS, column
from mohs.report.verdict_labels import NOT_JUDGED

MOST, FULL = 100_000, 65_535
NO_CHANCE, NO_VERDICT = 255, len(VERDICTS)
NAMED_BY = ("path", "text", "id")  # the first of these columns names a point
# y column and title, x column and title, upper limit of x (None: the largest value)
AXES: tuple[tuple[str, str, str, str, float | None], ...] = (
    ("mean_confidence", "mean confidence in the label", "variability", "variability of that confidence", 0.5),
    ("confidence", "confidence in the label", "entropy", "entropy of the prediction (nats)", None),
    ("confidence", "confidence in the label", "avh", "angular visual hardness", None),
)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class DataMap:
    """The packed points, and what the page needs to draw and describe them."""

    points: str = field(repr=False)
    names: str | None = field(repr=False)
    rows: Array = field(repr=False)
    count: int
    examples: int
    x_title: str
    y_title: str
    x_limit: float
    summary: list[dict[str, Any]]


def data_map(table: pa.Table, names: Sequence[Any]) -> DataMap | None:
    """The map over the first pair of AXES that the table has; None without such a pair or without a row that has both."""
    for y_name, y_title, x_name, x_title, limit in AXES:
        if {x_name, y_name} <= set(table.column_names):
            x, y = column(table, x_name).astype(float), column(table, y_name).astype(float)
            known = np.isfinite(x) & np.isfinite(y)
            if known.any():
                most = limit or max(float(x[known].max()), 1e-9)
                return _packed(table, names, np.flatnonzero(known), (x, y), (x_title, y_title), most)
    return None


def _packed(
    table: pa.Table, names: Sequence[Any], known: Array, places: tuple[Array, Array], titles: tuple[str, str], limit: float
) -> DataMap:
    verdicts = verdict_numbers(table)
    rows = _thinned(known, verdicts)
    x, y = places
    chance = np.nan_to_num(column(table, "p_mislabeled") * 100, nan=NO_CHANCE).round()
    parts = [
        _scaled(x[rows], limit),
        _scaled(y[rows], 1.0),
        _class_numbers(table, "label", names)[rows].astype("<u2"),
        _class_numbers(table, "predicted", names)[rows].astype("<u2"),
        verdicts[rows].astype("u1"),
        chance[rows].astype("u1"),
    ]
    return DataMap(
        points=_compressed(b"".join(part.tobytes() for part in parts)),
        names=_names(table, rows),
        rows=rows,
        count=len(rows),
        examples=len(known),
        x_title=titles[0],
        y_title=titles[1],
        x_limit=limit,
        summary=map_summary(x[known], y[known], verdicts[known]),
    )


def verdict_numbers(table: pa.Table) -> Array:
    """Index of each row's verdict in VERDICTS (N,); len(VERDICTS) for rows without one."""
    place = {name: i for i, name in enumerate(VERDICTS)}
    return np.array([place.get(name, NO_VERDICT) for name in table.column("verdict").to_pylist()], dtype=np.uint8)


def map_summary(x: Array, y: Array, verdicts: Array) -> list[dict[str, Any]]:
    """The map as a table: number of examples and median position per verdict."""
    rows = []
    for number, name in enumerate((*VERDICTS, NOT_JUDGED)):
        own = verdicts == number
        if own.any():
            rows.append(
                {"verdict": name, "examples": int(own.sum()), "x": float(np.median(x[own])), "y": float(np.median(y[own]))}
            )
    return rows


def _thinned(known: Array, verdicts: Array) -> Array:
    """At most MOST of the known rows: easy ones are thinned out evenly, and all of them if that is not enough."""
    if len(known) <= MOST:
        return known
    easy = known[verdicts[known] == VERDICTS.index("easy")]
    room = MOST - (len(known) - len(easy))
    if room <= 0:
        every: Array = known[np.linspace(0, len(known) - 1, MOST).astype(int)]
        return every
    kept = easy[np.linspace(0, len(easy) - 1, room).astype(int)]
    thinned: Array = np.sort(np.concatenate([known[verdicts[known] != VERDICTS.index("easy")], kept]))
    return thinned


def _class_numbers(table: pa.Table, name: str, names: Sequence[Any]) -> Array:
    place = {value: i for i, value in enumerate(names)}
    values = table.column(name).to_pylist() if name in table.column_names else [None] * len(table)
    return np.array([min(place.get(value, FULL), FULL) for value in values])


def _scaled(values: Array, limit: float) -> Array:
    scaled: Array = (np.clip(values / limit, 0, 1) * FULL).round().astype("<u2")
    return scaled


def _names(table: pa.Table, rows: Array) -> str | None:
    """File names, texts or ids of these rows; None where the ids are the row numbers and no row is missing."""
    own = next(name for name in NAMED_BY if name in table.column_names)
    values = table.column(own).take(pa.array(rows)).to_pylist()
    if own == "id" and values == list(range(len(table))):
        return None
    ids = table.column("id").take(pa.array(rows)).to_pylist()
    shown = [shorten(i if value is None else value, 80) for value, i in zip(values, ids, strict=True)]
    return _compressed(json.dumps(shown).encode())


def _compressed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()
