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
from mohs.audit.decision_log import FINAL, DecisionLog, Entry, Item, Made
from mohs.hardness.verdict import VERDICTS
from mohs.report.verdict_labels import label_of, shown_order
from mohs.review.database import Array, Database, View
from mohs.review.original import Original
from mohs.review.pictures import Pictures
from mohs.review.query import OPEN, QueryError, Spec, filtered, quoted, suggests
from mohs.review.source import Source

CARD = ("id", "label", "suggested", "chance", "verdict", "grade", "why", "path", "text", "fields")
MOST_BULK, MOST_CHANGES, MOST_PAGE, MOST_PAIRS = 1_000_000, 2_000, 500, 5_000
FACET_VALUES, MOST_DISTINCT = 200, 60  # values of a facet that are listed; values of another column that make it one
EXCERPT = 280
BINS = 24
LONGEST_NAME = 80
COLORS = (  # for classes on the map; beyond them the colors repeat
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#ff9da7", "#9c755f", "#86bcb6",
    "#8cd17d", "#d37295", "#a0cbe8", "#ffbe7d", "#b6992d", "#499894", "#d4a6c8", "#f1ce63", "#79706e", "#d7b5a6",
)  # fmt: skip
SCALE = ("#2c7bb6", "#4d9ac6", "#7ab8d6", "#abd3e0", "#d9e6d2", "#f8e6a7", "#fdc877", "#f99f55", "#ea6a3c", "#d7301f")


class Review:
    """The examples of a source with their decision log."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.database = Database(source)
        self.original = Original(source)
        self.pictures = Pictures(self.database, self.original)
        self.log = DecisionLog(source.log, source.data_hash)
        self._lock = threading.RLock()
        self._changes: list[tuple[int, list[int]]] = []  # rows that each entry concerned, since the start
        self._began_at = self.log.state.last
        self._rows: dict[str, int] = self.database.rows_of(list(self.log.state.standing))
        self._put(list(self._rows))

    def decided(self) -> list[tuple[str, Made]]:
        """Each id with the decision that counts, as they are now."""
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
        found = dict.fromkeys(self.source.classes)
        if not found:
            columns = [self.source.roles[role] for role in ("label", "suggested") if role in self.source.roles]
            for name in columns:
                found |= dict.fromkeys(
                    v
                    for (v,) in self.database.query(f"SELECT DISTINCT {quoted(name)} v FROM examples e ORDER BY v")
                    if v is not None
                )
        return list(found)

    def about(self) -> dict[str, Any]:
        """What the page needs to know once."""
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
            "map": self.map_axes() is not None,
            "reaudit": source.call is not None and source.folder is not None,
            "apply": None if source.folder is None else f"mohs apply {source.folder} {source.log} --to labels.csv",
            "log": source.log.name,
            "seq": self.log.state.last,
        }

    def cards(self, rows: Sequence[int] | Array) -> list[dict[str, Any]]:
        """What the grid shows of these rows."""
        found = self.database.fetch(rows, CARD)
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

    def facets(self, spec: Spec) -> list[dict[str, Any]]:
        """The values of each column that has few, with their numbers under the other filters."""
        return [self._facet(name, title, spec) for name, title in self.facet_columns]

    def decided_counts(self, spec: Spec) -> dict[str, int]:
        """How many examples have each decision, under the other filters."""
        clause = filtered(spec.without("decided"), self.source).also(table="decided")
        sql = f"SELECT d.decision, count(*), count(*) FILTER (d.disputed) {clause.sql} GROUP BY 1"
        found = {name: (count, disputed) for name, count, disputed in self.database.query(sql, clause.parameters)}
        counts = {name: found.get(name, (0, 0))[0] for name in (*FINAL, "skip")}
        done = sum(counts[name] for name in FINAL)
        total = sum(count for count, _ in found.values())
        return {"no": total - done, "yes": done, **counts, "disputed": sum(disputed for _, disputed in found.values())}

    @cached_property
    def facet_columns(self) -> list[tuple[str, str]]:
        """The columns that are facets and their titles: those with a role, and others with few values."""
        roles = self.source.roles
        titles = {"verdict": "Verdict", "label": "Label", "suggested": "Suggested", "split": "Split"}
        found = [(roles[role], title) for role, title in titles.items() if role in roles]
        taken = set(roles.values()) | {"predicted"}
        for name, column in self.source.columns.items():
            if name not in taken and column.kind in ("text", "flag"):
                number = self.database.query(f"SELECT approx_count_distinct({quoted(name)}) FROM examples e")[0][0]
                if 1 < number <= MOST_DISTINCT:
                    found.append((name, name))
        return found

    def histogram(self, spec: Spec, column: str) -> dict[str, Any]:
        """Numbers of examples in equal bins of a column's range, under the filters but the one on this column."""
        known = self.source.columns.get(column)
        if known is None or known.kind != "number":
            raise QueryError(f"{column[:80]!r} is not a column of numbers")
        name = quoted(column)
        low, high = self.database.query(f"SELECT min({name}), max({name}) FROM examples e WHERE isfinite({name}::DOUBLE)")[0]
        if low is None:
            return {"low": None, "high": None, "bins": []}
        low, high = float(low), float(high)
        open_ = Spec(**{**vars(spec), "between": tuple(one for one in spec.between if one[0] != column)})
        clause = filtered(open_, self.source).also(f"isfinite({name}::DOUBLE)")
        step = (high - low) / BINS or 1.0
        sql = f"SELECT least(floor(({name}::DOUBLE - ?) / ?), {BINS - 1})::INTEGER b, count(*) {clause.sql} GROUP BY 1"
        counts = dict(self.database.query(sql, [low, step, *clause.parameters]))
        return {"low": low, "high": high, "bins": [counts.get(b, 0) for b in range(BINS)]}

    def pairs(self, spec: Spec) -> list[dict[str, Any]]:
        """Numbers of examples by given and suggested label, where they differ, and how many of them are decided."""
        if "suggested" not in self.source.roles:
            return []
        label, suggested = (quoted(self.source.roles[role]) for role in ("label", "suggested"))
        clause = filtered(spec, self.source).also(suggests(self.source), table="decided")
        numbers = f"count(*), count(*) FILTER (NOT {OPEN})"
        sql = f"SELECT {label}, {suggested}, {numbers} {clause.sql} GROUP BY 1, 2 ORDER BY 3 DESC LIMIT {MOST_PAIRS}"
        return [
            {"label": a, "suggested": b, "count": n, "decided": done}
            for a, b, n, done in self.database.query(sql, clause.parameters)
        ]

    def map_axes(self) -> tuple[str, str, str, str] | None:
        """The columns of the map and their titles: the stored plane, or scores as in the report."""
        roles, columns = self.source.roles, self.source.columns
        if "x" in roles:
            return roles["x"], roles["y"], "first principal component", "second principal component"
        for x, y in (("variability", "mean_confidence"), ("entropy", "confidence")):
            if x in columns and y in columns:
                return x, y, x.replace("_", " "), y.replace("_", " ")
        return None

    def map_points(self) -> tuple[Array, Array]:
        """x and y (N,) float32 of every example; NaN without a place."""
        axes = self.map_axes()
        if axes is None:
            raise QueryError("these examples have no map")
        found = (
            self.database.connection.cursor()
            .execute(f"SELECT {quoted(axes[0])}::FLOAT x, {quoted(axes[1])}::FLOAT y FROM examples e ORDER BY e.rowid")
            .fetchnumpy()
        )
        x, y = (np.ma.filled(found[name], np.nan).astype("<f4") for name in ("x", "y"))
        return x, y

    def map_colors(self, by: str) -> tuple[Array, list[str], list[str]]:
        """For every example the place (N,) uint8 of its color in a palette, the palette, and what its colors mean."""
        roles = self.source.roles
        if by == "decision":
            names, palette = ["open", *FINAL], ["#9aa3ad", "#009e73", "#0072b2", "#e69f00", "#d55e00"]
            colors = np.zeros(self.database.total, np.uint8)
            for id_, made in self.decided():
                if id_ in self._rows:
                    colors[self._rows[id_]] = 1 + FINAL.index(made.decision)
            return colors, palette, names
        if by == "verdict" and "verdict" in roles:
            names = [*shown_order(VERDICTS), "not scored"]
            return self._category(roles["verdict"], names), [label_of(name).color for name in names], names
        if by in ("label", "suggested") and by in roles:
            names = self.classes[:255]
            return (
                self._category(roles[by], [*names, "others"]),
                [COLORS[i % len(COLORS)] for i in range(len(names))] + ["#9aa3ad"],
                [*names, "others"],
            )
        column = roles.get({"chance": "chance", "grade": "grade"}.get(by, ""), by)
        if column not in self.source.columns or self.source.columns[column].kind != "number":
            raise QueryError(f"the map cannot be colored by {by[:80]!r}")
        return self._scale(column)

    def _category(self, column: str, names: Sequence[str]) -> Array:
        last = len(names) - 1
        sql = f"SELECT coalesce(list_position(?::VARCHAR[], CAST({quoted(column)} AS VARCHAR)) - 1, {last})::UTINYINT c FROM examples e ORDER BY e.rowid"
        found = self.database.numbers(sql, [list(names)])
        return np.minimum(found, last).astype(np.uint8)

    def _scale(self, column: str) -> tuple[Array, list[str], list[str]]:
        values = self.database.numbers(f"SELECT {quoted(column)}::DOUBLE c FROM examples e ORDER BY e.rowid")
        known = np.isfinite(values)
        low, high = np.quantile(values[known], (0.005, 0.995)) if known.any() else (0.0, 1.0)
        place = np.clip((values - low) / ((high - low) or 1.0) * len(SCALE), 0, len(SCALE) - 1)
        colors = np.where(known, np.nan_to_num(place), len(SCALE)).astype(np.uint8)
        names = [f"{low + (high - low) * i / len(SCALE):.3g}" for i in range(len(SCALE))]
        return colors, [*SCALE, "#9aa3ad"], [*names, "no value"]

    def _facet(self, name: str, title: str, spec: Spec) -> dict[str, Any]:
        clause = filtered(spec.without(name), self.source)
        sql = f"SELECT coalesce(CAST({quoted(name)} AS VARCHAR), '') v, count(*) n {clause.sql} GROUP BY 1 ORDER BY n DESC, v LIMIT {FACET_VALUES + 1}"
        found = [[value, count] for value, count in self.database.query(sql, clause.parameters)]
        return {"column": name, "title": title, "values": found[:FACET_VALUES], "more": len(found) > FACET_VALUES}

    def decide(self, rows: Sequence[int], decision: str, by: str, new_label: str = "") -> dict[str, Any]:
        """Write a decision on some examples to the log; returns when it is on the disk."""
        with self._lock:
            return self._decided(self._items(rows, decision, new_label), by)

    def decide_view(self, view: View, decision: str, by: str, new_label: str = "") -> dict[str, Any]:
        """The same for all examples of a view that nobody has decided on in the meantime; one undo takes all of it back."""
        if view.total > MOST_BULK:
            raise QueryError(
                f"this would decide on {view.total:,} examples at once; the limit is {MOST_BULK:,}: narrow the view down"
            )
        with self._lock:
            state, rows = self.log.state, view.rows()
            if state.standing and view.spec.decided == "no":
                ids = self.database.ids(rows)
                rows = np.array([row for row, id_ in zip(rows, ids, strict=True) if not state.is_final(id_)], dtype=np.int64)
            return self._decided(self._items(rows, decision, new_label, several=True), by)

    def step(self, by: str, do: str) -> dict[str, Any] | None:
        """Undo or redo the reviewer's last decision."""
        with self._lock:
            made = self.log.step(by, do)
            return None if made is None else self._told(*made)

    def changes(self, since: int) -> dict[str, Any]:
        """The decisions on examples that changed after this entry of the log, by anybody."""
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

    def _items(
        self, rows: Sequence[int] | Array, decision: str, new_label: str, *, several: bool = False
    ) -> dict[str, list[Item]]:
        """The log's items by decision: an accepted suggestion that is the label itself keeps the label."""
        if decision == "change" and new_label not in set(self.classes):
            raise QueryError(f"the new label {new_label[:80]!r} is not one of the {len(self.classes)} classes")
        found = self.database.fetch(rows, ("id", "label", "suggested"))
        made: dict[str, list[Item]] = {}
        for one in found:
            id_ = one["id"] if self.database.unique else str(one["row"])
            self._rows[id_] = one["row"]
            label, suggested = ("" if one.get(name) is None else str(one[name]) for name in ("label", "suggested"))
            if decision == "accept" and not suggested:
                if not several:
                    raise QueryError("there is no suggestion to accept: choose a label, keep or exclude it")
                continue
            new = suggested if decision == "accept" else new_label if decision == "change" else ""
            kind = "keep" if decision in ("accept", "change") and new == label else decision
            made.setdefault(kind, []).append((id_, label, "" if kind == "keep" else new))
        return {decision: made[decision]} if several and decision in made else made

    def _decided(self, items: dict[str, list[Item]], by: str) -> dict[str, Any]:
        if not items:
            raise QueryError("there is nothing left to decide in this selection")
        (decision, some), *rest = items.items()
        if rest:  # accepted suggestions, some of which are the label itself: one entry, so that one undo takes it back
            some = [(id_, label, new or label) for part in items.values() for id_, label, new in part]
            decision = "accept"
        return self._told(*self.log.decide(check_name(by), decision, some))

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


def plain(made: Made) -> dict[str, Any]:
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
