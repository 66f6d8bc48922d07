"""The hardness table: one row per example, as an Arrow table; the metadata of every column says what it means.

A measurement keeps its natural name and sign and states its direction: "harder" where a higher value means a harder
example, "easier" where a lower one does. A file carries the version of this layout: older versions are read (without
the columns they lack), newer ones are refused. Files are written completely or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mohs._core.checksums import reading
from mohs._core.errors import DataError
from mohs._core.files import written_whole

SCHEMA_VERSION = 1
SUFFIXES = (".parquet", ".csv")
VERDICTS = ("easy", "hard", "ambiguous", "mislabeled", "cannot tell")  # values of the column `verdict`


@dataclass(frozen=True)
class Column:
    """What a column holds; direction is "harder", "easier" or "" if neither."""

    meaning: str
    direction: str = ""


COLUMNS: dict[str, Column] = {
    "id": Column("id of the example"),
    "example": Column("the example that the row belongs to, if examples have several labels"),
    "part": Column("the labeled part: a class, or the position of a token or pixel"),
    "path": Column("the file it was read from"),
    "text": Column("the text of the example"),
    "fields": Column("some fields of the example's row, as a JSON object"),
    "label": Column("the label as given"),
    "predicted": Column("the class with the largest logit"),
    "confidence": Column("softmax probability of the given label", "easier"),
    "top_confidence": Column("softmax probability of the predicted class", "easier"),
    "margin": Column("log-odds of the given label: its logit less the log-sum-exp of the others", "easier"),
    "loss": Column("cross-entropy of the given label", "harder"),
    "el2n": Column("length of the error vector, softmax less one-hot label", "harder"),
    "avh": Column("angular visual hardness: angle to the label's weights over the sum of angles to all classes", "harder"),
    "avc": Column("angular confidence: π minus the angle to the nearest class, as a share of the sum over all classes", "easier"),
    "norm": Column("length of the feature vector", "easier"),
    "norm_in_class": Column("feature length scaled from 0 to 1 within the label's class", "easier"),
    "entropy": Column("entropy of the prediction, in nats", "harder"),
    "energy": Column("free energy: minus the log-sum-exp of the logits", "harder"),
    "aum": Column("area under the margin: mean over epochs of the label's logit less the largest other", "easier"),
    "mean_margin": Column("mean over epochs of the margin", "easier"),
    "mean_confidence": Column("mean over epochs of the confidence", "easier"),
    "variability": Column("standard deviation over epochs of the confidence", "harder"),
    "mean_avh": Column("mean over epochs of avh", "harder"),
    "forgetting": Column(
        "number of times it was correct at one epoch and incorrect at the next; all epochs if never correct", "harder"
    ),
    "first_learned": Column("first epoch (from 0) at which it was correct; the number of epochs if never", "harder"),
    "p_suggested": Column("probability of the suggested label"),
    "epochs": Column("number of epochs at which the example was recorded"),
    "residual": Column("distance between the given and the expected number, in units of the usual spread", "harder"),
    "neighbors": Column("share of its nearest neighbors in feature space that have its label", "easier"),
    "human": Column("share of people who would choose the label, by a model trained on people's votes", "easier"),
    "disagreement": Column("probability that two more people's votes on it would differ", "harder"),
    "gain": Column("expected increase, by one more vote, in the probability that the consensus is right"),
    "p_easy": Column("probability that it is easy"),
    "p_hard": Column("probability that it is hard but correctly labeled"),
    "p_ambiguous": Column("probability that it is ambiguous between classes"),
    "p_mislabeled": Column("probability that the given label is wrong"),
    "verdict": Column("the most probable of easy, hard, ambiguous, mislabeled"),
    "suggested_label": Column("the label that the example probably should have"),
    "checked": Column("result of checking the label: right or wrong"),
    "to_check": Column("rank, from 1, among the labels to check first, which calibrate p_mislabeled best"),
    "why": Column("the evidence for the verdict"),
    "mohs": Column("grade from 1 (easiest) to 10 (hardest) by decile", "harder"),
    "map_x": Column("position on the map: first principal component of the features"),
    "map_y": Column("position on the map: second principal component of the features"),
}


def make_table(columns: Mapping[str, Any], *, classes: Sequence[Any] | None = None) -> pa.Table:
    """Columns of equal length, in the table's order, with their meanings; `classes` are stored with it."""
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ValueError(f"unknown column {unknown[0]!r}; known: {', '.join(COLUMNS)}")
    arrays = {name: _array(columns[name]) for name in COLUMNS if name in columns}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must have one length, got {lengths}")
    fields = [pa.field(name, array.type, metadata=_describe(COLUMNS[name])) for name, array in arrays.items()]
    kept = {"schema": SCHEMA_VERSION, "classes": None if classes is None else list(map(_plain, classes))}
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields, metadata={"mohs": json.dumps(kept)}))


def add_columns(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """The table with these columns added or replaced."""
    old = {name: table.column(name) for name in table.column_names if name not in columns}
    return make_table({**old, **columns}, classes=classes_of(table))


def as_table(table: Any) -> pa.Table:
    """An Arrow table of this table or pandas DataFrame; the index of a DataFrame is left out, and NaN is a missing value."""
    if isinstance(table, pa.Table):
        return table
    if not hasattr(table, "columns") or not hasattr(table, "to_numpy"):
        raise ValueError(f"table must be an Arrow table or a pandas DataFrame, got {type(table).__name__}")
    return pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata()


def classes_of(table: pa.Table) -> list[Any] | None:
    """The class names in the order of the head's rows, if the table has them."""
    kept = (table.schema.metadata or {}).get(b"mohs")
    return None if kept is None else json.loads(kept)["classes"]


def column(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A column as a NumPy array; an error that lists the columns if it is missing."""
    if name not in table.column_names:
        raise ValueError(f"the table has no column {name!r}; its columns: {', '.join(table.column_names)}")
    values: np.ndarray[Any, Any] = table.column(name).to_numpy(zero_copy_only=False)
    return values


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write as Parquet or CSV, by the file's ending, completely or not at all."""
    with table_writer(path) as write:
        write(table)


@contextmanager
def table_writer(path: str | Path) -> Iterator[Callable[[pa.Table], None]]:
    """A function that appends a table to the file, piece by piece; it gets its final name when complete."""
    path = Path(path)
    check_table_path(path)
    kind = pyarrow.csv.CSVWriter if path.suffix == ".csv" else pyarrow.parquet.ParquetWriter
    writers: list[Any] = []
    with written_whole(path, sync=False) as part:

        def write(table: pa.Table) -> None:
            if not writers:
                writers.append(kind(part, table.schema))
            writers[0].write_table(table)

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()


def read_table(path: str | Path, *, lost: str = "the table is lost", repair: str = "write it again") -> pa.Table:
    """Read a table that `write_table` wrote as Parquet; lost, repair: for the error if it is damaged (`check_file`)."""
    table = read_parquet(Path(path), lost=lost, repair=repair)
    kept = (table.schema.metadata or {}).get(b"mohs")
    if kept is None:
        raise DataError(f"{path} is not a hardness table: its schema has no mohs entry")
    version = int(json.loads(kept)["schema"])
    if version > SCHEMA_VERSION:
        raise DataError(f"{path} has the layout of version {version}, this mohs reads up to {SCHEMA_VERSION}: upgrade mohs")
    return table


def read_parquet(path: Path, *, lost: str, repair: str) -> pa.Table:
    """Read a Parquet file of a run folder."""
    with reading(path, lost=lost, repair=repair):
        try:
            return pyarrow.parquet.ParquetFile(path).read()
        except pa.ArrowException as error:
            raise ValueError(f"it cannot be read as Parquet: {error}") from error


def check_table_path(path: Path) -> None:
    """Raise, before any work, unless a table can be written there."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: tables are written as {' or '.join(SUFFIXES)}; give the file one of these endings")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist; create it first")


def _describe(about: Column) -> dict[str, str]:
    return {"meaning": about.meaning, **({"direction": about.direction} if about.direction else {})}


def _array(values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu()
        half = values.is_floating_point() and values.element_size() < 4
        values = (values.float() if half else values).numpy()  # NumPy has no bfloat16
    return pa.array(values)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
