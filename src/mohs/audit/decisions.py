"""Decisions made in the report, turned into corrected labels; and back.

    labels, summary = apply_decisions(table, read_decisions("decisions.csv"), data_hash)
    write_labels(labels, "labels.csv")                            undo_labels(table, "labels.csv")

decisions.csv has the columns id, data_hash, label, decision (accept, keep, change, exclude) and new_label; an apostrophe that
keeps a spreadsheet from running a name is taken off. An example is found by its id, and only if hash and label are those of
the table: decisions on other data are refused, as are an unknown id or class and an id decided twice. The new labels are one
row an example: id, path where there is one, label (empty where it is excluded), previous and decision.

A file that lies at the place of writing and is not itself made of this run is kept beside it as NAME.before, and undoing
brings it back; where there was none, undoing writes the labels as they were given. labels.csv is for programs: names stand in
it as they are.
"""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs._core.plain_text import from_cell
from mohs.hardness.table import check_table_path, classes_of, write_table

COLUMNS = ("id", "data_hash", "label", "decision", "new_label")
DECISIONS = ("accept", "keep", "change", "exclude")
SHOWN = 8  # classes that an error lists
FIRST_ROW = 2  # as a spreadsheet counts: the header is row 1


@dataclass(frozen=True)
class Applied:
    """How many examples there are, how many were decided in each way, and how many labels are now others."""

    examples: int
    decided: dict[str, int]
    changed: int


def read_decisions(path: str | Path) -> list[dict[str, str]]:
    """The rows of a decisions.csv, with the apostrophes against spreadsheets taken off."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            missing = [name for name in COLUMNS if name not in header]
            if missing:
                raise DataError(
                    f"{path} has no column {missing[0]!r}; decisions have {', '.join(COLUMNS)}: download them from the report"
                )
            rows = list(reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read as a CSV file in UTF-8 ({error}): download the decisions from the report again"
        ) from error
    for number, row in enumerate(rows, FIRST_ROW):
        if row and len(row) != len(header):
            raise DataError(
                f"{path}, row {number}: {len(row)} cells where the header has {len(header)}; download the decisions again"
            )
    return [{name: from_cell(cell) for name, cell in zip(header, row, strict=True)} for row in rows if row]


def apply_decisions(
    table: pa.Table, decisions: Sequence[Mapping[str, str]], data_hash: str, *, classes: Sequence[Any] | None = None
) -> tuple[pa.Table, Applied]:
    """The labels with these decisions, one row an example of the table; `classes` where the table does not know them."""
    ids = [str(id_) for id_ in table.column("id").to_pylist()]
    place = {id_: row for row, id_ in enumerate(ids)}
    if len(place) < len(ids):
        double = Counter(ids).most_common(1)[0][0]
        raise DataError(f"the id {double!r} stands twice in the table: decisions cannot tell the two apart")
    previous = table.column("label").to_pylist()
    suggested = table.column("suggested_label").to_pylist() if "suggested_label" in table.column_names else previous
    names = {str(name): name for name in classes or classes_of(table) or _found(previous, suggested)}
    labels, made = list(previous), [""] * len(ids)
    for number, row in enumerate(decisions, FIRST_ROW):
        at = _checked(row, f"decisions, row {number} (id {row['id']!r})", place, data_hash, previous)
        if made[at]:
            raise DataError(f"decisions, row {number}: the id {row['id']!r} is decided twice; keep one of the two rows")
        made[at] = row["decision"]
        labels[at] = _new_label(row, f"decisions, row {number} (id {row['id']!r})", names, previous[at], suggested[at])
    counts = Counter(filter(None, made))
    changed = sum(new != old for new, old, act in zip(labels, previous, made, strict=True) if act in ("accept", "change"))
    return _labels(table, labels, made), Applied(len(ids), {name: counts[name] for name in DECISIONS}, changed)


def write_labels(labels: pa.Table, path: str | Path) -> None:
    """Write the labels as CSV or Parquet, whole or not at all; another file that lay there is kept as NAME.before."""
    path = Path(path)
    check_table_path(path)
    before = _before(path)
    if path.exists() and not _made_of(labels, path):
        if before.exists():
            raise DataError(f"{path} would take the place of {before}, which holds an earlier file: move one of the two away")
        with written_whole(before, sync=False) as part:
            shutil.copy2(path, part)
    write_table(labels, path)


def undo_labels(table: pa.Table, path: str | Path) -> str:
    """Put back what lay there before, or the labels as the table has them; says which of the two."""
    path = Path(path)
    check_table_path(path)
    if not path.exists() and not _before(path).exists():
        raise DataError(f"{path} is not there: nothing was applied to it, so nothing can be undone")
    given = _labels(table, table.column("label").to_pylist(), [""] * len(table))
    if path.exists() and not _made_of(given, path):
        raise DataError(f"{path} was not written from this run, so it is left as it is; name the file that mohs apply wrote")
    if _before(path).exists():
        _before(path).replace(path)
        return f"{path} is again the file that lay there before"
    write_table(given, path)
    return f"{path} holds the labels as they were given"


def read_labels(table: pa.Table, path: str | Path) -> pa.Table:
    """The labels that were written of this table before."""
    path = Path(path)
    check_table_path(path)
    if not path.exists():
        raise DataError(f"{path} is not there: give the decisions.csv too, so that they are applied first")
    given = _labels(table, table.column("label").to_pylist(), [""] * len(table))
    if not _made_of(given, path):
        raise DataError(f"{path} was not written from this run; name the file that mohs apply wrote")
    return _read(path, given.schema)


def _labels(table: pa.Table, labels: Sequence[Any], made: Sequence[str]) -> pa.Table:
    previous = table.column("label").combine_chunks()
    columns = {"id": table.column("id"), "label": pa.array(_plain_empty(labels, made), type=previous.type), "previous": previous}
    columns["decision"] = pa.array(made, type=pa.string())
    if "path" in table.column_names:
        columns = {"id": columns.pop("id"), "path": table.column("path"), **columns}
    return pa.table(columns)


def _plain_empty(labels: Sequence[Any], made: Sequence[str]) -> list[Any]:
    return [None if act == "exclude" else label for label, act in zip(labels, made, strict=True)]


def _checked(row: Mapping[str, str], where: str, place: Mapping[str, int], data_hash: str, labels: Sequence[Any]) -> int:
    """The row of the table that a decision is on; raise unless it was made for this data."""
    if row["data_hash"] != data_hash:
        raise DataError(f"{where} was made for other data: its data_hash is {row['data_hash']!r}, that of this run {data_hash!r}")
    if row["id"] not in place:
        raise DataError(f"{where}: this run has no such id; use the decisions of its own report")
    at = place[row["id"]]
    if row["label"] != str(labels[at]):
        raise DataError(
            f"{where} was made when the label was {row['label']!r}; here it is {labels[at]!r}: decide again in this run's report"
        )
    if row["decision"] not in DECISIONS:
        raise DataError(f"{where}: unknown decision {row['decision']!r}; known: {', '.join(DECISIONS)}")
    return at


def _new_label(row: Mapping[str, str], where: str, names: Mapping[str, Any], old: Any, suggested: Any) -> Any:
    if row["decision"] in ("keep", "exclude"):
        return old
    if row["decision"] == "accept" and not row["new_label"] and suggested is not None:
        return suggested
    if row["new_label"] not in names:
        known = ", ".join([repr(name) for name in list(names)[:SHOWN]] + ["..."] * (len(names) > SHOWN))
        raise DataError(f"{where}: the new label {row['new_label']!r} is none of the {len(names)} classes ({known})")
    return names[row["new_label"]]


def _found(*columns: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(value for column in columns for value in column if value is not None))


def _made_of(labels: pa.Table, path: Path) -> bool:
    """Whether the file holds labels of the same examples with the same previous labels: nothing in it would be lost."""
    try:
        found = _read(path, labels.schema)
    except (pa.ArrowException, OSError):
        return False
    same: bool = found.column_names == labels.column_names and all(
        found.column(name).to_pylist() == labels.column(name).to_pylist() for name in ("id", "previous")
    )
    return same


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    kinds = pyarrow.csv.ConvertOptions(column_types={name: schema.field(name).type for name in schema.names})
    return pyarrow.csv.read_csv(path, convert_options=kinds, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")
