"""The contents of each card of the gallery; `mohs.audit.gallery_rows` selects the examples.

An example without a picture is shown by its text (the table's column `text`), or by some fields of its row (the column
`fields`: a JSON object).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from mohs._core.plain_text import shorten, visible
from mohs.audit.gallery_rows import group_rows, ranked_by, surest

FLAGGED_AT_MOST = 20_000  # maximum number of suggestions to accept at once; more would make the page slow
ASKED = 20  # examples to show to one more person
EXCERPT = 280  # characters of a text on its card
FIELDS, FIELD = 6, 48  # fields of a row on its card, and characters of each


class Card(TypedDict):
    """One example of the gallery; names are raw; they are made printable when they are displayed.

    chance: the probability of the verdict `chance_of`. excerpt: the example's text. fields: name and value of a row's fields.
    """

    row: int
    id: str
    path: str | None
    group: str
    label: int
    predicted: int | None
    suggested: int | None
    chance: float
    chance_of: str
    why: str
    grade: int | None
    excerpt: str | None
    fields: list[tuple[str, str]]


def names_of(table: pa.Table, classes: Sequence[Any]) -> list[Any]:
    """The classes, followed by every label, prediction or suggestion of the table that is not among them."""
    names = dict.fromkeys(classes)
    for name in ("label", "predicted", "suggested_label"):
        if name in table.column_names:
            names |= dict.fromkeys(value for value in table.column(name).unique().to_pylist() if value is not None)
    return list(names)


def cards(table: pa.Table, names: Sequence[Any]) -> list[Card]:
    """The gallery's cards; labels are indices into `names`."""
    place = {name: i for i, name in enumerate(names)}
    groups = group_rows(table)
    rows = [(row, group) for group in groups for row in groups[group]]
    picked = table.take(pa.array([row for row, _ in rows], pa.int64())).to_pylist()
    return [_card(row, group, entry, place) for (row, group), entry in zip(rows, picked, strict=True)]


def flagged(table: pa.Table, names: Sequence[Any]) -> list[list[Any]]:
    """[id, label, suggestion, probability in percent] of every probably mislabeled example, the most certain first."""
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


def examples_to_ask(table: pa.Table) -> list[dict[str, Any]]:
    """The examples that one more person's vote would help most: title, label, disagreement and gain; empty without votes."""
    if "gain" not in table.column_names:
        return []
    best = table.take(pc.select_k_unstable(table, ASKED, [("gain", "descending")])).to_pylist()
    return [
        {
            "title": _title(str(entry["id"]), entry.get("path")),
            "label": shorten(entry["label"]),
            "suggested": shorten(entry["suggested_label"]),
            "disagreement": entry["disagreement"],
            "gain": entry["gain"],
        }
        for entry in best
        if entry["gain"] > 0
    ]


def suspicious_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as a list: id, label, suggestion, probability of a wrong label, verdict and reasons."""
    return [
        {
            "id": shorten(entry["id"], 60),
            "label": shorten(entry["label"]),
            "suggested": shorten(entry["suggested_label"]) if entry["suggested_label"] != entry["label"] else "",
            "p": entry["p_mislabeled"],
            "verdict": entry["verdict"],
            "why": shorten(entry.get("why") or "", 200),
        }
        for entry in table.to_pylist()
    ]


def title(card: Card) -> str:
    """The example's file name, or its id."""
    return _title(card["id"], card["path"])


def _title(id_: str, path: str | None) -> str:
    if path:
        return shorten(path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path, 40)
    return shorten(id_, 40)


def excerpt(text: Any) -> str | None:
    """The beginning of a text, truncated between words, with control characters made visible; None for an empty text."""
    shown = visible("" if text is None else text).strip()
    if len(shown) <= EXCERPT:
        return shown or None
    return f"{shown[:EXCERPT].rsplit(' ', 1)[0]} …"


def fields_of(value: Any) -> list[tuple[str, str]]:
    """The first fields of a row, from a JSON object; empty if there are none or they cannot be read."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return []
    if not isinstance(found, dict):
        return []
    first = list(found.items())[:FIELDS]
    return [(shorten(name, FIELD), "missing" if one is None else shorten(one, FIELD)) for name, one in first]


def _card(row: int, group: str, entry: dict[str, Any], place: dict[Any, int]) -> Card:
    suggested, predicted = entry.get("suggested_label"), entry.get("predicted")
    chance = ranked_by(group)
    return {
        "row": row,
        "id": str(entry["id"]),
        "path": entry.get("path"),
        "group": group,
        "label": place[entry["label"]],
        "predicted": None if predicted is None else place[predicted],
        "suggested": None if suggested is None or suggested == entry["label"] else place[suggested],
        "chance": float(entry[chance]),
        "chance_of": chance.removeprefix("p_"),
        "why": entry.get("why") or "",
        "grade": entry.get("mohs"),
        "excerpt": excerpt(entry.get("text")),
        "fields": fields_of(entry.get("fields")),
    }
