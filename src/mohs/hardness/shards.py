"""Files of logits or features, read a unit at a time: a npz file, Parquet, a folder of Parquet shards or npy files, or arrays.

    logits (N, K), labels (N,)                     or features (N, D), labels (N,) and the head: weight (K, D), bias (K,)
    ids (N,), paths (N,), classes (K,)             optional; if both logits and features are given, the logits are the model's own

In Parquet, logits and features are columns of lists; the head is a separate file. A folder of .npy files has an array in each,
under these names: features.npy, labels.npy. A unit is a row group, or a range of rows of an array; only a batch of its logits
and features is in memory at a time (a .npz file is loaded whole). The shards of a folder are read in the order of their
names. Errors name the file, the key and the row (from 0).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from torch import Tensor

from mohs._core.arrays import read_arrays
from mohs._core.errors import DataError
from mohs._core.folders import refuse_output
from mohs._core.remote import is_remote, list_files, opened_at, reread, retried, stamp_of
from mohs._core.vocabulary import CLASSES, FEATURES, IDS, LABELS, PATHS, find_name
from mohs.hardness.list_columns import matrix, width_of
from mohs.hardness.score import checked_head

KEYS = {
    "logits": ("logits",),
    "features": FEATURES,
    "labels": LABELS,
    "ids": IDS,
    "paths": PATHS,
    "weight": ("weight",),
    "bias": ("bias",),
    "classes": CLASSES,
}
HEAD = ("weight", "bias", "classes")
ARRAY_UNIT = 65_536  # rows
BATCH_ENTRIES = 2**20  # entries of logits or features read at a time
Read = Callable[["Unit", tuple[str, ...], int], Iterator[dict[str, Any]]]


@dataclass(frozen=True)
class Unit:
    """Rows that are scored and written together: their positions in the file and among all rows."""

    file: str
    group: int
    start: int
    first: int
    rows: int


@dataclass(frozen=True)
class Source:
    """A source to score: its units, which of KEYS it has, the number of classes, the head, and how to read it.

    num_classes is 0 for features without a head, which can be judged but not scored. width: the number of features.
    """

    name: str
    units: tuple[Unit, ...]
    keys: frozenset[str]
    num_classes: int
    width: int
    head: tuple[Tensor, Tensor | None] | None
    classes: list[Any] | None
    whole_number_labels: bool
    reader: Read

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)

    def fingerprint(self) -> str:
        """A hash of the files' names, sizes and dates, their rows, and the head."""
        names = dict.fromkeys(unit.file for unit in self.units)
        files = [Path(name) for name in names if not is_remote(name)]
        every = [one for file in files for one in (sorted(file.iterdir()) if file.is_dir() else [file])]
        stamps: list[Any] = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in every if one.exists()]
        stamps += [stamp_of(name) for name in names if is_remote(name)]
        digest = hashlib.sha256(repr((stamps, [unit.rows for unit in self.units], self.classes)).encode())
        for values in self.head or ():
            digest.update(b"" if values is None else values.numpy().tobytes())
        return digest.hexdigest()[:16]

    def read(self, unit: Unit, *keys: str) -> Iterator[dict[str, Any]]:
        """Batches of the unit's columns, as far as they exist; matrices and labels as arrays."""
        batch = max(1, BATCH_ENTRIES // max(self.num_classes, self.width))
        yield from self.reader(unit, tuple(key for key in keys if key in self.keys), batch)

    def take(self, rows: np.ndarray[Any, Any], *keys: str) -> dict[str, np.ndarray[Any, Any]]:
        """The columns that exist, at these rows, which must be in rising order."""
        parts: dict[str, list[Any]] = {key: [] for key in keys if key in self.keys}
        for unit in self.units:
            first = unit.first
            if np.searchsorted(rows, first) == np.searchsorted(rows, first + unit.rows):
                continue
            for batch in self.read(unit, *parts):
                size = len(next(iter(batch.values())))
                own = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + size)] - first
                for key, values in batch.items():
                    parts[key].append(np.asarray(values)[own])
                first += size
        return {key: np.concatenate(values) for key, values in parts.items()}


def open_source(path: str | Path, *, weight: Path | None = None, headless: bool = False) -> Source:
    """The source a path names: .npz, .parquet, or a folder of .parquet or .npy files.

    Args:
        path: The file or folder; or the address of Parquet files, s3://BUCKET/FOLDER.
        weight: File (.npz or .npy) with the head.
        headless: Whether features may come without a head.
    """
    head = {} if weight is None else arrays_in(weight)
    if is_remote(path):
        found = list_files(str(path), ".parquet")
        if not found:
            raise DataError(f"{path}: holds no .parquet files; give the address of a .parquet file, or of a folder of them")
        return _parquet_source(found, head, str(path), headless=headless)
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if path.is_dir():
        refuse_output(path)
    if path.suffix == ".npz":
        return array_source({**arrays_in(path), **head}, str(path), headless=headless)
    named = {file.stem: file for file in sorted(path.glob("*.npy"))} if path.is_dir() else {}
    if named:
        return array_source({**_npy_arrays(named), **head}, str(path), headless=headless)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or files[0].suffix != ".parquet":
        what = "holds no .parquet files" if path.is_dir() else "is neither .npz nor .parquet"
        raise DataError(f"{path}: {what}; give a .npz or .parquet file, or a folder of .parquet or .npy files")
    return _parquet_source([str(file) for file in files], head, str(path), headless=headless)


class NpyFile:
    """An array in a .npy file whose rows are read on access: `NpyFile(path)[10:20]`."""

    def __init__(self, path: Path) -> None:
        try:
            held = np.load(path, mmap_mode="r", allow_pickle=False)  # reads the header; rows are read by `fromfile`, not mapped
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: cannot be read as .npy ({error}); pickled objects are not loaded") from error
        if not held.flags.c_contiguous or not held.ndim:
            raise DataError(
                f"{path}: an array in C order with at least one dimension is needed: save np.ascontiguousarray(ARRAY)"
            )
        self.path, self.shape, self.dtype, self.ndim, self.offset = path, held.shape, held.dtype, held.ndim, held.offset

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: slice) -> np.ndarray[Any, Any]:
        start, stop, _ = rows.indices(len(self))
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        where = self.offset + start * width * self.dtype.itemsize
        found = np.fromfile(self.path, self.dtype, (stop - start) * width, offset=where)
        return found.reshape(stop - start, *self.shape[1:])


def _npy_arrays(files: Mapping[str, Path]) -> dict[str, Any]:
    """The arrays of .npy files under their names in KEYS; rows of the head and names of classes are read at once."""
    named = {key: find_name(files, names) for key, names in KEYS.items()}
    found = {key: NpyFile(files[name]) for key, name in named.items() if name is not None}
    return {key: array[:] if key in HEAD else array for key, array in found.items()}


def arrays_in(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a .npz file under their names in KEYS; a .npy file is a weight."""
    found = read_arrays(path, single="weight")
    named = {key: find_name(found, names) for key, names in KEYS.items()}
    return {key: found[name] for key, name in named.items() if name is not None}


def array_source(arrays: Mapping[str, Any], name: str, *, headless: bool = False) -> Source:
    """A source of arrays under the names in KEYS; headless: as for `open_source`."""
    _check_keys(arrays, name, headless=headless)
    labels = arrays["labels"]
    for key in ("logits", "features"):
        if key in arrays and (arrays[key].ndim != 2 or arrays[key].dtype.kind not in "fiu"):
            raise DataError(f"{name}: {key} must hold numbers of shape (N, ...), got {arrays[key].dtype} {arrays[key].shape}")
    for key in set(arrays) - set(HEAD):
        if arrays[key].shape[:1] != labels.shape or (key not in ("logits", "features") and arrays[key].ndim != 1):
            raise DataError(
                f"{name}: {key} has shape {arrays[key].shape}, labels {labels.shape}: they must have one entry per row"
            )

    def read(unit: Unit, keys: tuple[str, ...], batch: int) -> Iterator[dict[str, Any]]:
        for start in range(unit.start, unit.start + unit.rows, batch):
            rows = slice(start, min(start + batch, unit.start + unit.rows))
            yield {key: arrays[key][rows] for key in keys}

    starts = range(0, len(labels), ARRAY_UNIT)
    units = tuple(Unit(name, i, at, at, min(ARRAY_UNIT, len(labels) - at)) for i, at in enumerate(starts))
    widths: dict[str, int] = {key: arrays[key].shape[1] for key in ("logits", "features") if key in arrays}
    return _source(name, units, arrays, widths, labels.dtype.kind in "iu", read)


def _parquet_source(files: list[str], head: Mapping[str, np.ndarray[Any, Any]], name: str, *, headless: bool) -> Source:
    schema = open_parquet(files[0]).schema_arrow
    named = {key: find_name(schema.names, names) for key, names in KEYS.items()}
    columns = {key: column for key, column in named.items() if column and key not in HEAD}
    _check_keys({**columns, **head}, files[0], headless=headless)
    units: list[Unit] = []
    first = 0
    for file in files:
        opened = open_parquet(file)
        _check_schema(file, opened.schema_arrow, schema, columns)
        start = 0
        for group in range(opened.num_row_groups):
            rows = opened.metadata.row_group(group).num_rows
            units += [Unit(file, group, start, first, rows)] if rows else []
            start, first = start + rows, first + rows
    widths: dict[str, int] = {
        key: width_of(map(open_parquet, files), columns[key], files) for key in ("logits", "features") if key in columns
    }

    def read(unit: Unit, keys: tuple[str, ...], batch: int) -> Iterator[dict[str, Any]]:
        def batches() -> Iterator[dict[str, Any]]:
            start, wanted = unit.start, [columns[key] for key in keys]
            for part in open_parquet(unit.file).iter_batches(batch, row_groups=[unit.group], columns=wanted):
                yield {key: _plain(part.column(columns[key]), key, columns[key], unit, start, widths) for key in keys}
                start += part.num_rows

        try:
            yield from reread(batches, unit.file, pa.ArrowException)
        except (OSError, pa.ArrowException) as error:
            where = f"row group {unit.group} (from row {unit.start})"
            raise DataError(f"{unit.file}: {where} cannot be read: {error}") from error

    kind = schema.field(columns["labels"]).type
    return _source(name, tuple(units), {**columns, **head}, widths, pa.types.is_integer(kind), read)


def _source(
    name: str, units: tuple[Unit, ...], found: Mapping[str, Any], widths: dict[str, int], whole: bool, read: Read
) -> Source:
    if not units:
        raise DataError(f"{name}: holds no rows: there is nothing to score")
    head = None
    if "weight" in found and "features" in widths:
        try:
            head = checked_head(np.empty((0, widths["features"])), found["weight"], found.get("bias"))
        except (TypeError, ValueError) as error:
            raise DataError(f"{name}: {error}") from error
    num_classes = widths.get("logits", 0 if head is None else head[0].shape[0])
    told = "logits" in widths or head is not None
    if (told and num_classes < 2) or (head is not None and head[0].shape[0] != num_classes):
        rows = "no weight" if head is None else f"weight {tuple(head[0].shape)}"
        raise DataError(f"{name}: logits and weight must agree on at least 2 classes, got logits (N, {num_classes}) and {rows}")
    classes = None if "classes" not in found else [value.item() for value in found["classes"]]
    width = widths.get("features", 0)
    return Source(name, units, frozenset(found) - set(HEAD), num_classes, width, head, classes, whole, read)


def _check_keys(found: Mapping[str, Any], name: str, *, headless: bool) -> None:
    have = f"it has {', '.join(found) or 'none of the known keys'}"
    if "labels" not in found:
        raise DataError(f"{name}: labels are missing (keys {' or '.join(KEYS['labels'])}); {have}")
    if "logits" not in found and "features" not in found:
        raise DataError(f"{name}: logits or features are missing; {have}")
    if "logits" not in found and "weight" not in found and not headless:
        raise DataError(f"{name}: features need the head's weight: pass it with --weight FILE (.npz with weight, bias, or .npy)")


def _check_schema(file: str, schema: pa.Schema, expected: pa.Schema, columns: Mapping[str, str]) -> None:
    for column in columns.values():
        if column not in schema.names:
            raise DataError(f"{file}: column {column!r} is missing, which the first shard has; its columns: {schema.names}")
        kind, wanted = schema.field(column).type, expected.field(column).type
        if kind != wanted and column not in (columns.get("logits"), columns.get("features")):
            raise DataError(f"{file}: column {column!r} is {kind}, in the first shard {wanted}: all shards need the same columns")


def open_parquet(file: str) -> pyarrow.parquet.ParquetFile:
    """A Parquet file by its path or address."""
    try:
        if is_remote(file):
            system, path = opened_at(file)
            return retried(lambda: pyarrow.parquet.ParquetFile(path, filesystem=system, pre_buffer=True), file)
        return pyarrow.parquet.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file}: cannot be read as Parquet: {error}") from error


def _plain(column: pa.Array, key: str, name: str, unit: Unit, start: int, widths: Mapping[str, int]) -> Any:
    if key in widths:
        return matrix(column, name, unit.file, start, widths[key])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(f"{unit.file}: {name} of row {row} is empty: every row needs one")
    return column.to_numpy(zero_copy_only=False) if key == "labels" else column
