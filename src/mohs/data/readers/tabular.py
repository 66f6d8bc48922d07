"""A CSV, TSV, JSON Lines or Parquet file, or a folder of Parquet shards: one row per example, with its label and inputs.

    label     named by `label`, or the first column called one of LABELS; rows without a label are skipped;
              blanks around a label do not matter
    inputs    a column of image paths (PATHS, IMAGES, or one that names existing images), relative to the file's folder; a column
              of encoded images; or features, text or a table: see `rows.py`
    key       a column called one of KEYS, which names the example; never an input
    split     a column called split with train, val (or valid, validation) and test

Without a column of keys, ids count rows from 0 below the header; messages name the line of a row in the file. Text in a CSV is
UTF-8; "007" stays text, and so does a class called "NA".
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from mohs._core.errors import DataError, NoLabels
from mohs._core.vocabulary import IMAGES, INDEX, LABELS, PATHS, SPLIT, find_name, plain_name
from mohs.data.cells import is_text
from mohs.data.columns import Column
from mohs.data.decode import Size, is_image_name
from mohs.data.empty_classes import without_empty_classes
from mohs.data.examples import Data, LeftOut
from mohs.data.image_stores import EncodedImages, FolderFiles, is_on_a_drive, local_name, printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.labels import SEPARATOR
from mohs.data.readers.image_set import LACKS, Picture, Pictures, picture_data
from mohs.data.readers.rows import KEYS, Rows, is_list, labeled_rows, rows_data, rows_like, text_column, unlabeled_rows
from mohs.data.readers.tabular_file import CSV, RowSource, header_advice, read_columns, separator_of, without_empty_end

SEPARATORS = {";": "semicolons", "|": "vertical bars"}
SHOWN = 5
FIRST_CELLS, LONGEST_PATH = 100, 200  # cells of a column, and characters of a cell, that are searched for paths of images


def table(
    path: str | Path,
    *,
    label: str | None = None,
    text: str | None = None,
    group: str | None = None,
    separator: str | None = None,
    target: str | None = None,
    image_size: int | Size | None = None,
    memory_limit: int = MEMORY_LIMIT,
    name: str | None = None,
) -> Data:
    """The data of a file of rows; `label` (`target` for numbers), `text` and `group` name columns."""
    path, label = Path(path), label if target is None else target
    columns = without_empty_end(read_columns(path, as_text=lambda names: _strings(names, label, group)))
    called = label_column(columns.column_names, label, str(path))
    separator = separator_in(columns, called, separator)
    about: dict[str, Any] = {"name": printable(path.stem) if name is None else name, "source": _source(path)}
    rows = labeled_rows(columns, label=called, group=group, separator=separator, numbers=target is not None, **about)
    note = _other_labels(columns.column_names, called) if label is None else []
    return _labeled(_inputs(path, rows, text, image_size, memory_limit), called, separator, note)


def unlabeled_table(
    path: str | Path,
    *,
    text: str | None = None,
    group: str | None = None,
    image_size: int | Size | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Data:
    """The inputs of all rows of a file, ignoring its columns of labels, splits and groups; every label is 0."""
    path = Path(path)
    columns = read_columns(path, as_text=lambda names: _strings(names, None))
    rows = unlabeled_rows(columns, name=printable(path.stem), source=_source(path), group=group)
    return _inputs(path, rows, text, image_size, memory_limit)


def table_like(path: str | Path, known: Sequence[Column], *, features: bool) -> Data:
    """The rows of a file without labels, with the columns that other rows have (`rows_like`)."""
    path = Path(path)
    columns = read_columns(path, as_text=lambda names: names if not features else _strings(names, None))
    return Data(rows_like(columns, known, features=features, name=printable(path.stem), source=_source(path)))


def _source(path: Path) -> RowSource:
    return RowSource(printable(str(path)), path)


def separator_in(columns: pa.Table, label: str, separator: str | None) -> str | None:
    """The separator of several labels of an example: the given one, or the default if labels are lists."""
    kind = columns.schema.field(label).type
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return SEPARATOR if separator is None and listed else separator


def _inputs(path: Path, rows: Rows, text: str | None, image_size: int | Size | None, memory_limit: int) -> Data:
    """The rows with their inputs: images, or features, text or a table."""
    if text is None:
        folder = path if path.is_dir() else path.parent
        images = _images(rows, folder, image_size, memory_limit)
        if images is not None:
            return images
    if path.suffix.lower() not in CSV or path.is_dir():
        return rows_data(rows, text=text)
    separator = SEPARATORS.get(separator_of(path))
    rows = rows if separator is None else replace(rows, notes=[*rows.notes, f"fields are separated by {separator}"])
    return rows_data(rows, text=text, as_strings=lambda: read_columns(path, as_text=list).select(rows.inputs).take(rows.numbers))


def in_memory_table(
    columns: pa.Table,
    *,
    label: str | None = None,
    text: str | None = None,
    group: str | None = None,
    separator: str | None = None,
    target: str | None = None,
    name: str = "data",
) -> Data:
    """The data of an Arrow table, as of a file."""
    called = label_column(columns.column_names, label if target is None else target, name)
    separator = separator_in(columns, called, separator)
    about: dict[str, Any] = {"separator": separator, "numbers": target is not None}
    made = rows_data(labeled_rows(columns, label=called, group=group, name=name, source=RowSource(name), **about), text=text)
    note = _other_labels(columns.column_names, called) if label is None and target is None else []
    return _labeled(made, called, separator, note)


def _labeled(data: Data, label: str, separator: str | None, notes: Sequence[str]) -> Data:
    """The data with the column of their labels and notes on it, and in training examples what separates several labels."""
    parts = {split: replace(part, label_column=label, notes=[*notes, *part.notes]) for split, part in data.splits.items()}
    return Data(**{**parts, "train": replace(parts["train"], separator=separator)})


def label_column(names: Sequence[str], label: str | None, source: str) -> str:
    """The column of labels: the one that `label` names, or the first called one of LABELS."""
    found = _label_among(names, label)
    if found is None:
        shown = f"its columns: {', '.join(name for name in names if name != INDEX)}"
        if label is not None:
            raise DataError(f"{source}: no column {label!r}; {shown}")
        unknown = f"no label column ({', '.join(LABELS)}): name yours with label (--label)"
        raise NoLabels(f"{source}: {unknown}; {shown}{header_advice(names)}")
    return found


def _other_labels(names: Sequence[str], label: str) -> list[str]:
    """A note if another column has a name of labels too; "y" is often a coordinate."""
    known = {plain_name(one) for one in LABELS} - {"y"}
    others = [repr(one) for one in names if one != label and plain_name(one) in known]
    return [f"the labels are column {label!r}, not {' or '.join(others)}: label (--label) names another"] if others else []


def _label_among(names: Sequence[str], label: str | None) -> str | None:
    return label if label in names else find_name(names, LABELS if label is None else [label])


def _strings(names: Sequence[str], label: str | None, group: str | None = None) -> list[str]:
    """Columns of a CSV file whose cells stay strings."""
    known, called = {plain_name(one) for one in (*PATHS, *KEYS, SPLIT, *([group] if group else []))}, _label_among(names, label)
    return [one for one in names if plain_name(one) in known or one == called]


def _images(rows: Rows, folder: Path, image_size: int | Size | None, memory_limit: int) -> Data | None:
    """The rows as images, where a column holds their paths or their bytes."""
    kinds = {one: rows.columns.schema.field(one).type for one in rows.inputs}
    strings = [one for one, kind in kinds.items() if is_text(kind)]
    other = text_column(rows.columns.select(rows.inputs)) is not None
    by_path = find_name(strings, (*PATHS, *IMAGES))
    if by_path is not None:
        paths = rows.columns.column(by_path).to_pylist()
        if not other or any(path and (folder / local_name(folder, path)).is_file() for path in paths):
            return _image_files(rows, by_path, folder, image_size, memory_limit)
    elif not other and not any(is_list(kind) for kind in kinds.values()):
        by_path = next((one for one in strings if _names_images(rows, one, folder)), None)
        if by_path is not None:
            return _image_files(rows, by_path, folder, image_size, memory_limit)
    encoded = next((one for one, kind in kinds.items() if holds_images(kind)), None)
    return None if encoded is None else _encoded_images(rows, encoded, image_size, memory_limit)


def _names_images(rows: Rows, column: str, folder: Path) -> bool:
    """Whether one of the first cells is the path of an image that exists, whatever the column is called."""
    cells = [cell for cell in rows.columns.column(column).slice(0, FIRST_CELLS).to_pylist() if cell and len(cell) < LONGEST_PATH]
    return any(is_image_name(cell) and (folder / local_name(folder, cell)).is_file() for cell in cells)


def _image_files(rows: Rows, column: str, folder: Path, image_size: int | Size | None, memory_limit: int) -> Data:
    store = FolderFiles(folder)
    paths = [path and local_name(folder, path) for path in rows.columns.column(column).to_pylist()]
    _check_twice([(row, path) for row, path in zip(rows.numbers, paths, strict=True) if path], rows.source)
    entries, left_out = [], list(rows.left_out)
    groups = rows.groups or [None] * len(rows)
    for row, path, number, split, key, group in zip(
        rows.numbers, paths, rows.labels, rows.splits, rows.keys, groups, strict=True
    ):
        if path and (folder / path).is_file():
            entries.append(Picture(path, number, split, key, row, group))
        else:
            where = LeftOut(store.path(path), f"no such file ({rows.source.row(row)})", key, row)
            left_out.append((split, where if path else LeftOut(rows.source(row), "no path", key, row)))
    if not entries:
        raise DataError(
            f"{rows.source}: none of the {len(paths)} files in column {column!r} exists "
            f"(the first: {store.path(paths[0] or '')}); paths are relative to {folder}{_drive_advice(paths[0])}"
        )
    plan = Pictures(store, entries, rows.classes, rows.name, left_out, rows.notes, rows.groups is not None)
    return without_empty_classes(picture_data(plan, image_size=image_size, memory_limit=memory_limit), lacks=LACKS)


def _drive_advice(path: str | None) -> str:
    on_drive = path is not None and os.name != "nt" and is_on_a_drive(path)
    return f": {path!r} is on a drive of another computer, so write paths relative to the file" if on_drive else ""


def _encoded_images(rows: Rows, column: str, image_size: int | Size | None, memory_limit: int) -> Data:
    values = rows.columns.column(column).to_pylist()
    encoded = [(one["bytes"] if isinstance(one, dict) else one) or b"" for one in values]
    given = [one.get("path") if isinstance(one, dict) else None for one in values]
    paths = [printable(path or rows.row(place)) for place, path in enumerate(given)]
    parts = zip(
        range(len(rows)), rows.labels, rows.splits, rows.keys, rows.numbers, rows.groups or [None] * len(rows), strict=True
    )
    entries = [Picture(*part) for part in parts]
    store, grouped = EncodedImages(encoded, paths), rows.groups is not None
    plan = Pictures(store, entries, rows.classes, rows.name, rows.left_out, rows.notes, grouped)
    return without_empty_classes(picture_data(plan, image_size=image_size, memory_limit=memory_limit), lacks=LACKS)


def holds_images(kind: pa.DataType) -> bool:
    """A column of bytes, or of the records {bytes, path} in which the datasets package keeps images."""
    if pa.types.is_struct(kind):
        return "bytes" in [kind.field(i).name for i in range(kind.num_fields)]
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _check_twice(named: Sequence[tuple[int, str]], source: RowSource) -> None:
    twice = [path for path, number in Counter(path for _, path in named).items() if number > 1]
    if twice:
        rows = [source.row(row) for row, path in named if path == twice[0]]
        shown = ", ".join(rows[:SHOWN]) + (", ..." if len(rows) > SHOWN else "")
        raise DataError(
            f"{source}: {shown} name the same file, {printable(twice[0])!r}; {len(twice)} file(s) are named twice: "
            "keep one row for each"
        )
