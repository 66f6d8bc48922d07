"""Which examples to show, in which order: from a URL's parameters to SQL with parameters.

    is.label=dog&is.label=cat     the column has one of these values           in.p_mislabeled=0.5..     it is in this range
    find=rain                     a text column contains it                    decided=no|yes|skip|accept|...|disputed
    set=NAME                      the examples of a selection                  sample=100     the first 100 of a random draw
    has=suggestion                another label is suggested
    sort=-p_mislabeled            by a column, "-" from high to low; "queue" (the default): the most valuable decision first

Column names come from the table and are quoted; values are parameters, never part of the SQL. The examples are `e`, the
decisions that count are `d`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mohs.review.source import Column, Source

DECIDED = ("no", "yes", "skip", "accept", "keep", "change", "exclude", "disputed")
QUEUE = "queue"
LONGEST, MOST_VALUES, MOST_SAMPLE = 200, 1000, 5000  # characters of a search; values of a filter; examples of a sample
JOINS = {
    "decided": "LEFT JOIN decided d ON d.row = e.rowid",
    "drawn": "JOIN drawn s ON s.row = e.rowid",
}
OPEN = "(d.decision IS NULL OR d.decision = 'skip')"
NAME = re.compile(r"[0-9a-f]{12}")  # name of a selection
WILD, ESCAPE = re.compile(r"[%_!]"), "!"  # special characters in the pattern of a search, and the escape character
ESCAPED = ESCAPE + r"\g<0>"


class QueryError(ValueError):
    """A view that cannot be made: an error in the request, not in the data."""


@dataclass(frozen=True)
class Spec:
    """The specification of a view; every field narrows it down."""

    equal: tuple[tuple[str, tuple[str, ...]], ...] = ()
    between: tuple[tuple[str, float | None, float | None], ...] = ()
    find: str = ""
    decided: str = ""
    set: tuple[str, ...] = ()
    sample: int = 0
    has: bool = False
    sort: str = QUEUE

    @property
    def by_decisions(self) -> bool:
        """Whether new decisions change it."""
        return bool(self.decided)

    def without(self, column: str) -> Spec:
        """The same without the filter on this column (or on "decided"), to count its possible values."""
        if column == "decided":
            return replace(self, decided="")
        return replace(self, equal=tuple(one for one in self.equal if one[0] != column))


@dataclass(frozen=True)
class Clause:
    """FROM and WHERE of a query, and its parameters; `also` adds conditions, and the tables that they need."""

    conditions: tuple[str, ...] = ()
    parameters: tuple[Any, ...] = ()
    tables: tuple[str, ...] = ()

    def also(self, condition: str = "", *parameters: Any, table: str = "") -> Clause:
        """The clause with one more condition, or one more table for conditions."""
        return Clause(
            (*self.conditions, *([condition] if condition else [])),
            (*self.parameters, *parameters),
            self.tables if not table or table in self.tables else (*self.tables, table),
        )

    @property
    def sql(self) -> str:
        joined = "".join(f" {JOINS[table]}" for table in self.tables)
        return f"FROM examples e{joined}" + (f" WHERE {' AND '.join(self.conditions)}" if self.conditions else "")


def parse_spec(parameters: Iterable[tuple[str, str]], columns: Mapping[str, Column]) -> Spec:
    """The view that these URL parameters ask for; unknown parameters are ignored, unknown columns are an error."""
    equal: dict[str, list[str]] = {}
    between: dict[str, tuple[float | None, float | None]] = {}
    plain: dict[str, str] = {}
    for name, value in parameters:
        kind, _, column = name.partition(".")
        if kind == "is" and column:
            equal.setdefault(_known(column, columns), []).append(value)
        elif kind == "in" and column:
            between[_known(column, columns)] = _range(value, column, columns)
        elif name in ("find", "decided", "set", "sample", "has", "sort"):
            plain[name] = value
    if any(len(values) > MOST_VALUES for values in equal.values()):
        raise QueryError(f"a filter has over {MOST_VALUES} values")
    if plain.get("decided", "") not in ("", *DECIDED):
        raise QueryError(f"decided must be one of {', '.join(DECIDED)}")
    sort = plain.get("sort") or QUEUE
    if sort.removeprefix("-") != QUEUE:
        _known(sort.removeprefix("-"), columns)
    chosen = plain.get("set", "")
    if chosen and not NAME.fullmatch(chosen):
        raise QueryError("a selection is named by the server")
    sample = plain.get("sample", "")
    if sample and not (sample.isdecimal() and 0 < int(sample) <= MOST_SAMPLE):
        raise QueryError(f"sample must be a number from 1 to {MOST_SAMPLE}")
    return Spec(
        equal=tuple((name, tuple(dict.fromkeys(values))) for name, values in sorted(equal.items())),
        between=tuple((name, *ends) for name, ends in sorted(between.items())),
        find=plain.get("find", "")[:LONGEST].strip(),
        decided=plain.get("decided", ""),
        set=(chosen,) if chosen else (),
        sample=int(sample or 0),
        has=plain.get("has") == "suggestion",
        sort=sort,
    )


def filtered(spec: Spec, source: Source) -> Clause:
    """FROM and WHERE of a view."""
    clause = Clause()
    if spec.decided:
        clause = clause.also(_decided(spec.decided), table="decided")
    if spec.sample:
        clause = clause.also("s.place < ?", spec.sample, table="drawn")
    for name in spec.set:
        clause = clause.also(f"e.rowid IN (SELECT row FROM {selection_table(name)})")
    if spec.has and "suggested" in source.roles:
        clause = clause.also(suggests(source))
    for name, values in spec.equal:
        known = [value for value in values if value]
        parts = [f"{_text(name)} IN ({', '.join('?' * len(known))})"] if known else []
        parts += [f"({quoted(name)} IS NULL OR {_text(name)} = '')"] * ("" in values)  # the empty value: a missing one
        clause = clause.also(f"({' OR '.join(parts)})", *known)
    for name, low, high in spec.between:
        for end, sign in ((low, ">="), (high, "<=")):
            if end is not None:
                clause = clause.also(f"{quoted(name)} {sign} ?", end)
    if spec.find:
        pattern, plain = f"%{WILD.sub(ESCAPED, spec.find)}%", not WILD.search(spec.find)
        like = "ILIKE ?" if plain else f"ILIKE ? ESCAPE '{ESCAPE}'"  # omitting the condition is twice as fast
        searched = [f"{_text(name)} {like}" for name in searched_columns(source)]
        clause = clause.also(f"({' OR '.join(searched)})", *[pattern] * len(searched))
    return clause


def selection_table(name: str) -> str:
    """The table that holds a selection."""
    if not NAME.fullmatch(name):
        raise QueryError("a selection is named by the server")
    return f"selection_{name}"


def suggests(source: Source) -> str:
    """The condition that an example's suggestion differs from its label."""
    return f"{quoted(source.roles['label'])} <> {quoted(source.roles['suggested'])}"


def ordered(spec: Spec, source: Source) -> str:
    """ORDER BY of a view; ties keep the order of the table."""
    if spec.sort.removeprefix("-") != QUEUE:
        name, down = spec.sort.removeprefix("-"), spec.sort.startswith("-")
        return f"ORDER BY {quoted(name)} {'DESC' if down else 'ASC'} NULLS LAST, e.rowid"
    if spec.sample:
        return "ORDER BY s.place"
    return f"ORDER BY {queue_order(source)}e.rowid"


def queue_order(source: Source) -> str:
    """The most valuable decision first: flagged examples, the most certain first, then the others, the most uncertain first."""
    chance, verdict = (source.roles.get(role) for role in ("chance", "verdict"))
    if chance is None:
        return ""
    p, flag = quoted(chance), "FALSE" if verdict is None else f"coalesce({quoted(verdict)} = 'mislabeled', FALSE)"
    return f"NOT {flag}, CASE WHEN {flag} THEN -{p} ELSE abs({p} - 0.5) END NULLS LAST, "


def searched_columns(source: Source) -> list[str]:
    """The columns that a search looks into."""
    roles = ("id", "path", "text", "fields", "label", "suggested")
    return list(dict.fromkeys(source.roles[role] for role in roles if role in source.roles))


def quoted(name: str) -> str:
    """A column as an SQL identifier."""
    return 'e."' + name.replace('"', '""') + '"'


def _text(name: str) -> str:
    return f"CAST({quoted(name)} AS VARCHAR)"


def _decided(word: str) -> str:
    if word == "no":
        return OPEN
    if word == "yes":
        return f"NOT {OPEN}"
    if word == "disputed":
        return "coalesce(d.disputed, FALSE)"
    return f"d.decision = '{word}'"  # one of DECIDED


def _known(name: str, columns: Mapping[str, Column]) -> str:
    if name not in columns:
        raise QueryError(f"there is no column {name[:80]!r}")
    return name


def _range(value: str, name: str, columns: Mapping[str, Column]) -> tuple[float | None, float | None]:
    low, dots, high = value.partition("..")
    if columns[name].kind != "number":
        raise QueryError(f"{name} is not a number and has no range")
    try:
        if dots:
            return (float(low) if low else None), (float(high) if high else None)
    except ValueError:
        pass
    raise QueryError(f"a range is written LOW..HIGH, got {value[:80]!r}")
