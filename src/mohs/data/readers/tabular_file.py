"""CSV, TSV, JSON Lines and Parquet files as Arrow tables; a folder of Parquet shards is one table, in the order of their names.

Where the shards' names begin with a split (train-00000-of-00002.parquet, test-...), a column `split` says which.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mohs._core.errors import DataError
from mohs._core.vocabulary import SPLIT
from mohs.data.cells import PLAIN, is_text
from mohs.data.split import split_called

JSON_LINES = (".jsonl", ".ndjson")
CSV = (".csv", ".tsv")
SEPARATORS = (",", "\t", ";", "|")  # candidates; the first that splits the header into the most fields
SAVE_AS = {  # advice for other files of rows, by extension
    **dict.fromkeys((".txt", ".tab", ".dat", ".data"), "if it holds rows with a header, rename it to .tsv (tabs) or .csv"),
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods", ".numbers"), "save the spreadsheet as CSV (in Excel: CSV UTF-8)"),
    **dict.fromkeys((".json",), "write JSON Lines (.jsonl), one object per line"),
    **dict.fromkeys((".gz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".tgz"), "unpack it first"),
    **dict.fromkeys((".feather", ".arrow", ".orc", ".h5", ".hdf5", ".pkl", ".pickle"), "write it as Parquet, CSV or .npz"),
}
NAMED_SEPARATOR = re.compile(r"sep=([,\t;|])", re.IGNORECASE)  # a first line that tells Excel the separator
ROW_WIDTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")  # an error of Arrow, with the row counted from the top
WIDE = 100  # first bytes of a file in which UTF-16 is detected
FIRST_LINE = 2  # line of the first row below a header
FILES = (*CSV, *JSON_LINES, ".parquet")  # extensions of files that are read as tables


class RowSource:
    """Where rows come from, and how messages name one: by its line in a CSV or JSON Lines file, else by its number from 0."""

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.name = name
        self._path = path if path is not None and path.is_file() and path.suffix.lower() in (*CSV, *JSON_LINES) else None

    def __str__(self) -> str:
        return self.name

    def row(self, number: int) -> str:
        """The row with this number from 0, within its file: "line 5" or "row 3"."""
        if self._path is None:
            return f"row {number}"
        return f"line {self._lines[number] if number < len(self._lines) else number + FIRST_LINE}"

    def __call__(self, number: int) -> str:
        """The row with this number from 0, with its file: "rows.csv, line 5"."""
        return f"{self.name}, {self.row(number)}"

    @cached_property
    def _lines(self) -> list[int]:
        assert self._path is not None
        return _row_lines(self._path)


def _row_lines(path: Path) -> list[int]:
    """The line on which each row begins, from 1; a cell may have several lines, and blank lines are no rows."""
    found, last = [], 0
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        if path.suffix.lower() in JSON_LINES:
            return [number for number, line in enumerate(file, 1) if line.strip()]
        _, separator, above = _header(path)
        if separator == "\t" and _stray_quote(path) is not None:
            reader = csv.reader(islice(file, above, None), delimiter=separator, quoting=csv.QUOTE_NONE)
        else:
            reader = csv.reader(islice(file, above, None), delimiter=separator)
        with suppress(csv.Error):
            for row in reader:
                found += [above + last + 1] if row else []
                last = reader.line_num
    return found[1:]


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
        if kind in CSV:
            _check_utf8(path)
            _check_width(path, str(error))
        raise DataError(f"{path}: cannot be read as {'Parquet' if kind == '.parquet' else 'CSV'}: {error}") from error
    if found.column_names.count("") > 1:
        found = _without_blank(found)
    names = found.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        what = f"are called {twice!r}: rename one" if twice else "have no name: name them"
        raise DataError(f"{path}: two columns {what}{header_advice(names)}")
    plain = [_without_dictionary(found.column(i)) for i in range(len(names))]
    return pa.table(dict(zip(names, plain, strict=True)))


def header_advice(names: Sequence[str]) -> str:
    """What to do where the first line of a file is probably not its header."""
    if names.count("") > 1 or any("." in name and PLAIN.fullmatch(name) for name in names):
        return "; the first line must hold the names of the columns: remove what is above it, or add it above the first row"
    if len(names) == 1 and len(names[0].split()) > 1:
        return "; the only column: cells are separated by commas, tabs, semicolons or vertical bars"
    return ""


def separator_of(path: Path) -> str:
    """The character between the fields of a CSV or TSV file, by its header."""
    return _header(path)[1]


def _header(path: Path) -> tuple[list[str], str, int]:
    """The names of the columns, the separator, and the number of lines above the header (1 for Excel's "sep=;")."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        named = NAMED_SEPARATOR.fullmatch(first.rstrip("\r\n"))
        first = file.readline() if named else first
        if not first.strip():
            raise DataError(f"{path}: the file is empty; a header with the names of the columns is expected")
        if named:
            separator = named.group(1)
        elif path.suffix.lower() == ".tsv" and "\t" in first:
            separator = "\t"
        else:
            separator = max(SEPARATORS, key=lambda one: len(next(csv.reader([first], delimiter=one))))
        return next(csv.reader(chain([first], file), delimiter=separator)), separator, int(named is not None)


def _csv(path: Path, as_text: Callable[[Sequence[str]], Collection[str]]) -> pa.Table:
    names, separator, above = _header(path)
    options = pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in as_text(names)})

    def read(*, threads: bool, quotes: bool = True) -> pa.Table:
        parsing = pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True, quote_char='"' if quotes else False)
        reading = pyarrow.csv.ReadOptions(use_threads=threads, skip_rows=above)
        return pyarrow.csv.read_csv(path, read_options=reading, parse_options=parsing, convert_options=options)

    try:
        found = read(threads=True)
        stray = _stray_quote(path) if _spans_lines(found) else None
    except pa.ArrowInvalid:
        stray = _stray_quote(path)
        if stray is None:
            found = read(threads=False)  # whose error names the row
    if stray is not None and separator != "\t":
        raise DataError(
            f"{path}, line {stray}: a quote opens a cell and is not closed there, so that the lines below belong to this cell: "
            'double quotes within cells, as in "a 5"" disk", or remove this one'
        )
    if stray is not None:  # cells between tabs need no quotes
        found = read(threads=False, quotes=False)
    if any(pa.types.is_binary(kind) for kind in found.schema.types):  # Arrow's type for strings that are not UTF-8
        _check_utf8(path)
    return found


def _spans_lines(table: pa.Table) -> bool:
    """Whether a cell has several lines."""
    import pyarrow.compute as pc

    texts = [column for column in table.columns if is_text(column.type)]
    return any(pc.any(pc.match_substring(column, "\n")).as_py() for column in texts)


def _stray_quote(path: Path) -> int | None:
    """The line of the first row that a quote joins with lines below, although it is part of a text; None without one."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        _, separator, above = _header(path)
        reader = csv.reader(islice(file, above, None), delimiter=separator, strict=True)
        last = 0
        while True:
            try:
                next(reader)
            except StopIteration:
                return None
            except csv.Error:
                if reader.line_num > last + 1:
                    return above + last + 1
            last = reader.line_num


def without_empty_end(table: pa.Table) -> pa.Table:
    """The table without rows of empty cells at its end, as spreadsheets add them."""
    if not table.num_rows or any(cell not in (None, "") for cell in table.slice(table.num_rows - 1).to_pylist()[0].values()):
        return table
    filled = np.zeros(table.num_rows, bool)
    for column in table.columns:
        filled |= np.asarray(column.fill_null("")) != "" if is_text(column.type) else ~np.asarray(column.is_null())
    return table.slice(0, int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 0)


def _check_utf8(path: Path) -> None:
    """Validate that every line is UTF-8."""
    with path.open("rb") as file:
        if b"\0" in file.read(WIDE):  # in English UTF-16, every other byte is zero
            raise DataError(f"{path}: UTF-16, not UTF-8: save the file as UTF-8 (in Excel: CSV UTF-8)")
        file.seek(0)
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                found = f"{path}, line {number}: byte 0x{line[error.start]:02x} is not UTF-8"
                raise DataError(f"{found}: save the file as UTF-8 (in Excel: CSV UTF-8)") from error


def _check_width(path: Path, error: str) -> None:
    """Raise with the line of the row if Arrow's error is that a row has another number of cells than the header."""
    found = ROW_WIDTH.search(error)
    if found:
        number, expected, got = (int(one) for one in found.groups())
        where = RowSource(str(path), path)(number - FIRST_LINE - _header(path)[2])
        remedy = "put cells that hold the separator in quotes" if got > expected else "add empty cells, or close an open quote"
        remedy = "remove what is above the line with the names of the columns" if expected == 1 else remedy
        raise DataError(f"{where}: {got} cells where the header has {expected}: {remedy}")


def _without_blank(table: pa.Table) -> pa.Table:
    """The table without nameless columns that are empty, as spreadsheets add on the right."""
    import pyarrow.compute as pc

    def empty(column: pa.ChunkedArray) -> bool:
        return bool(column.null_count == len(column) or (is_text(column.type) and pc.all(pc.equal(column, "")).as_py()))

    return table.select([i for i, name in enumerate(table.column_names) if name or not empty(table.column(i))])


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
