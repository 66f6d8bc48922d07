"""CSV, TSV, JSON Lines and Parquet files as Arrow tables; a folder of Parquet shards is one table, in the order of their names.

Where the shards' names begin with a split (train-00000-of-00002.parquet, test-...), a column `split` says which.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mohs._core.errors import DataError
from mohs._core.vocabulary import SPLIT
from mohs.data.split import split_called

JSON_LINES = (".jsonl", ".ndjson")
CSV = (".csv", ".tsv")
FILES = (*CSV, *JSON_LINES, ".parquet")  # endings of files that are read as tables


def read_columns(path: Path, *, as_text: Callable[[Sequence[str]], Collection[str]] = lambda names: ()) -> pa.Table:
    """All columns of a file; as_text: which of the columns of a CSV file stay strings, given the names of all."""
    if path.is_dir():
        return _shards(path)
    kind = path.suffix.lower()
    if kind in JSON_LINES:
        return _json_lines(path)
    try:
        found = pyarrow.parquet.read_table(path) if kind == ".parquet" else _csv(path, as_text)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        named = "Parquet" if kind == ".parquet" else "CSV (UTF-8 is expected)"
        raise DataError(f"{path}: cannot be read as {named}: {error}") from error
    names = found.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: two columns are called {twice!r}: rename one")
    plain = [_without_dictionary(found.column(i)) for i in range(len(names))]
    return pa.table(dict(zip(names, plain, strict=True)))


def separator_of(path: Path) -> str:
    """The character between the fields of a CSV or TSV file, by its header."""
    return _header(path)[1]


def _header(path: Path) -> tuple[list[str], str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
    if not first.strip():
        raise DataError(f"{path}: the file is empty; a header with the names of the columns is expected")
    if path.suffix.lower() == ".tsv":
        separator = "\t"
    else:
        separator = next((one for one in ("\t", ";", "|") if one in first and "," not in first), ",")
    return next(csv.reader([first.rstrip("\r\n")], delimiter=separator)), separator


def _csv(path: Path, as_text: Callable[[Sequence[str]], Collection[str]]) -> pa.Table:
    names, separator = _header(path)
    options = pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in as_text(names)})
    parsing = pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    return pyarrow.csv.read_csv(path, parse_options=parsing, convert_options=options)


def _json_lines(path: Path) -> pa.Table:
    """One JSON object per line; a key that a line lacks is missing there. Blank lines are skipped."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    rows.append(_object(line, path, number))
                    lines.append(number)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as JSON Lines (UTF-8 is expected): {error}") from error
    if not rows:
        raise DataError(f'{path}: the file is empty; one JSON object per line is expected: {{"text": "...", "label": "a"}}')
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: _json_column(name, [row.get(name) for row in rows], path, lines) for name in names})


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {number}: not valid JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise DataError(f"{path}, line {number}: nested too deeply") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}, line {number}: a JSON object is expected, got {type(found).__name__}")
    return found


def _json_column(name: str, values: list[Any], path: Path, lines: Sequence[int]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        kinds = [None if one is None else float if type(one) in (int, float) else type(one) for one in values]
        first = next(kind for kind in kinds if kind is not None)
        other = next((line for line, kind in zip(lines, kinds, strict=True) if kind not in (None, first)), None)
        where = f"{path}, line {other}" if other is not None else str(path)
        raise DataError(f"{where}: {name!r} has values of several types: use one type ({error})") from error


def _shards(folder: Path) -> pa.Table:
    parts: list[pa.Table] = []
    for file in sorted(folder.glob("*.parquet")):
        part = read_columns(file)
        called = split_called(re.split(r"[^A-Za-z0-9]", file.stem)[0])
        if called is not None and SPLIT not in part.column_names:
            part = part.append_column(SPLIT, pa.array([called] * part.num_rows, pa.string()))
        if parts and part.schema != parts[0].schema:
            raise DataError(
                f"{file}: its columns ({', '.join(part.column_names)}) or their types differ from those of the first shard"
            )
        parts.append(part)
    if not parts:
        raise DataError(f"{folder}: no .parquet files")
    return pa.concat_tables(parts)


def _without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
