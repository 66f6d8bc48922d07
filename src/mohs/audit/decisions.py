"""Apply the decisions made in the report or in `mohs review` to the labels, and undo it.

    labels, summary = apply_decisions(table, read_decisions("decisions.csv"), data_hash)          or a decisions.log
    write_labels(labels, "labels.csv")                            undo_labels(table, "labels.csv")

decisions.csv has the columns id, data_hash, label, decision (accept, keep, change, exclude) and new_label; the apostrophe that
protects spreadsheets from formulas is removed. Decisions are matched by id. Those whose data_hash or label differs from the table
are rejected, as are unknown ids and classes and an id with two decisions. The result has one row per example: id, path (if there
is one), label (empty if excluded), previous and decision. Paths are written relative to the file, so that it can be trained on.

A file that is already at the output path and was not written from this run is kept as NAME.before; undo restores it. Without such
a file, undo writes the original labels. labels.csv is for programs: names are written unchanged, without apostrophes.
"""

from __future__ import annotations

import csv
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs._core.plain_text import from_cell
from mohs.audit.decision_log import FINAL as DECISIONS
from mohs.audit.decision_log import LOG, Decisions, is_log, read_log
from mohs.data.corrections import on_top, read_corrections, read_label_file, since
from mohs.hardness.table import check_table_path, classes_of, write_table

COLUMNS = ("id", "data_hash", "label", "decision", "new_label")
MOST_ROWS = 2_000_000  # in a decision file
SHOWN = 8  # classes that an error message lists
FIRST_ROW = 2  # as in a spreadsheet, where the header is row 1


@dataclass(frozen=True)
class Applied:
    """Number of examples, of decisions of each kind, and of labels that changed."""

    examples: int
    decided: dict[str, int]
    changed: int


def read_decisions(path: str | Path) -> list[dict[str, str]]:
    """Read a decisions.csv that was downloaded from the report, or the decisions.log that `mohs review` keeps.

    Args:
        path: The file, whose contents say which of the two it is, or the folder of the audit that holds the log.

    Returns:
        One dict per decision, with id, data_hash, label, decision and new_label.
    """
    path = Path(path)
    if path.is_dir():
        path = path / LOG
        if not path.exists():
            raise DataError(f"{path} does not exist: decide in mohs review, or give the decisions.csv that the report downloads")
    if is_log(path):
        return _logged(*read_log(path))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            separator = ";" if first.count(";") > first.count(",") else ","  # as spreadsheets of some countries save it
            reader = csv.reader(itertools.chain([first], file), delimiter=separator, strict=True)
            header = next(reader, [])
            missing = [name for name in COLUMNS if name not in header]
            if missing:
                raise DataError(
                    f"{path} has no column {missing[0]!r}; decisions have {', '.join(COLUMNS)}: download them from the report"
                )
            rows = list(itertools.islice(reader, MOST_ROWS + 1))
            if len(rows) > MOST_ROWS:
                raise DataError(f"{path} has over {MOST_ROWS:,} rows: decisions are made by hand, one row each; split the file")
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
    table: pa.Table,
    decisions: Sequence[Mapping[str, str]],
    data_hash: str,
    *,
    classes: Sequence[Any] | None = None,
    name: str = "decisions",
) -> tuple[pa.Table, Applied]:
    """Apply decisions to the labels of an audited table.

    Args:
        table: The hardness table of the audit.
        decisions: As `read_decisions` returns them.
        data_hash: Fingerprint of the audited data: `AuditResult.data_hash`.
        classes: Class names, if the table does not have them.
        name: What error messages call the decisions, such as the path of their file.

    Returns:
        The labels, one row per example, and a summary.
    """
    ids = [str(id_) for id_ in table.column("id").to_pylist()]
    place = {id_: row for row, id_ in enumerate(ids)}
    if len(place) < len(ids):
        double = Counter(ids).most_common(1)[0][0]
        raise DataError(f"the table has the id {double!r} twice: ids must be unique to apply decisions")
    previous = table.column("label").to_pylist()
    suggested = table.column("suggested_label").to_pylist() if "suggested_label" in table.column_names else previous
    names = {str(name): name for name in classes or classes_of(table) or _found(previous, suggested)}
    labels, made = list(previous), [""] * len(ids)
    for number, row in enumerate(decisions, FIRST_ROW):
        where = f"{name}, row {number} (id {row['id']!r})"
        at = _checked(row, where, place, data_hash, previous)
        if made[at]:
            raise DataError(f"{name}, row {number}: the id {row['id']!r} has two decisions; keep one of the two rows")
        made[at] = row["decision"]
        labels[at] = _new_label(row, where, names, previous[at], suggested[at])
    counts = Counter(filter(None, made))
    changed = sum(new != old for new, old, act in zip(labels, previous, made, strict=True) if act in ("accept", "change"))
    return _labels(table, labels, made), Applied(len(ids), {name: counts[name] for name in DECISIONS}, changed)


def write_labels(labels: pa.Table, path: str | Path, *, earlier: pa.Table | None = None) -> Path | None:
    """Write labels as CSV or Parquet, completely or not at all.

    Args:
        labels: As `apply_decisions` returns them.
        path: File to write; an unrelated file of that name is kept as NAME.before.
        earlier: Corrections on which the audit was based (`read_corrections`): the file then holds both.

    Returns:
        Path to which an unrelated file of that name was moved, or None.
    """
    path = Path(path)
    check_table_path(path)
    labels = labels if earlier is None else on_top(labels, earlier)
    before, unrelated = _before(path), path.exists() and not _made_of(labels, path)
    if unrelated:
        if before.exists():
            raise DataError(f"{path} exists and would be kept as {before}, which exists too: move one of the two away")
        with written_whole(before, sync=False) as part:
            shutil.copy2(path, part)
    write_table(_with_paths_from(labels, path), path)
    return before if unrelated else None


def undo_labels(table: pa.Table, path: str | Path, *, earlier: pa.Table | None = None) -> str:
    """Restore the file that was there, or the labels of the audit if there was none; returns a sentence that says which."""
    path = Path(path)
    check_table_path(path)
    if not path.exists() and not _before(path).exists():
        raise DataError(f"{path} does not exist: there is nothing to undo")
    given = _given(table, earlier)
    if path.exists() and not _made_of(given, path):
        raise DataError(f"{path} was not written from this run and was not changed; give the file that mohs apply wrote")
    if _before(path).exists():
        _before(path).replace(path)
        return f"{path} is restored to the file that was there before"
    write_table(_with_paths_from(given, path), path)
    return f"{path} holds the original labels" if earlier is None else f"{path} holds the labels that were audited"


def read_labels(table: pa.Table, path: str | Path, *, earlier: pa.Table | None = None) -> pa.Table:
    """Read labels that were written from this table."""
    path = Path(path)
    check_table_path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist: name the label file with --to, or give decisions.csv too, to write it first")
    given = _given(table, earlier)
    if not _made_of(given, path):
        raise DataError(f"{path} was not written from this run; give the file that mohs apply wrote")
    return read_label_file(path, given.schema) if earlier is None else since(read_corrections(path), table)


def _given(table: pa.Table, earlier: pa.Table | None) -> pa.Table:
    """The labels before any decision."""
    own = _labels(table, table.column("label").to_pylist(), [""] * len(table))
    return own if earlier is None else on_top(own, earlier)


def _logged(data_hash: str, state: Decisions) -> list[dict[str, str]]:
    return [
        {"id": id_, "data_hash": data_hash, "label": made.label, "decision": made.decision, "new_label": made.new_label}
        for id_, made in state.decided()
    ]


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
    """Row of the table that a decision refers to; raises if the decision was made for other data."""
    if row["data_hash"] != data_hash:
        raise DataError(
            f"{where} was made for other data: its data_hash is {row['data_hash']!r}, this run has {data_hash!r}; use the "
            "decisions of its own report"
        )
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
        alike = get_close_matches(row["new_label"], names, 1)
        closest = f": did you mean {alike[0]!r}?" if alike else ""
        known = ", ".join([repr(name) for name in list(names)[:SHOWN]] + ["..."] * (len(names) > SHOWN))
        raise DataError(f"{where}: the new label {row['new_label']!r} is not one of the {len(names)} classes ({known}){closest}")
    return names[row["new_label"]]


def _found(*columns: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(value for column in columns for value in column if value is not None))


def _made_of(labels: pa.Table, path: Path) -> bool:
    """Whether the file holds labels of the same examples with the same previous labels, so that it can be overwritten."""
    try:
        found = read_label_file(path, labels.schema)
    except (pa.ArrowException, OSError):
        return False
    same: bool = found.column_names == labels.column_names and all(
        found.column(name).to_pylist() == labels.column(name).to_pylist() for name in ("id", "previous")
    )
    return same


def _with_paths_from(labels: pa.Table, file: Path) -> pa.Table:
    """The labels, with paths of existing files relative to the folder of the file, as readers of such files expect."""
    if "path" not in labels.column_names:
        return labels
    folder = file.resolve().parent
    paths = [Path(os.path.relpath(one, folder)).as_posix() if one and Path(one).exists() else one for one in
             labels.column("path").to_pylist()]  # fmt: skip
    return labels.set_column(labels.column_names.index("path"), "path", pa.array(paths, pa.string()))


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")
