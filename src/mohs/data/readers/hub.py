"""Data sets of the Hugging Face hub, `hf:NAME` or `hf:NAME:CONFIG`, by the `datasets` package (the extra `hf`), or in memory.

NAME may be a local folder: one that `save_to_disk` wrote, or one of Parquet, CSV or image files; then nothing is downloaded.
Images and labels are found by the types of the columns (Image, ClassLabel), or by their names; text and tables as in
`rows.py`. A label of −1 is missing. No code of a data set is run.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from mohs._core.errors import DataError
from mohs._core.remote import quiet_hub
from mohs._core.vocabulary import IDS, LABELS, find_name
from mohs.data.cells import Array
from mohs.data.decode import Size, formats
from mohs.data.examples import Data, LeftOut
from mohs.data.image_stores import THREADS, printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.labels import class_numbers, classes_in, label_values
from mohs.data.readers.image_set import Picture, Pictures, picture_data
from mohs.data.readers.rows import Rows, group_column, rows_data
from mohs.data.readers.tabular_file import RowSource
from mohs.data.split import SPLITS, split_called

SAVED = ("dataset_dict.json", "state.json")  # files written by save_to_disk


class HubImages:
    """Encoded images of a data set; a name is (split, row)."""

    threads = THREADS

    def __init__(self, splits: Mapping[str, Any], column: str, name: str) -> None:
        self.splits, self.column, self.name = splits, column, name

    def image(self, name: tuple[str, int], /) -> Image.Image:
        cell = self._cell(name)
        return Image.open(io.BytesIO(cell["bytes"]) if cell["bytes"] else cell["path"], formats=formats())

    def size(self, name: tuple[str, int], /) -> int:
        cell = self._cell(name)
        return len(cell["bytes"]) if cell["bytes"] else Path(cell["path"]).stat().st_size

    def path(self, name: tuple[str, int], /) -> str:
        return printable(f"{self.name}/{name[0]}[{name[1]}]")

    def _cell(self, name: tuple[str, int]) -> dict[str, Any]:
        cell = self.splits[name[0]][name[1]][self.column]
        if not cell or not (cell["bytes"] or cell["path"]):
            raise ValueError("no image in this row")
        return dict(cell)


def hub(
    name: str,
    *,
    config: str | None = None,
    label: str | None = None,
    text: str | None = None,
    group: str | None = None,
    image_size: int | Size | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Data:
    """The data of a hub name or a local folder; `label`, `text` and `group` name columns."""
    reading: dict[str, Any] = {"image_size": image_size, "memory_limit": memory_limit}
    found = _loaded(_package(), name, config)
    return hub_splits(found, name, f"hf:{name}", label=label, text=text, group=group, **reading)


def hub_splits(
    found: Mapping[str, Any],
    name: str,
    source: str,
    *,
    label: str | None = None,
    text: str | None = None,
    group: str | None = None,
    image_size: int | Size | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Data:
    """The data of data sets by split, as `DatasetDict` holds them; source: names them in errors."""
    datasets = _package()
    splits, notes = _splits(found, source)
    kinds = splits["train"].features
    target = _label_column(datasets, kinds, label, source)
    values = {split: label_values(list(one[target]), name) for split, one in splits.items()}
    if isinstance(kinds[target], datasets.ClassLabel):
        values = {split: (numbers, missing | (numbers < 0)) for split, (numbers, missing) in values.items()}
        classes = list(kinds[target].names)
    else:
        classes = classes_in(values["train"][0][~values["train"][1]])
    together = None if group is None else group_column(list(kinds), group, target, source)
    image = next((one for one, kind in kinds.items() if isinstance(kind, datasets.Image)), None)
    if image is None or text is not None:
        return rows_data(_rows(splits, values, classes, target, name, source, notes, together), text=text)
    encoded = {split: one.cast_column(image, datasets.Image(decode=False)) for split, one in splits.items()}
    store = HubImages(encoded, image, name)
    entries, left_out = [], []
    for split, (given, missing) in values.items():
        rows = np.flatnonzero(~missing).tolist()
        numbers = class_numbers(given[~missing], classes, f"{name} {split}").tolist()
        own = [None] * len(given) if together is None else list(splits[split][together])
        entries += [Picture((split, row), number, split, row, group=own[row]) for row, number in zip(rows, numbers, strict=True)]
        left_out += [(split, LeftOut(store.path((split, row)), "no label")) for row in np.flatnonzero(missing).tolist()]
    plan = Pictures(store, entries, classes, name, left_out, notes, grouped=together is not None)
    return picture_data(plan, image_size=image_size, memory_limit=memory_limit)


def _package() -> ModuleType:
    try:
        return importlib.import_module("datasets")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("hf: data need the datasets package: pip install 'mohs[hf]'", name="datasets") from error


def _loaded(datasets: ModuleType, name: str, config: str | None) -> dict[str, Any]:
    """Split name -> data set."""
    try:
        saved = any((Path(name) / file).exists() for file in SAVED)
        if saved:
            found = datasets.load_from_disk(name)
        elif Path(name).is_file() and Path(name).suffix == ".parquet":
            found = datasets.load_dataset("parquet", data_files=name)
        else:
            with quiet_hub():
                found = datasets.load_dataset(name, config)
    except (OSError, ValueError, RuntimeError) as error:  # no network, no such name, a script, a missing config
        raise DataError(f"hf:{name}: cannot be loaded: {str(error).partition(chr(10))[0]}") from error
    return dict(found) if isinstance(found, dict) else {"train": found}


def _splits(found: Mapping[str, Any], source: str) -> tuple[dict[str, Any], list[str]]:
    """Splits by our names for them; a single one is for training, those with other names are not read."""
    if len(found) == 1:
        return {"train": next(iter(found.values()))}, []
    splits = {split_called(one): data for one, data in found.items()}
    if "train" not in splits:
        raise DataError(f"{source}: no train split; it has {', '.join(found)}")
    other = [one for one in found if split_called(one) is None]
    notes = [f"splits not read: {', '.join(other)}"] if other else []
    return {split: splits[split] for split in SPLITS if split in splits}, notes


def _label_column(datasets: ModuleType, kinds: Mapping[str, Any], label: str | None, source: str) -> str:
    typed = [one for one, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    if label is not None:
        found = label if label in kinds else None
    else:
        found = find_name(typed, LABELS) or next(iter(typed), None) or find_name(kinds, LABELS)
    if found is None:
        what = f"no column {label!r}" if label is not None else "no label column: name yours with label (--label)"
        raise DataError(f"{source}: {what}; its columns: {', '.join(kinds)}")
    return found


def _rows(
    splits: Mapping[str, Any],
    values: Mapping[str, tuple[Array, Array]],
    classes: list[Any],
    label: str,
    name: str,
    source: str,
    notes: list[str],
    group: str | None = None,
) -> Rows:
    """The rows of all splits that have a label, one split after another; keys are row numbers within the split."""
    tables, numbers, labels, called, left_out = [], [], [], [], []
    for split, one in splits.items():
        given, missing = values[split]
        tables.append(one.with_format("arrow")[:].filter(pa.array(~missing)))
        numbers += np.flatnonzero(~missing).tolist()
        labels += class_numbers(given[~missing], classes, f"{name} {split}").tolist()
        called += [split] * int((~missing).sum())
        left_out += [(split, LeftOut(f"{name}/{split}[{row}]", "no label")) for row in np.flatnonzero(missing).tolist()]
    columns = pa.concat_tables(tables, promote_options="default")
    reserved = {label, group, *(one for one in columns.column_names if one.lower() in IDS)}
    inputs = [one for one in columns.column_names if one not in reserved]
    groups = None if group is None else columns.column(group).to_pylist()
    about: tuple[Any, ...] = (list(numbers), classes, left_out, notes, groups)
    return Rows(name, RowSource(source), columns, inputs, numbers, labels, called, *about)
