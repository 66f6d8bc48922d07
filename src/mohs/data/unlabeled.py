"""Targets without labels: a folder or zip of images in any folders, or an .npz or .npy file of inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from mohs._core.errors import DataError
from mohs.data.domains import UNKNOWN, unlabeled
from mohs.data.examples import Data, Examples
from mohs.data.image_stores import FolderFiles, ZipFiles, printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.readers.arrays import INPUTS, read_npz
from mohs.data.readers.image_set import Picture, Pictures, picture_data


def open_unlabeled(path: str | Path, like: Examples, *, memory_limit: int = MEMORY_LIMIT) -> Data:
    """The inputs at a path as examples of unknown label; images of files come to the size of `like`, whose classes they get."""
    path = Path(path)
    shown = printable(str(path))
    if path.suffix.lower() in (".npz", ".npy"):
        arrays = read_npz(path)
        key = next((key for key in arrays if key.lower() in INPUTS), None)
        if key is None:
            raise DataError(
                f"{shown}: inputs are wanted under one of {', '.join(INPUTS)}; there are {', '.join(arrays) or 'none'}"
            )
        return Data(unlabeled(arrays[key], like.classes, name=path.stem))
    if not path.is_dir() and path.suffix.lower() != ".zip":
        raise DataError(f"{shown}: a folder or .zip of images, or an .npz file, is wanted for an unlabeled target")
    if like.kind != "images":
        raise DataError(f"{shown}: images, but {like.name} has features of shape {like.shape}: give the target's as .npz")
    store: FolderFiles | ZipFiles = FolderFiles(path) if path.is_dir() else ZipFiles(path)
    listing = store.listing()
    if not listing.files:
        raise DataError(f"{shown}: no files")
    plan = Pictures(store, [Picture(file, 0, key=printable(file)) for file in listing.files], [shown], printable(path.name))
    read = picture_data(plan, image_size=(like.shape[1], like.shape[2]), memory_limit=memory_limit).train
    return Data(replace(read, labels=torch.full((len(read),), UNKNOWN), classes=list(like.classes)))
