"""Inputs without labels: images (a folder, a zip, files), an .npz or .npy file, rows with texts or paths of images, arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from mohs._core.arrays import read_arrays
from mohs._core.errors import DataError
from mohs._core.folders import refuse_output
from mohs._core.vocabulary import INPUTS, find_name
from mohs.data.columns import Column, from_table
from mohs.data.decode import Size, is_image_name
from mohs.data.domains import UNKNOWN, unlabeled
from mohs.data.examples import Data, Examples
from mohs.data.image_stores import FolderFiles, ZipFiles, printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.open_single import as_arrow
from mohs.data.readers.arrays import as_strings
from mohs.data.readers.image_set import Picture, Pictures, picture_data
from mohs.data.readers.rows import rows_data, rows_like, unlabeled_rows
from mohs.data.readers.tabular import table_like, unlabeled_table
from mohs.data.readers.tabular_file import FILES, SAVE_AS, RowSource
from mohs.data.row_inputs import TableRows


def open_unlabeled(
    data: Any,
    like: Examples | None = None,
    *,
    text: str | None = None,
    group: str | None = None,
    image_size: int | Size | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Data:
    """Inputs as examples without labels.

    Args:
        data: A folder, .zip or list of images, a file of rows, arrays or images, a data frame, a list of texts, or an array.
        like: Examples with the classes and the kind of inputs that these must have; image files are resized to their size,
            columns are found by their names.
        text: Column of the text, in a file of rows or a data frame.
        group: Column of groups there, which is no input.
        image_size: Pixels per side, or (height, width), of images without `like`.
        memory_limit: Bytes of pixels held in memory.
    """
    kind, classes = (None, []) if like is None else (like.kind, list(like.classes))
    size = like.shape[1:] if like is not None and kind == "images" else image_size
    images: dict[str, Any] = {"memory_limit": memory_limit, "image_size": size}
    rows = as_arrow(data)
    if isinstance(data, str | os.PathLike):
        found = _at_path(Path(data), like, text, group, images)
    elif kind in (None, "images") and _are_images(data, sure=kind is not None):
        found = _image_files(FolderFiles(Path()), [os.fspath(path) for path in data], "data", "the images", images)
    elif rows is not None and like is not None and columns_of(like):
        found = rows_like(rows, columns_of(like), features=kind == "features", name="data", source=RowSource("data"))
    elif rows is not None and kind in (None, "text"):
        found = rows_data(unlabeled_rows(rows, name="data", source=RowSource("data"), group=group), text=text).train
    elif rows is None and hasattr(data, "__len__") and (strings := as_strings(data)) is not None:
        texts = unlabeled_rows(pa.table({"text": strings}), name="data", source=RowSource("data"))
        found = rows_data(texts, text="text").train
    else:
        found = unlabeled(data, classes, name="data")
    return Data(replace(found, labels=torch.full((len(found),), UNKNOWN), classes=classes))


def columns_of(like: Examples) -> list[Column]:
    """The columns of a table, or of features that were columns of one; else none."""
    if isinstance(like.inputs, TableRows):
        return from_table(like.inputs.table)
    return [Column(name, "numeric", np.empty(0)) for name in like.columns]


def _are_images(data: Any, *, sure: bool) -> bool:
    """Whether the data are a list of paths; sure: strings are known to be paths, and not texts."""
    if not isinstance(data, list | tuple) or not data or not all(isinstance(one, str | os.PathLike) for one in data):
        return False
    return sure or all(is_image_name(os.fspath(one)) for one in data)


def _at_path(path: Path, like: Examples | None, text: str | None, group: str | None, images: dict[str, Any]) -> Examples:
    shown = printable(str(path))
    if not path.exists():
        raise DataError(f"{shown}: no such file or folder")
    if path.is_dir():
        refuse_output(path, wanted="give new inputs")
    if path.suffix.lower() in (".npz", ".npy"):
        arrays = read_arrays(path, single=INPUTS[0])
        key = find_name(arrays, INPUTS)
        if key is None:
            raise DataError(f"{shown}: no inputs under one of the names {', '.join(INPUTS)}; its arrays: {', '.join(arrays)}")
        return unlabeled(arrays[key], [] if like is None else like.classes, name=path.stem)
    known = [] if like is None else columns_of(like)
    if path.suffix.lower() in FILES and known:
        read = table_like(path, known, features=like is not None and like.kind == "features").train
    elif path.suffix.lower() in FILES:
        read = unlabeled_table(path, text=text, group=group, **images).train
    else:
        read = _image_store(path, shown, like, images)
    if like is not None and read.kind != like.kind:
        column = ": name the column of the text with text (--text)" if like.kind == "text" else ""
        raise DataError(f"{shown}: {read.kind}, but {like.name} has {like.kind}{column}")
    return read


def _image_store(path: Path, shown: str, like: Examples | None, images: dict[str, Any]) -> Examples:
    one = is_image_name(path.name) and path.is_file()
    if not one and not path.is_dir() and path.suffix.lower() != ".zip":
        raise DataError(
            f"{shown}: inputs without labels are a folder or .zip of images, image files, an .npz or .npy file, or a file of "
            f"rows ({', '.join(FILES)}){f': {SAVE_AS[path.suffix.lower()]}' if path.suffix.lower() in SAVE_AS else ''}"
        )
    if like is not None and like.kind != "images":
        shape = f" of shape {like.shape}" if like.shape else ""
        raise DataError(f"{shown}: images, but {like.name} has {like.kind}{shape}: give inputs of that kind")
    if one:
        return _image_files(FolderFiles(path.parent), [path.name], path.name, shown, images)
    store: FolderFiles | ZipFiles = FolderFiles(path) if path.is_dir() else ZipFiles(path)
    return _image_files(store, store.listing().files, path.name, shown, images)


def _image_files(store: FolderFiles | ZipFiles, files: Sequence[str], name: str, shown: str, images: dict[str, Any]) -> Examples:
    if not files:
        raise DataError(f"{shown}: no files")
    plan = Pictures(store, [Picture(file, 0, key=printable(file)) for file in files], [shown], printable(name))
    return picture_data(plan, **images).train
