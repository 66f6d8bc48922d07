"""Which examples the gallery shows, and what stands on each card.

At most 600: the likeliest mislabelled (half of them, more where the other groups are small), then the hardest and the most
ambiguous, each the examples with that verdict in the order of its probability; the hardest are made up to 60 with the hardest
of the easy ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from mohs.hardness.table import column
from mohs.report.plain_text import shorten

GROUPS = ("mislabelled", "hard", "ambiguous")
SHARES = {"mislabelled": 300, "hard": 150, "ambiguous": 150}
AT_LEAST = 60  # of the hardest
FLAGGED_AT_MOST = 20_000  # suggestions that can be accepted at once: more would make the page slow


class Card(TypedDict):
    """One example of the gallery; names as they are, to be made visible where they are shown."""

    row: int
    id: str
    path: str | None
    group: str
    label: int
    predicted: int | None
    suggested: int | None
    chance: float
    why: str
    grade: int | None


def gallery_rows(table: pa.Table) -> list[int]:
    """The rows of the table that the gallery shows, group by group, the surest first."""
    return [row for group in GROUPS for row in group_rows(table)[group]]


def group_rows(table: pa.Table) -> dict[str, list[int]]:
    """The same by group; what a group leaves over goes to the ones before it."""
    found = {group: _surest(table, group) for group in GROUPS}
    left = {group: max(0, SHARES[group] - len(rows)) for group, rows in found.items()}
    spare = sum(left.values())
    shown = {}
    for group, rows in found.items():
        extra = min(spare, max(0, len(rows) - SHARES[group]))
        spare -= extra
        shown[group] = rows[: SHARES[group] + extra]
    return shown


def names_of(table: pa.Table, classes: Sequence[Any]) -> list[Any]:
    """The classes, and after them any label, prediction or suggestion of the table that is none of them."""
    names = dict.fromkeys(classes)
    for name in ("label", "predicted", "suggested_label"):
        if name in table.column_names:
            names |= dict.fromkeys(value for value in table.column(name).unique().to_pylist() if value is not None)
    return list(names)


def cards(table: pa.Table, names: Sequence[Any]) -> list[Card]:
    """The gallery's cards; labels are places in `names`."""
    place = {name: i for i, name in enumerate(names)}
    groups = group_rows(table)
    rows = [(row, group) for group in GROUPS for row in groups[group]]
    picked = table.take(pa.array([row for row, _ in rows], pa.int64())).to_pylist()
    return [_card(row, group, entry, place) for (row, group), entry in zip(rows, picked, strict=True)]


def flagged(table: pa.Table, names: Sequence[Any]) -> list[list[Any]]:
    """[id, label, suggestion, probability in percent] of every example whose label is probably wrong, the surest first."""
    if "suggested_label" not in table.column_names:
        return []
    place = {name: i for i, name in enumerate(names)}
    picked = table.take(pa.array(_surest(table, "mislabelled")[:FLAGGED_AT_MOST], pa.int64()))
    columns = (picked.column(name).to_pylist() for name in ("id", "label", "suggested_label", "p_mislabelled"))
    return [
        [str(id_), place[old], place[new], round(100 * p, 1)]
        for id_, old, new, p in zip(*columns, strict=True)
        if old is not None and new is not None and old != new
    ]


def title(card: Card) -> str:
    """What the example is called: its file's name, or its id."""
    if card["path"]:
        return shorten(card["path"].replace("\\", "/").rstrip("/").rpartition("/")[2] or card["path"], 40)
    return shorten(card["id"], 40)


def _surest(table: pa.Table, group: str) -> list[int]:
    """Rows with this verdict, the likeliest first; ties in the table's order."""
    chance = column(table, f"p_{group}")
    verdicts = np.asarray(table.column("verdict").to_pylist(), dtype=object)
    fits = verdicts == group
    if group == "hard" and fits.sum() < AT_LEAST:  # where nothing is hard outright, the hardest of the easy deserve a look
        easy = np.flatnonzero(verdicts == "easy")
        fits[easy[np.argsort(-chance[easy], kind="stable")][: AT_LEAST - fits.sum()]] = True
    rows = np.flatnonzero(fits)
    order = np.argsort(-chance[rows], kind="stable")
    surest: list[int] = rows[order].tolist()
    return surest


def _card(row: int, group: str, entry: dict[str, Any], place: dict[Any, int]) -> Card:
    suggested, predicted = entry.get("suggested_label"), entry.get("predicted")
    return {
        "row": row,
        "id": str(entry["id"]),
        "path": entry.get("path"),
        "group": group,
        "label": place[entry["label"]],
        "predicted": None if predicted is None else place[predicted],
        "suggested": None if suggested is None or suggested == entry["label"] else place[suggested],
        "chance": float(entry[f"p_{group}"]),
        "why": entry.get("why") or "",
        "grade": entry.get("mohs"),
    }
