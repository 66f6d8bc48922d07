"""Human labels of examples that have labels already, such as CIFAR-10N, from a .npz file or a table.

The file has one array (or column) per set of labels, one entry per example, in the order of the data. An array called `clean`
must equal the labels of the examples: that proves that the order is the same.
J. Wei et al., "Learning with noisy labels revisited" (ICLR 2022).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mohs._core.arrays import read_arrays
from mohs._core.errors import DataError
from mohs.data.examples import Examples
from mohs.data.labels import class_numbers, label_values, numbers_where_whole
from mohs.data.read_options import FOLDER
from mohs.data.readers.tabular_file import FILES, RowSource, read_columns

CLEAN = "clean"


@dataclass(frozen=True, kw_only=True)
class HumanLabels:
    """Labels that people gave. file: "cifar10n.npz:worse", or a file with its column; here or in the folder MOHS_DATA."""

    file: str
    column: str | None = None

    def __call__(self, examples: Examples, seed: int = 0) -> Examples:
        name, column = self.file, self.column
        if column is None:
            name, _, column = self.file.rpartition(":")
        if not name:
            raise ValueError(f"file: name the labels in {self.file}: write FILE:COLUMN, or give column")
        return examples.relabeled(human_labels(find_file(name), column, examples))


def human_labels(path: str | Path, column: str, examples: Examples) -> Tensor:
    """The labels of this column as class indices (N,) of the examples; an error if they do not match the examples."""
    path = Path(path)
    columns = label_columns(path)
    if column not in columns:
        raise DataError(f"{path}: no labels called {column!r}; there are {', '.join(columns)}")
    given = _numbers(columns, column, examples, path)
    check_order(columns, examples, path)
    return given


def check_order(columns: Mapping[str, Any], examples: Examples, path: Path) -> None:
    """Raise if the file's labels called `clean`, where it has some, are not those of the examples."""
    if CLEAN in columns:
        clean = _numbers(columns, CLEAN, examples, path)
        now = examples.labels if examples.truth is None else examples.truth
        other = (clean != now).nonzero()
        if len(other):
            row = int(other[0])
            raise DataError(
                f"{RowSource(str(path), path)(row)}: {CLEAN!r} is class {examples.classes[int(clean[row])]!r}, the data's "
                f"{examples.classes[int(now[row])]!r}; {len(other)} differ: the file and the data are not in the same order"
            )


def _numbers(columns: Mapping[str, Any], column: str, examples: Examples, path: Path) -> Tensor:
    source = RowSource(str(path), path)
    values, missing = label_values(columns[column], f"{path}: {column}", row=source.row)
    if len(values) != len(examples):
        raise DataError(
            f"{path}: {column!r} has {len(values)} labels, {examples.name} {len(examples)} examples: "
            "give the labels of exactly these examples (add noise before splitting)"
        )
    if missing.any():
        raise DataError(f"{source(int(missing.argmax()))}: {column!r} is empty: every example needs a label")
    return class_numbers(values, examples.classes, f"{path}: {column}", row=source.row)


def label_columns(path: Path) -> dict[str, Any]:
    """The arrays or columns of a file of labels, by name."""
    if path.suffix == ".npz":
        return read_arrays(path)
    if path.suffix in FILES:
        table = read_columns(path)
        found = {name: table.column(name).to_pylist() for name in table.column_names}
        text = {name for name, values in found.items() if all(one is None or isinstance(one, str) for one in values)}
        return {name: numbers_where_whole(values) if name in text else values for name, values in found.items()}
    raise DataError(f"{path}: labels are read from .npz, {', '.join(FILES)} files")


def find_file(name: str) -> Path:
    """The file of this name, here or in the folder that MOHS_DATA names."""
    places = [Path(name)] + [Path(folder) / name for folder in [os.environ.get(FOLDER)] if folder]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise DataError(f"{name}: no such file here" + (f" or in {places[1].parent}" if len(places) > 1 else ""))
    return path
