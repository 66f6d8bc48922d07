"""Counts under the filters of a view: values of columns, decisions, a histogram of a score, and pairs of labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mohs.audit.decision_log import FINAL
from mohs.review.database import Database
from mohs.review.query import OPEN, QueryError, Spec, filtered, quoted, suggests

MOST_PAIRS = 5_000
FACET_VALUES, MOST_DISTINCT = 200, 60  # listed values of a facet; maximum number of values for another column to be a facet
BINS = 24
TITLES = {"verdict": "Verdict", "label": "Label", "suggested": "Suggested", "split": "Split"}  # roles that are facets


def facet_columns(database: Database) -> list[tuple[str, str]]:
    """The columns that are facets and their titles: those with a role, and other columns of text with few values."""
    roles = database.source.roles
    found = [(roles[role], title) for role, title in TITLES.items() if role in roles]
    taken = {*roles.values(), "predicted"}
    for name, column in database.source.columns.items():
        if name not in taken and column.kind in ("text", "flag"):
            number = database.query(f"SELECT approx_count_distinct({quoted(name)}) FROM examples e")[0][0]
            if 1 < number <= MOST_DISTINCT:
                found.append((name, name))
    return found


def facet(database: Database, name: str, title: str, spec: Spec) -> dict[str, Any]:
    """The most frequent values of a column with their numbers, under the filters on other columns."""
    clause = filtered(spec.without(name), database.source)
    value = f"coalesce(CAST({quoted(name)} AS VARCHAR), '')"
    sql = f"SELECT {value} v, count(*) n {clause.sql} GROUP BY 1 ORDER BY n DESC, v LIMIT {FACET_VALUES + 1}"
    found = [list(one) for one in database.query(sql, clause.parameters)]
    return {"column": name, "title": title, "values": found[:FACET_VALUES], "more": len(found) > FACET_VALUES}


def decided_counts(database: Database, spec: Spec) -> dict[str, int]:
    """How many examples have each decision, under the other filters."""
    clause = filtered(spec.without("decided"), database.source).also(table="decided")
    sql = f"SELECT d.decision, count(*), count(*) FILTER (d.disputed) {clause.sql} GROUP BY 1"
    found = {name: (count, disputed) for name, count, disputed in database.query(sql, clause.parameters)}
    counts = {name: found.get(name, (0, 0))[0] for name in (*FINAL, "skip")}
    done = sum(counts[name] for name in FINAL)
    total = sum(count for count, _ in found.values())
    return {"no": total - done, "yes": done, **counts, "disputed": sum(disputed for _, disputed in found.values())}


def histogram(database: Database, spec: Spec, column: str) -> dict[str, Any]:
    """Numbers of examples in equal bins of a column's range, under the filters but the one on this column."""
    known = database.source.columns.get(column)
    if known is None or known.kind != "number":
        raise QueryError(f"{column[:80]!r} is not a column of numbers")
    value = f"{quoted(column)}::DOUBLE"
    low, high = database.query(f"SELECT min({value}), max({value}) FROM examples e WHERE isfinite({value})")[0]
    if low is None:
        return {"column": column, "low": None, "high": None, "bins": []}
    others = replace(spec, between=tuple(one for one in spec.between if one[0] != column))
    clause = filtered(others, database.source).also(f"isfinite({value})")
    step = (high - low) / BINS or 1.0
    sql = f"SELECT least(floor(({value} - ?) / ?), {BINS - 1})::INTEGER, count(*) {clause.sql} GROUP BY 1"
    counts = dict(database.query(sql, [low, step, *clause.parameters]))
    return {"column": column, "low": low, "high": high, "bins": [counts.get(b, 0) for b in range(BINS)]}


def pairs(database: Database, spec: Spec) -> list[dict[str, Any]]:
    """Numbers of examples by given and suggested label, where they differ, and how many of them are decided."""
    source = database.source
    if "suggested" not in source.roles:
        return []
    label, suggested = (quoted(source.roles[role]) for role in ("label", "suggested"))
    clause = filtered(spec, source).also(suggests(source), table="decided")
    numbers = f"count(*), count(*) FILTER (NOT {OPEN})"
    sql = f"SELECT {label}, {suggested}, {numbers} {clause.sql} GROUP BY 1, 2 ORDER BY 3 DESC LIMIT {MOST_PAIRS}"
    names = ("label", "suggested", "count", "decided")
    return [dict(zip(names, one, strict=True)) for one in database.query(sql, clause.parameters)]
