"""Parquet files of images or texts as a stream: one row per example, with its label.

    images    a column of encoded images (bytes, or records of bytes and path), or paths of images in the files' folder
    text      the column that `text` names, or one called one of TEXTS
    key       a column called one of IDS; default: the row number in all files together

Rows without a label or content are skipped. A batch of rows is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mohs._core.errors import DataError
from mohs._core.remote import is_remote, reread
from mohs._core.vocabulary import IDS, IMAGES, PATHS, TEXTS, find_name
from mohs.data import stream
from mohs.data.cells import is_text
from mohs.data.examples import LeftOut
from mohs.data.image_stores import local_name
from mohs.data.readers.tabular import holds_images, label_column
from mohs.data.stream import Record, Stream, fingerprint_of
from mohs.hardness.shards import open_parquet

BATCH_ROWS = 64


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file, and its first row in all files together."""

    file: str
    group: int
    first: int
    rows: int


@dataclass(frozen=True)
class Columns:
    """The columns to read, and how a cell becomes content: None where there is none."""

    label: str
    content: str
    id: str | None
    kind: str
    open: Callable[[Any], str | bytes | Path | None]

    @property
    def names(self) -> list[str]:
        return [one for one in (self.label, self.content, self.id) if one is not None]


def parquet_stream(files: Sequence[str], name: str, *, label: str | None = None, text: str | None = None) -> Stream:
    """The images or texts of Parquet files; label, text: their columns."""
    schema = open_parquet(files[0]).schema_arrow
    columns = _columns(schema, files[0], label, text)
    blocks: list[list[RowGroup]] = []
    first = room = 0
    for file in files:
        opened = open_parquet(file)
        missing = next((one for one in columns.names if one not in opened.schema_arrow.names), None)
        if missing is not None:
            raise DataError(f"{file}: column {missing!r} is missing, which the first file has")
        for group in range(opened.num_row_groups):
            rows = opened.metadata.row_group(group).num_rows
            if rows > room:
                blocks.append([])
                room = stream.BLOCK_ROWS
            blocks[-1].append(RowGroup(file, group, first, rows))
            room, first = room - rows, first + rows
    if not first:
        raise DataError(f"{name}: holds no rows")

    def read(block: Sequence[RowGroup]) -> Iterator[Record | LeftOut]:
        for part in block:
            try:
                yield from reread(lambda part=part: _records(part, columns), part.file, pa.ArrowException)  # type: ignore[misc]
            except (OSError, pa.ArrowException) as error:
                raise DataError(f"{part.file}: row group {part.group} cannot be read: {error}") from error

    return Stream(name, columns.kind, [tuple(block) for block in blocks], read, fingerprint_of(files))


def _records(part: RowGroup, columns: Columns) -> Iterator[Record | LeftOut]:
    row = part.first
    for batch in open_parquet(part.file).iter_batches(BATCH_ROWS, row_groups=[part.group], columns=columns.names):
        for cells in batch.to_pylist():
            content, label = columns.open(cells[columns.content]), cells[columns.label]
            where = f"{part.file}, row {row}"
            if content is None or label is None:
                yield LeftOut(where, "no label" if label is None else f"no {columns.content}")
            else:
                yield Record(row if columns.id is None else cells[columns.id], label, where, content)
            row += 1


def _columns(schema: pa.Schema, file: str, label: str | None, text: str | None) -> Columns:
    called = label_column(schema.names, label, file)
    key = find_name([one for one in schema.names if one != called], IDS)
    inputs = {field.name: field.type for field in schema if field.name not in (called, key)}
    strings = [one for one, kind in inputs.items() if is_text(kind)]
    if text is not None and text not in strings:
        raise DataError(f"{file}: no column {text!r} of strings for the text; its columns: {', '.join(schema.names)}")
    encoded = next((one for one, kind in inputs.items() if holds_images(kind)), None)
    if text is None and encoded is not None:
        return Columns(called, encoded, key, "images", _encoded)
    paths = find_name(strings, (*PATHS, *IMAGES))
    if text is None and paths is not None and not is_remote(file):
        folder = Path(file).parent
        return Columns(called, paths, key, "images", lambda cell: folder / local_name(folder, cell) if cell else None)
    found = text if text is not None else find_name(strings, TEXTS)
    if found is None:
        raise DataError(
            f"{file}: no column of encoded images, paths of images or text ({', '.join(TEXTS[:3])}, ...): name it with text; "
            f"its columns: {', '.join(schema.names)}"
        )
    return Columns(called, found, key, "text", lambda cell: cell if cell and cell.strip() else None)


def _encoded(cell: Any) -> bytes | None:
    """The bytes of an image, from a cell of bytes or a record."""
    return (cell.get("bytes") if isinstance(cell, dict) else cell) or None
