"""Targets without labels: a folder or zip of images, at any depth, or an .npz or .npy file of inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from mohs._core.arrays import read_arrays
from mohs._core.errors import DataError
from mohs._core.vocabulary import INPUTS, find_name
from mohs.data.domains import UNKNOWN, unlabeled
from mohs.data.examples import Data, Examples
from mohs.data.image_stores import FolderFiles, ZipFiles, printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.readers.image_set import Picture, Pictures, picture_data


def open_unlabeled(path: str | Path, like: Examples, *, memory_limit: int = MEMORY_LIMIT) -> Data:
    """The inputs at a path as examples without labels, with the classes of `like`; image files are resized to its size."""
    path = Path(path)
    shown = printable(str(path))
    if path.suffix.lower() in (".npz", ".npy"):
        arrays = read_arrays(path, single=INPUTS[0])
        key = find_name(arrays, INPUTS)
        if key is None:
            raise DataError(f"{shown}: no inputs under one of the names {', '.join(INPUTS)}; its arrays: {', '.join(arrays)}")
        return Data(unlabeled(arrays[key], like.classes, name=path.stem))
    if not path.is_dir() and path.suffix.lower() != ".zip":
        raise DataError(f"{shown}: an unlabeled target is a folder or .zip of images, or an .npz or .npy file")
    if like.kind != "images":
        raise DataError(f"{shown}: images, but {like.name} has {like.kind} of shape {like.shape}: give the target as .npz")
    store: FolderFiles | ZipFiles = FolderFiles(path) if path.is_dir() else ZipFiles(path)
    listing = store.listing()
    if not listing.files:
        raise DataError(f"{shown}: no files")
    plan = Pictures(store, [Picture(file, 0, key=printable(file)) for file in listing.files], [shown], printable(path.name))
    read = picture_data(plan, image_size=(like.shape[1], like.shape[2]), memory_limit=memory_limit).train
    return Data(replace(read, labels=torch.full((len(read),), UNKNOWN), classes=list(like.classes)))
