"""The data map's points as bytes: where an example stands, its verdict, labels and chance, small enough for 50,000 in a page.

    u16 x, u16 y, u16 label, u16 predicted, u8 verdict, u8 chance of a wrong label in percent, one after the other, gzip, base64

x and y are scaled from 0..their limit to 0..65535. Names follow as gzipped JSON, or not at all where the ids are the rows'
numbers. Of more than 100,000 examples the easy ones are thinned out evenly. Swayamdipta et al., "Dataset cartography" (EMNLP
2020): confidence against variability.
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
from mohs.hardness.table import column
from mohs.hardness.verdict import VERDICTS

MOST, FULL = 100_000, 65_535
NO_CHANCE, NO_VERDICT = 255, len(VERDICTS)
# y column, its words, x column, its words, the limit of x (None: the largest there is)
AXES: tuple[tuple[str, str, str, str, float | None], ...] = (
    ("mean_confidence", "mean confidence in the label", "variability", "variability of that confidence", 0.5),
    ("confidence", "confidence in the label", "entropy", "entropy of the prediction (nats)", None),
    ("confidence", "confidence in the label", "avh", "angular visual hardness", None),
)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class DataMap:
    """The packed points and what is needed to draw and read them."""

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
    """The map of the first pair of AXES that the table has; None where it has none or no row has both."""
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
    """Each row's place in VERDICTS (N,); one past the last where it has none."""
    place = {name: i for i, name in enumerate(VERDICTS)}
    return np.array([place.get(name, NO_VERDICT) for name in table.column("verdict").to_pylist()], dtype=np.uint8)


def map_summary(x: Array, y: Array, verdicts: Array) -> list[dict[str, Any]]:
    """The map in words and numbers: for each verdict how many there are and where their middle lies."""
    rows = []
    for number, name in enumerate((*VERDICTS, "not scored")):
        own = verdicts == number
        if own.any():
            rows.append(
                {"verdict": name, "examples": int(own.sum()), "x": float(np.median(x[own])), "y": float(np.median(y[own]))}
            )
    return rows


def _thinned(known: Array, verdicts: Array) -> Array:
    """At most MOST of the known rows: every second, third ... of the easy ones, or of all where that is not enough."""
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
    """Files' names or ids of these rows; None where each id is the row's number and all rows are there."""
    own = "path" if "path" in table.column_names else "id"
    values = table.column(own).take(pa.array(rows)).to_pylist()
    if own == "id" and values == list(range(len(table))):
        return None
    ids = table.column("id").take(pa.array(rows)).to_pylist()
    shown = [shorten(i if value is None else value, 80) for value, i in zip(values, ids, strict=True)]
    return _compressed(json.dumps(shown).encode())


def _compressed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()
