"""Corrected labels: a file written by `mohs apply` that replaces the labels of the data.

The file has one row per training example, in their order: id, path (of files), label (empty if excluded), previous and decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples
from mohs.hardness.table import check_table_path

WRITTEN = ("id", "label", "previous", "decision")  # columns of every such file


def with_corrections(data: Data, file: str | Path) -> Data:
    """The data with the labels of the file for the training examples, without those that it excludes."""
    labels = read_corrections(file)
    previous = [str(data.classes[label]) for label in data.train.labels.tolist()]
    if labels.column("previous").to_pylist() != previous:
        raise DataError(f"{file} was not made for {data.name}: give the file that mohs apply wrote for its audit")
    train, kept = with_labels(data.train, labels)
    return replace(data, train=replace(train, truth=data.train.truth).take(kept))


def with_labels(examples: Examples, labels: pa.Table) -> tuple[Examples, Tensor]:
    """The examples with these labels, and the indices of those that were not excluded."""
    if len(labels) != len(examples):
        raise DataError(f"{len(labels)} labels for the {len(examples)} examples of {examples.name}: they belong to other data")
    own, names = examples.labels.tolist(), labels.column("label").to_pylist()
    if examples.separator is not None:  # corrections may create new sets of labels
        examples = replace(examples, classes=list(dict.fromkeys([*examples.classes, *filter(None, names)])))
    number = {str(name): i for i, name in enumerate(examples.classes)}
    excluded = [decision == "exclude" for decision in labels.column("decision").to_pylist()]
    new = [_number(label, number, old, out) for label, old, out in zip(names, own, excluded, strict=True)]
    return examples.relabeled(torch.tensor(new)), (~torch.tensor(excluded)).nonzero().flatten()


def read_corrections(path: str | Path) -> pa.Table:
    """Read id, label, previous label and decision, as text, and paths, if there are any."""
    path = Path(path)
    check_table_path(path)
    kinds = pa.schema([(name, pa.string()) for name in WRITTEN])
    try:
        found = read_label_file(path, kinds)
        paths = [] if "path" not in found.column_names else found.column("path").to_pylist()
        read = {name: found.column(name).cast(pa.string()) for name in kinds.names}
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError(f"{path} cannot be read as corrected labels ({error}): give the file that mohs apply wrote") from error
    if paths:  # relative to the file
        read["path"] = pa.array([str(path.parent / one) if one else one for one in paths], pa.string())
    return pa.table(read)


def read_label_file(path: Path, schema: pa.Schema) -> pa.Table:
    """A CSV or Parquet file of labels; columns of a CSV file have the types of the schema."""
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    kinds = pyarrow.csv.ConvertOptions(column_types={name: schema.field(name).type for name in schema.names})
    return pyarrow.csv.read_csv(path, convert_options=kinds, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))


def earlier_corrections(call: Mapping[str, Any] | None) -> pa.Table | None:
    """The corrections that an audit with this call was itself given; None without any."""
    return None if call is None or call.get("corrected") is None else read_corrections(call["corrected"])


def on_top(new: pa.Table, earlier: pa.Table) -> pa.Table:
    """Earlier corrections, updated with the new labels of the examples that they did not exclude; `previous` stays the original
    label.
    """
    place = {str(id_): row for row, id_ in enumerate(earlier.column("id").to_pylist())}
    columns = {name: earlier.column(name).to_pylist() for name in earlier.column_names}
    for name in new.column_names:
        columns.setdefault(name, [None] * len(earlier))
    for row in new.to_pylist():
        at = place[str(row["id"])]
        for name, value in row.items():
            if name not in ("id", "previous"):
                columns[name][at] = (value or columns[name][at]) if name == "decision" else value
    order = [*(name for name in ("id", "path") if name in columns), *(name for name in columns if name not in ("id", "path"))]
    return pa.table({name: pa.array([None if v is None else str(v) for v in columns[name]], pa.string()) for name in order})


def since(whole: pa.Table, table: pa.Table) -> pa.Table:
    """The changes that corrections make to the labels of an audit with earlier corrections: the inverse of `on_top`.

    Args:
        whole: Corrections, as `read_corrections` returns them.
        table: Table of the audit, with id and label.
    """
    made = {row["id"]: row for row in whole.to_pylist()}
    own = list(zip(*(table.column(name).to_pylist() for name in ("id", "label")), strict=True))
    rows = [made[str(id_)] for id_, _ in own]
    labels = [row["label"] or None for row in rows]
    decisions = [row["decision"] if label != str(old) else "" for row, label, (_, old) in zip(rows, labels, own, strict=True)]
    return pa.table({"id": table.column("id"), "label": labels, "previous": table.column("label"), "decision": decisions})


def check_no_corrections(names: Sequence[str], source: str) -> None:
    """Raise if these are the columns of corrected labels alone, without the inputs."""
    if set(names) == set(WRITTEN):
        raise DataError(
            f"{source}: labels that mohs apply wrote, without the inputs: give the data that were audited, and these labels with "
            "corrected (--corrected)"
        )


def _number(label: Any, number: dict[str, int], old: int, excluded: bool) -> int:
    if excluded:
        return old
    if str(label) not in number:
        raise DataError(f"the label {label!r} is not one of the {len(number)} classes: apply the decisions again")
    return number[str(label)]
