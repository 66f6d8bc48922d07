"""A review: the examples, the decisions on them, and the operations that the app offers; one instance serves all reviewers."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mohs._core.errors import DataError
from mohs.audit.decision_log import FINAL, Decision, DecisionLog, Entry, Item
from mohs.hardness.table import VERDICTS
from mohs.report.verdict_labels import label_of, shown_order
from mohs.review.database import Array, Database, View
from mohs.review.original import Original
from mohs.review.pictures import Pictures
from mohs.review.query import QueryError, quoted
from mohs.review.source import Source

CARD = ("id", "label", "suggested", "chance", "verdict", "grade", "why", "path", "text", "fields")
MOST_BULK, MOST_CHANGES, MOST_PAGE = 1_000_000, 2_000, 500  # maximum number of examples decided, reported and shown at once
EXCERPT = 280  # characters of a text on its card
LONGEST_NAME = 80


class Review:
    """The examples of a source with their decision log."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.database = Database(source)
        self.original = Original(source)
        self.pictures = Pictures(self.database, self.original)
        self.log = DecisionLog(source.log, source.data_hash)
        self._lock = threading.RLock()
        self._changes: list[tuple[int, list[int]]] = []  # rows of each entry since the start
        self._began_at = self.log.state.last
        self._rows: dict[str, int] = self.database.rows_of(list(self.log.state.standing))
        self._put(list(self._rows))

    def decided(self) -> list[tuple[str, Decision]]:
        """Each id with the decision that currently counts."""
        with self._lock:
            return list(self.log.state.decided())

    def row_of(self, id_: str) -> int:
        """The row of an example that was decided on; −1 if the table no longer has it."""
        return self._rows.get(id_, -1)

    def close(self) -> None:
        self.log.close()

    @cached_property
    def classes(self) -> list[str]:
        """The class names; for a table that does not list them, its labels and suggestions."""
        if self.source.classes:
            return list(self.source.classes)
        columns = [quoted(self.source.roles[role]) for role in ("label", "suggested") if role in self.source.roles]
        values = " UNION ".join(f"SELECT {name} v FROM examples e" for name in columns)
        return [value for (value,) in self.database.query(f"SELECT DISTINCT v FROM ({values}) WHERE v IS NOT NULL ORDER BY v")]

    def about(self) -> dict[str, Any]:
        """Facts that the page needs once."""
        source = self.source
        return {
            "name": source.name,
            "kind": source.kind,
            "total": self.database.total,
            "hash": source.data_hash,
            "roles": dict(source.roles),
            "columns": [
                {"name": c.name, "kind": c.kind, "meaning": c.meaning, "direction": c.direction} for c in source.columns.values()
            ],
            "classes": self.classes,
            "verdicts": {
                name: {"color": label_of(name).color, "meaning": label_of(name).meaning} for name in shown_order(VERDICTS)
            },
            "pictures": source.kind == "images",
            "reaudit": source.call is not None and source.folder is not None,
            "apply": None if source.folder is None else f"mohs apply {source.folder} {source.log} --to labels.csv",
            "log": source.log.name,
            "seq": self.log.state.last,
        }

    def cards(self, rows: Sequence[int] | Array) -> list[dict[str, Any]]:
        """The cards of these rows for the grid."""
        found = self.database.fetch(rows, CARD)
        self.pictures.remember(found)
        for card in found:
            card["id"] = str(card["row"]) if not self.database.unique else card["id"]
            card["text"] = None if card.get("text") is None else card["text"][:EXCERPT]
            card["fields"] = fields_of(card.get("fields"))
            card["decision"] = self.decision_on(card["id"])
        return found

    def decision_on(self, id_: str) -> dict[str, Any] | None:
        """The decision that counts on an example, as the page shows it."""
        made = self.log.state.decision(id_)
        return None if made is None else plain(made) | {"disputed": self.log.state.disputed(id_)}

    def decide(self, rows: Sequence[int], decision: str, by: str, new_label: str = "") -> dict[str, Any]:
        """Write a decision on some examples to the log; returns when it is on the disk."""
        with self._lock:
            return self._decided(self._items(rows, decision, new_label), decision, by)

    def decide_view(self, view: View, decision: str, by: str, new_label: str = "") -> dict[str, Any]:
        """Decide on all examples of a view that are still undecided; one undo takes all of it back."""
        if view.total > MOST_BULK:
            raise QueryError(
                f"this would decide on {view.total:,} examples at once; the limit is {MOST_BULK:,}: narrow the view down"
            )
        with self._lock:
            state, rows = self.log.state, view.rows()
            if state.standing and view.spec.decided == "no":
                ids = self.database.ids(rows)
                rows = np.array([row for row, id_ in zip(rows, ids, strict=True) if not state.is_final(id_)], dtype=np.int64)
            return self._decided(self._items(rows, decision, new_label), decision, by)

    def step(self, by: str, do: str) -> dict[str, Any] | None:
        """Undo or redo the reviewer's last decision."""
        with self._lock:
            made = self.log.step(by, do)
            return None if made is None else self._told(*made)

    def changes(self, since: int) -> dict[str, Any]:
        """The decisions on examples that changed after this entry of the log, by any reviewer."""
        with self._lock:
            last = self.log.state.last
            if since < self._began_at:
                return {"seq": last, "reload": True, "changed": []}
            rows = list(dict.fromkeys(row for seq, some in self._changes if seq > since for row in some))
            if len(rows) > MOST_CHANGES:
                return {"seq": last, "reload": True, "changed": []}
            return {"seq": last, "reload": False, "changed": self._shown(rows)}

    def disagreements(self) -> list[dict[str, Any]]:
        """The examples on which reviewers disagree, with each one's decision."""
        with self._lock:
            ids = self.log.state.disagreements()
            rows = [self._rows[id_] for id_ in ids if id_ in self._rows][:MOST_PAGE]
            cards = self.cards(rows)
            for card in cards:
                card["opinions"] = [plain(made) for made in self.log.state.opinions(card["id"]).values()]
            return cards

    def reviewers(self) -> list[dict[str, Any]]:
        """Each reviewer's name and number of examples decided."""
        with self._lock:
            state = self.log.state
            made = Counter(one.by for id_ in state.standing for one in state.opinions(id_).values() if one.decision in FINAL)
            return [{"name": name, "decided": count} for name, count in made.most_common()]

    def entries_of(self, by: str) -> list[Entry]:
        """A reviewer's decisions, undone ones too, the oldest first."""
        with self._lock:
            return [entry for entry in self.log.state.entries.values() if entry.by == by]

    def check_rows(self, rows: Any) -> list[int]:
        """Rows from a request, each of which must exist."""
        if not isinstance(rows, list) or not rows or len(rows) > MOST_BULK:
            raise QueryError("rows must be a list of row numbers")
        if not all(type(row) is int and 0 <= row < self.database.total for row in rows):
            raise QueryError(f"rows must be whole numbers from 0 to {self.database.total - 1}")
        return list(dict.fromkeys(rows))

    def _items(self, rows: Sequence[int] | Array, decision: str, new_label: str) -> list[Item]:
        """The log's items for these rows; suggestions to accept are looked up, and rows without one are skipped."""
        if decision == "change" and new_label not in set(self.classes):
            raise QueryError(f"the new label {new_label[:80]!r} is not one of the {len(self.classes)} classes")
        items: list[Item] = []
        for one in self.database.fetch(rows, ("id", "label", "suggested")):
            id_ = one["id"] if self.database.unique else str(one["row"])
            label, suggested = ("" if one.get(name) is None else str(one[name]) for name in ("label", "suggested"))
            new = {"accept": suggested if suggested != label else "", "change": new_label}.get(decision, "")
            if new or decision not in ("accept", "change"):
                self._rows[id_] = one["row"]
                items.append((id_, label, new))
        if not items:
            missing = "there is no suggestion to accept: choose a label, keep or exclude it"
            raise QueryError(missing if decision == "accept" else "there is nothing left to decide in this selection")
        return items

    def _decided(self, items: Sequence[Item], decision: str, by: str) -> dict[str, Any]:
        return self._told(*self.log.decide(check_name(by), decision, items))

    def _told(self, entry: Entry, ids: Sequence[str]) -> dict[str, Any]:
        rows = self._put(ids)
        self._changes.append((entry.seq, rows))
        by = entry.by
        state = self.log.state
        concerned = entry if entry.do == "decide" else state.entries[entry.of]
        return {
            "seq": entry.seq,
            "count": len(ids),
            "decision": concerned.decision,
            "changed": self._shown(rows) if len(rows) <= MOST_CHANGES else [],
            "reload": len(rows) > MOST_CHANGES,
            "undo": state.next_step(by, "undo") is not None,
            "redo": state.next_step(by, "redo") is not None,
        }

    def _shown(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        ids = self.database.ids(rows)
        return [{"row": row, "decision": self.decision_on(id_)} for row, id_ in zip(rows, ids, strict=True)]

    def _put(self, ids: Sequence[str]) -> list[int]:
        """Bring the decisions on these examples into the database; returns their rows."""
        state = self.log.state
        known = [(id_, self._rows[id_]) for id_ in ids if id_ in self._rows]
        made = [state.decision(id_) for id_, _ in known]
        rows = [row for _, row in known]
        if rows:
            self.database.set_decided(
                rows, [None if one is None else one.decision for one in made], [state.disputed(id_) for id_, _ in known]
            )
        return rows


def check_name(name: Any) -> str:
    """A reviewer's name from a request."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise QueryError(f"a reviewer's name has 1 to {LONGEST_NAME} printable characters")
    return name.strip()


def plain(made: Decision) -> dict[str, Any]:
    """A decision as JSON."""
    return {"decision": made.decision, "label": made.new_label, "by": made.by, "at": made.at}


def fields_of(value: Any) -> list[list[Any]] | None:
    """Name and value of some fields of a row, from a JSON object."""
    try:
        found = json.loads(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return (
        [[str(name), one if isinstance(one, str | int | float | bool) else None] for name, one in found.items()]
        if isinstance(found, dict)
        else None
    )


def open_review(source: Source) -> Review:
    """Open the examples and the log; raises DataError or RunError if that is not possible."""
    if not source.log.parent.is_dir():
        raise DataError(f"{source.log.parent} is not a folder: decisions cannot be kept there")
    return Review(source)
