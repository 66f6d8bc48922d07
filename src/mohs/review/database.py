"""The examples in DuckDB: the table in memory, the decisions that count, and views by position.

    examples (rowid = row of the file, its columns)          decided (row, decision, disputed)
    drawn (row, place): a random order of flagged examples    selection_NAME (row): a lasso, or what a search found

A view is a filter and an order. Its first rows come from a top-n query in milliseconds; the whole order is computed when a user
scrolls further. A view that depends on decisions is computed at once, so that new decisions do not change it.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from mohs._core.errors import DataError
from mohs.review.query import Clause, QueryError, Spec, filtered, ordered, quoted, selection_table
from mohs.review.source import Source

MEMORY = "1GB"
HEAD = 2000  # rows of a view that are computed at once
MOST_VIEWS, MOST_SELECTIONS = 24, 32  # numbers of views and selections that are kept
DRAWN = 5000
LABELS = ("label", "suggested")  # roles whose values are compared and shown as text
Array = np.ndarray[Any, Any]


class View:
    """Rows in an order: how many, and which at some positions."""

    def __init__(self, database: Database, spec: Spec) -> None:
        self.database, self.spec = database, spec
        self.clause, self.order = filtered(spec, database.source), ordered(spec, database.source)
        self._lock = threading.Lock()
        self._rows = self._ordered("" if spec.by_decisions else f" LIMIT {HEAD}")
        self.whole = spec.by_decisions or len(self._rows) < HEAD
        self.total = len(self._rows) if self.whole else database.count(self.clause)

    def rows(self, start: int = 0, count: int | None = None) -> Array:
        """The rows from this position on."""
        stop = self.total if count is None else min(start + count, self.total)
        with self._lock:
            if stop > len(self._rows) and not self.whole:
                self._rows, self.whole = self._ordered(""), True
            return self._rows[start:stop]

    def _ordered(self, limit: str) -> Array:
        sql = f"SELECT e.rowid AS row {self.clause.sql} {self.order}{limit}"
        return self.database.numbers(sql, self.clause.parameters)


class Database:
    """The examples of a source; every thread may read, one at a time may write."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.connection = duckdb.connect(":memory:", config={"memory_limit": MEMORY, "preserve_insertion_order": True})
        self._views: OrderedDict[str, View] = OrderedDict()
        self._selections: OrderedDict[str, None] = OrderedDict()
        self._lock, self._made = threading.Lock(), 0
        self._load()
        self._draw()

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that a query returns."""
        return self.connection.cursor().execute(sql, list(parameters)).fetchall()

    def numbers(self, sql: str, parameters: Sequence[Any] = ()) -> Array:
        """The only column that a query returns, as an array."""
        found = self.connection.cursor().execute(sql, list(parameters)).fetchnumpy()
        values: Array = np.ma.filled(next(iter(found.values())), np.nan) if len(found) else np.empty(0)
        return values

    def count(self, clause: Clause) -> int:
        """Number of examples that a filter lets through."""
        return int(self.query(f"SELECT count(*) {clause.sql}", clause.parameters)[0][0])

    def view(self, spec: Spec) -> tuple[str, View]:
        """A new view and its name."""
        view = View(self, self.prepared(spec))
        with self._lock:
            self._made += 1
            name = f"{self._made:x}"
            self._views[name] = view
            while len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
        return name, view

    def known_view(self, name: str) -> View | None:
        """The view of this name, unless it was forgotten."""
        with self._lock:
            if name in self._views:
                self._views.move_to_end(name)
            return self._views.get(name)

    def select(self, rows: Array) -> str:
        """Keep a selection of rows; returns its name, which is the same for the same rows."""
        rows = np.unique(rows.astype(np.int64))
        if len(rows) and not 0 <= rows[0] <= rows[-1] < self.total:
            raise ValueError(f"rows must be from 0 to {self.total - 1}")
        return self._keep(hashlib.blake2b(rows.tobytes(), digest_size=6).hexdigest(), lambda: rows)

    def prepared(self, spec: Spec) -> Spec:
        """The same view with its search as a selection, so that the search runs once, not for every count."""
        for name in spec.set:
            if name not in self._selections:
                raise QueryError("this selection is no longer kept: make it again")
        if not spec.find:
            return spec
        clause = filtered(Spec(find=spec.find), self.source)
        name = hashlib.blake2b(f"find {spec.find.lower()}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        found = self._keep(name, lambda: self.numbers(f"SELECT e.rowid {clause.sql}", clause.parameters).astype(np.int64))
        return replace(spec, find="", set=(*spec.set, found))

    def _keep(self, name: str, rows: Callable[[], Array]) -> str:
        with self._lock:
            if name not in self._selections:
                self.connection.execute(f"CREATE OR REPLACE TABLE {selection_table(name)} (row BIGINT)")
                self._insert(selection_table(name), {"row": rows()})
                self._selections[name] = None
            self._selections.move_to_end(name)
            while len(self._selections) > MOST_SELECTIONS:
                old, _ = self._selections.popitem(last=False)
                self.connection.execute(f"DROP TABLE {selection_table(old)}")
        return name

    def set_decided(self, rows: Sequence[int], decisions: Sequence[str | None], disputed: Sequence[bool]) -> None:
        """Replace the decisions on these rows; None removes a decision."""
        with self._lock:
            self._insert("changed", {"row": rows, "decision": pa.array(decisions, pa.string()), "disputed": disputed})
            self.connection.execute("DELETE FROM decided WHERE row IN (SELECT row FROM changed)")
            self.connection.execute("INSERT INTO decided SELECT * FROM changed WHERE decision IS NOT NULL")
            self.connection.execute("DELETE FROM changed")

    def fetch(self, rows: Sequence[int] | Array, roles: Iterable[str]) -> list[dict[str, Any]]:
        """The values of these roles, for these rows in this order; each dict has its row too."""
        named = [role for role in roles if role in self.source.roles]
        chosen = ", ".join(f"{self._shown(role)} AS {role}" for role in named)
        wanted = [int(row) for row in rows]
        single = len(wanted) == 1  # is looked up; several are joined, in one pass over the table
        where = "WHERE e.rowid = ?" if single else "JOIN (SELECT unnest(?::BIGINT[]) AS row) k ON e.rowid = k.row"
        sql = f"SELECT e.rowid{', ' if named else ''}{chosen} FROM examples e {where}"
        found = {one[0]: one[1:] for one in self.query(sql, wanted if single else [wanted])}
        return [{"row": row, **dict(zip(named, found[row], strict=True))} for row in wanted if row in found]

    def whole_row(self, row: int) -> dict[str, Any]:
        """Every column of one example."""
        names = list(self.source.columns)
        found = self.query(f"SELECT {', '.join(quoted(name) for name in names)} FROM examples e WHERE e.rowid = ?", [row])
        return dict(zip(names, found[0], strict=True)) if found else {}

    def ids(self, rows: Sequence[int] | Array) -> list[str]:
        """The ids of these rows: as the table has them, or the row numbers."""
        if "id" not in self.source.roles or not self.unique:
            return [str(int(row)) for row in rows]
        return [str(one["id"]) for one in self.fetch(rows, ["id"])]

    def rows_of(self, ids: Sequence[str]) -> dict[str, int]:
        """The row of each of these ids that the table has."""
        if "id" not in self.source.roles or not self.unique:
            return {id_: int(id_) for id_ in ids if id_.isdecimal() and int(id_) < self.total}
        column = quoted(self.source.roles["id"])
        text = f"CAST({column} AS VARCHAR)"
        sql = f"SELECT {text}, e.rowid FROM examples e WHERE {text} IN (SELECT unnest(?::VARCHAR[]))"
        return dict(self.query(sql, [list(ids)]))

    def _shown(self, role: str) -> str:
        column = quoted(self.source.roles[role])
        return f"CAST({column} AS VARCHAR)" if role == "id" else column

    def _load(self) -> None:
        source = self.source
        texts = {source.roles[role] for role in LABELS if role in source.roles}
        chosen = ", ".join(_loaded(name, text=name in texts, flag=one.kind == "flag") for name, one in source.columns.items())
        try:
            self.connection.execute(
                f"CREATE TABLE examples AS SELECT {chosen} FROM read_parquet(?) e", [_literal(source.table.absolute())]
            )
        except duckdb.Error as error:
            raise DataError(f"{source.table} cannot be read ({str(error).splitlines()[0]})") from error
        self.connection.execute("CREATE TABLE decided (row BIGINT, decision VARCHAR, disputed BOOLEAN)")
        self.connection.execute("CREATE TABLE changed (row BIGINT, decision VARCHAR, disputed BOOLEAN)")
        self.connection.execute("SET enable_external_access = false")  # from here on, no file is read or written
        self.connection.execute("SET lock_configuration = true")
        self.total = self.count(Clause())
        if not self.total:
            raise DataError(f"{source.table} has no rows: there is nothing to review")
        id_ = source.roles.get("id")
        self.unique = id_ is not None and self.query(f"SELECT count(DISTINCT {quoted(id_)}) FROM examples e")[0][0] == self.total

    def _draw(self) -> None:
        """A random order of the flagged examples, or of all if there are no verdicts; the same for the same data."""
        verdict = self.source.roles.get("verdict")
        flagged = "" if verdict is None else f" WHERE {quoted(verdict)} = 'mislabeled'"
        rows = self.numbers(f"SELECT e.rowid FROM examples e{flagged}").astype(np.int64)
        seed = int.from_bytes(hashlib.sha256(self.source.data_hash.encode()).digest()[:8], "big")
        drawn = np.random.default_rng(seed).permutation(rows)[:DRAWN]
        self.connection.execute("CREATE TABLE drawn (row BIGINT, place INTEGER)")
        self._insert("drawn", {"row": drawn, "place": np.arange(len(drawn), dtype=np.int32)})

    def _insert(self, table: str, columns: dict[str, Any]) -> None:
        self.connection.register("incoming", pa.table(columns))
        self.connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")
        self.connection.unregister("incoming")


def _loaded(name: str, *, text: bool, flag: bool) -> str:
    """The SQL expression that loads a column: labels as text, formatted as in Python."""
    if not text:
        return quoted(name)
    as_text = (
        f"CASE {quoted(name)} WHEN TRUE THEN 'True' WHEN FALSE THEN 'False' END" if flag else f"CAST({quoted(name)} AS VARCHAR)"
    )
    return f"{as_text} AS {quoted(name).removeprefix('e.')}"


def _literal(path: Path) -> str:
    """A path in which no character is a wildcard."""
    return re.sub(r"([*?\[])", r"[\1]", os.fspath(path))
