"""Which examples the gallery shows, and what stands on each card.

At most 600: the likeliest mislabeled (half of them, more where the other groups are small), then the hardest and the most
ambiguous, each the examples with that verdict in the order of its probability; the hardest are made up to 60 with the hardest
of the easy ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import pyarrow as pa

from mohs._core.plain_text import shorten
from mohs.audit.gallery_rows import GROUPS, group_rows, surest

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
    picked = table.take(pa.array(surest(table, "mislabeled")[:FLAGGED_AT_MOST], pa.int64()))
    columns = (picked.column(name).to_pylist() for name in ("id", "label", "suggested_label", "p_mislabeled"))
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
