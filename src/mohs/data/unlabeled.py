"""Inputs without labels: a folder or zip of images, an .npz or .npy file, or a file of rows with texts or paths of images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mohs._core.arrays import read_arrays
from mohs._core.errors import DataError
from mohs._core.folders import refuse_output
from mohs._core.vocabulary import INPUTS, find_name
from mohs.data.columns import Column, from_table
from mohs.data.domains import UNKNOWN, unlabeled
from mohs.data.examples import Data, Examples
from mohs.data.image_stores import FolderFiles, ZipFiles, printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.readers.image_set import Picture, Pictures, picture_data
from mohs.data.readers.tabular import table_like, unlabeled_table
from mohs.data.readers.tabular_file import FILES
from mohs.data.row_inputs import TableRows


def open_unlabeled(path: str | Path, like: Examples, *, text: str | None = None, memory_limit: int = MEMORY_LIMIT) -> Data:
    """The inputs at a path as examples without labels.

    Args:
        path: Where they are.
        like: Examples with the classes and the kind of inputs that these must have; image files are resized to their size,
            columns are found by their names.
        text: Column of the text, in a file of rows.
        memory_limit: Bytes of pixels held in memory.
    """
    path = Path(path)
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
        return Data(unlabeled(arrays[key], like.classes, name=path.stem))
    images: dict[str, Any] = {"memory_limit": memory_limit}
    images |= {"image_size": (like.shape[1], like.shape[2])} if like.kind == "images" else {}
    if path.suffix.lower() in FILES:
        known = columns_of(like)
        if known:
            read = table_like(path, known, features=like.kind == "features").train
        else:
            read = unlabeled_table(path, text=text, **images).train
    else:
        read = _image_files(path, shown, like, images)
    if read.kind != like.kind:
        column = ": name the column of the text with text (--text)" if like.kind == "text" else ""
        raise DataError(f"{shown}: {read.kind}, but {like.name} has {like.kind}{column}")
    return Data(replace(read, labels=torch.full((len(read),), UNKNOWN), classes=list(like.classes)))


def columns_of(like: Examples) -> list[Column]:
    """The columns of a table, or of features that were columns of one; else none."""
    if isinstance(like.inputs, TableRows):
        return from_table(like.inputs.table)
    return [Column(name, "numeric", np.empty(0)) for name in like.columns]


def _image_files(path: Path, shown: str, like: Examples, images: dict[str, Any]) -> Examples:
    if not path.is_dir() and path.suffix.lower() != ".zip":
        raise DataError(
            f"{shown}: inputs without labels are a folder or .zip of images, an .npz or .npy file, or a file of rows "
            f"({', '.join(FILES)})"
        )
    if like.kind != "images":
        shape = f" of shape {like.shape}" if like.shape else ""
        raise DataError(f"{shown}: images, but {like.name} has {like.kind}{shape}: give inputs of that kind")
    store: FolderFiles | ZipFiles = FolderFiles(path) if path.is_dir() else ZipFiles(path)
    listing = store.listing()
    if not listing.files:
        raise DataError(f"{shown}: no files")
    plan = Pictures(store, [Picture(file, 0, key=printable(file)) for file in listing.files], [shown], printable(path.name))
    return picture_data(plan, **images).train
