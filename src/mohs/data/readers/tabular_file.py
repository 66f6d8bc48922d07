"""CSV, TSV and Parquet files as Arrow tables; a folder of Parquet shards is one table, in the order of their names.

Where the shards' names begin with a split (train-00000-of-00002.parquet, test-...), a column `split` says which.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mohs._core.errors import DataError
from mohs.data.split import split_called

SPLIT = "split"


def read_columns(path: Path, *, as_text: Sequence[str | None] = ()) -> pa.Table:
    """All columns of a file; those in as_text are kept as the text they are in a CSV."""
    if path.is_dir():
        return _shards(path)
    try:
        found = pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else _csv(path, as_text)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        kind = "Parquet" if path.suffix == ".parquet" else "CSV (UTF-8 is wanted)"
        raise DataError(f"{path}: cannot be read as {kind}: {error}") from error
    names = found.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: two columns are called {twice!r}: rename one")
    plain = [_plain(found.column(i)) for i in range(len(names))]
    return pa.table(dict(zip(names, plain, strict=True)))


def _shards(folder: Path) -> pa.Table:
    parts: list[pa.Table] = []
    for file in sorted(folder.glob("*.parquet")):
        part = read_columns(file)
        called = split_called(re.split(r"[^A-Za-z0-9]", file.stem)[0])
        if called is not None and SPLIT not in part.column_names:
            part = part.append_column(SPLIT, pa.array([called] * part.num_rows, pa.string()))
        if parts and part.schema != parts[0].schema:
            raise DataError(
                f"{file}: its columns ({', '.join(part.column_names)}) or their types are not those of the first shard"
            )
        parts.append(part)
    if not parts:
        raise DataError(f"{folder}: no .parquet files")
    return pa.concat_tables(parts)


def _csv(path: Path, as_text: Sequence[str | None]) -> pa.Table:
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
    if not first.strip():
        raise DataError(f"{path}: an empty file: a header with the names of the columns is wanted")
    mark = (
        "\t"
        if path.suffix == ".tsv" or ("\t" in first and "," not in first)
        else ";"
        if ";" in first and "," not in first
        else ","
    )
    names = next(csv.reader([first.rstrip("\r\n")], delimiter=mark))
    options = pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in names if name in as_text})
    parsing = pyarrow.csv.ParseOptions(delimiter=mark, newlines_in_values=True)
    return pyarrow.csv.read_csv(path, parse_options=parsing, convert_options=options)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionaries, which only save space."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
