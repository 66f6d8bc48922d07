"""A CSV, TSV or Parquet file, or a folder of Parquet shards: a row an example, with its label and an image or features.

    label     named by `label`, or the first column called one of LABELS; a row without one is left out
    inputs    a column of paths (PATHS), relative to the file's folder; or of images' bytes (IMAGES); or of lists of
              numbers (VECTORS); or else every numeric column that is none of the others
    key       a column called one of KEYS, kept to name the example; never a feature
    split     a column called split with train, val (or valid, validation) and test

Rows are counted from 0 below the header. Text in a CSV is UTF-8; "007" stays text, and so does a class called "NA".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mohs._core.errors import DataError
from mohs.data.decode import Size
from mohs.data.examples import Data, Examples, LeftOut
from mohs.data.image_stores import EncodedImages, FolderFiles, printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.labels import LABELS, Array, class_numbers, classes_in, label_values, numbers_where_whole
from mohs.data.readers.image_set import Picture, Pictures, picture_data
from mohs.data.readers.tabular_columns import feature_matrix, numeric_columns
from mohs.data.readers.tabular_file import SPLIT, read_columns
from mohs.data.split import SPLITS, split_called

PATHS = ("path", "paths", "file", "filename", "file_name", "filepath", "image_path")
IMAGES = ("image", "img", "picture")
VECTORS = ("features", "feature", "embedding", "embeddings", "x")
KEYS = ("id", "ids", "key", "index", "", "Unnamed: 0", "__index_level_0__")
SHOWN = 5


@dataclass(frozen=True)
class Rows:
    """The rows that have a label: their places in the file, class numbers, splits and keys."""

    name: str
    file: Path
    columns: pa.Table
    places: list[int]
    labels: list[int]
    splits: list[str]
    keys: list[Any]
    classes: list[Any]
    left_out: list[tuple[str, LeftOut]]


def table(
    path: str | Path,
    *,
    label: str | None = None,
    image_size: int | Size | None = None,
    memory_limit: int = MEMORY_LIMIT,
    name: str | None = None,
) -> Data:
    """The data of a file of rows; `label` names the column of labels."""
    path = Path(path)
    columns = read_columns(path, as_text=(label, *LABELS, *PATHS, *KEYS, SPLIT))
    rows = _rows(path, columns, label, printable(path.stem) if name is None else name)
    used = [_label_column(columns, label, path), SPLIT, *KEYS]
    by_path = _text_column(columns, (*PATHS, *IMAGES), used)
    if by_path is not None:
        return _image_files(rows, by_path, image_size, memory_limit)
    encoded = next((one for one in columns.column_names if _holds_images(columns.schema.field(one).type)), None)
    if encoded is not None:
        return _encoded_images(rows, encoded, image_size, memory_limit)
    return _features(rows, used)


def _rows(path: Path, columns: pa.Table, label: str | None, name: str) -> Rows:
    """What every kind of row has."""
    if not columns.num_rows:
        raise DataError(f"{path}: no rows below the header")
    given = columns.column(_label_column(columns, label, path)).to_pylist()
    values, missing = label_values(_objects(numbers_where_whole(given) if _all_text(given) else given), str(path))
    splits = _splits(columns, path)
    kept = [row for row in range(columns.num_rows) if not missing[row]]
    left_out = [
        (splits[row], LeftOut(f"{printable(str(path))} row {row}", "no label")) for row in range(columns.num_rows) if missing[row]
    ]
    train = [row for row in kept if splits[row] == "train"]
    if not train:
        raise DataError(f"{path}: no row with a label" + (" in the train split" if kept else ""))
    classes = classes_in(values[train])
    numbers = (
        class_numbers(values[kept], classes, str(path)).tolist()
        if len(train) == len(kept)
        else _known(values, kept, classes, path)
    )
    return Rows(name, path, columns, kept, numbers, [splits[row] for row in kept], _keys(columns, kept), classes, left_out)


def _known(values: Array, kept: list[int], classes: list[Any], path: Path) -> list[int]:
    """Class numbers of rows in all splits; a label that no training row bears is an error naming its row."""
    place = {one: i for i, one in enumerate(classes)}
    for row in kept:
        if values[row].item() not in place:
            raise DataError(f"{path}: the label of row {row} is {values[row].item()!r}, which no training row bears")
    return [place[values[row].item()] for row in kept]


def _image_files(rows: Rows, column: str, image_size: int | Size | None, memory_limit: int) -> Data:
    folder = rows.file if rows.file.is_dir() else rows.file.parent
    store = FolderFiles(folder)
    paths = rows.columns.column(column).to_pylist()
    named = [(row, paths[row]) for row in rows.places]
    _check_twice([(row, path) for row, path in named if path], rows.file)
    entries, left_out = [], list(rows.left_out)
    for (row, path), number, split, key in zip(named, rows.labels, rows.splits, rows.keys, strict=True):
        if path and (folder / path).is_file():
            entries.append(Picture(path, number, split, key))
        else:
            reason = f"row {row}: there is no such file" if path else f"row {row}: no path"
            left_out.append((split, LeftOut(store.path(path or ""), reason)))
    if not entries:
        raise DataError(
            f"{rows.file}: none of the {len(named)} files in column {column!r} exists "
            f"(the first: {store.path(named[0][1] or '')}); paths are relative to {folder}"
        )
    plan = Pictures(store, entries, rows.classes, rows.name, left_out)
    return picture_data(plan, image_size=image_size, memory_limit=memory_limit)


def _encoded_images(rows: Rows, column: str, image_size: int | Size | None, memory_limit: int) -> Data:
    values = rows.columns.column(column).to_pylist()
    encoded = [(one["bytes"] if isinstance(one, dict) else one) or b"" for one in values]
    given = [one.get("path") if isinstance(one, dict) else None for one in values]
    paths = [printable(path or f"{rows.file} row {row}") for row, path in enumerate(given)]
    parts = zip(rows.places, rows.labels, rows.splits, rows.keys, strict=True)
    entries = [Picture(row, number, split, key) for row, number, split, key in parts]
    plan = Pictures(EncodedImages(encoded, paths), entries, rows.classes, rows.name, rows.left_out)
    return picture_data(plan, image_size=image_size, memory_limit=memory_limit)


def _features(rows: Rows, used: Sequence[str]) -> Data:
    import torch

    names = numeric_columns(rows.columns, VECTORS, used)
    if not names:
        raise DataError(
            f"{rows.file}: no column of paths ({', '.join(PATHS)}), of lists ({', '.join(VECTORS)}) or of numbers "
            f"beside the label; its columns: {', '.join(rows.columns.column_names)}"
        )
    x = feature_matrix(rows.columns.take(rows.places), names, rows.file, rows.places)
    unused = [one for one in rows.columns.column_names if one not in (*names, *used)]
    notes = [f"columns not used: {', '.join(unused[:SHOWN])}{', ...' if len(unused) > SHOWN else ''}"] if unused else []
    every = Examples(torch.from_numpy(x), torch.tensor(rows.labels), rows.classes, name=rows.name, keys=rows.keys, notes=notes)
    parts = {}
    for split in SPLITS:
        own = torch.tensor([i for i, one in enumerate(rows.splits) if one == split], dtype=torch.long)
        if len(own):
            left_out = [one for where, one in rows.left_out if where == split]
            part = every if len(own) == len(every) else every.take(own)
            parts[split] = Examples(
                part.inputs, part.labels, rows.classes, name=rows.name, keys=part.keys, left_out=left_out, notes=notes
            )
    return Data(parts["train"], parts.get("val"), parts.get("test"))


def _label_column(columns: pa.Table, label: str | None, path: Path) -> str:
    names = columns.column_names
    found = next((one for one in (LABELS if label is None else (label,)) if one in names), None)
    if found is None:
        wanted = f"no column {label!r}" if label is not None else f"no label column ({', '.join(LABELS)}): name yours with label"
        raise DataError(f"{path}: {wanted}; its columns: {', '.join(names)}")
    return found


def _text_column(columns: pa.Table, wanted: Sequence[str], used: Sequence[str]) -> str | None:
    kinds = {one: columns.schema.field(one).type for one in columns.column_names}
    return next((one for one in wanted if one in kinds and one not in used and _is_text(kinds[one])), None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _holds_images(kind: pa.DataType) -> bool:
    """A column of bytes, or of the records {bytes, path} in which the datasets package keeps images."""
    if pa.types.is_struct(kind):
        return "bytes" in [kind.field(i).name for i in range(kind.num_fields)]
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _all_text(values: Sequence[Any]) -> bool:
    return all(one is None or isinstance(one, str) for one in values)


def _objects(values: Sequence[Any]) -> Array:
    import numpy as np

    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _splits(columns: pa.Table, path: Path) -> list[str]:
    if SPLIT not in columns.column_names or not _is_text(columns.schema.field(SPLIT).type):
        return ["train"] * columns.num_rows
    found = [split_called(one or "") for one in columns.column(SPLIT).to_pylist()]
    if None in found:
        row = found.index(None)
        raise DataError(f"{path}: split of row {row} is {columns.column(SPLIT)[row].as_py()!r}: train, val or test is wanted")
    return [one for one in found if one is not None]


def _keys(columns: pa.Table, kept: list[int]) -> list[Any]:
    column = next((one for one in KEYS if one in columns.column_names), None)
    if column is None:
        return list(kept)
    values = columns.column(column).to_pylist()
    values = numbers_where_whole(values) if _all_text(values) else values
    return [values[row] for row in kept] if len(set(values)) == len(values) else list(kept)


def _check_twice(named: Sequence[tuple[int, str]], file: Path) -> None:
    twice = [path for path, number in Counter(path for _, path in named).items() if number > 1]
    if twice:
        rows = [row for row, path in named if path == twice[0]]
        shown = ", ".join(map(str, rows[:SHOWN])) + (", ..." if len(rows) > SHOWN else "")
        raise DataError(
            f"{file}: {printable(twice[0])!r} stands in rows {shown}; {len(twice)} path(s) stand twice: keep one row each"
        )
