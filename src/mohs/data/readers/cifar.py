"""CIFAR-10 and CIFAR-100: the official Python batches, or zip files of lossless strips of a hundred images.

    ROOT/cifar-10-batches-py/{data_batch_1..5, test_batch}      ROOT/cifar-100-python/{train, test}
    ROOT/cifar10-train-1.zip, ...-2.zip, cifar10-test.zip       strip-NNNN.webp (images stacked), labels.npy, classes.txt

Images are in the official order, which other labels of them (CIFAR-10N, CIFAR-10H) follow. A. Krizhevsky, "Learning
multiple layers of features from tiny images" (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.arrays import read_arrays
from mohs._core.errors import DataError
from mohs._core.validation import check_choice
from mohs.data.examples import Data, Examples
from mohs.data.image_stores import THREADS, ZipFiles
from mohs.data.readers.batch_pickle import read_batch
from mohs.data.readers.cifar_names import CIFAR10, CIFAR100, CIFAR100_GROUPS

SIDE = 32
TEN = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
HUNDRED = {"train": ["train"], "test": ["test"]}


def cifar10(root: str | Path) -> Data:
    """CIFAR-10: 50,000 and 10,000 images (N, 3, 32, 32)."""
    root = Path(root)
    home = next((one for one in (root / "cifar-10-batches-py", root) if (one / "data_batch_1").exists()), None)
    if home is not None:
        return _official(home, TEN, "labels", CIFAR10, "cifar10")
    return strips(root, "cifar10", CIFAR10)


def cifar100(root: str | Path, *, labels: str = "fine") -> Data:
    """CIFAR-100 with its 100 fine or 20 coarse labels."""
    check_choice("labels", labels, ("fine", "coarse"))
    root = Path(root)
    classes = CIFAR100 if labels == "fine" else list(CIFAR100_GROUPS)
    home = next((one for one in (root / "cifar-100-python", root) if (one / "train").is_file()), None)
    if home is not None:
        return _official(home, HUNDRED, f"{labels}_labels", classes, "cifar100")
    data = strips(root, "cifar100", CIFAR100)
    return data if labels == "fine" else Data(_coarse(data.train), test=None if data.test is None else _coarse(data.test))


def strips(root: Path, stem: str, classes: Sequence[str]) -> Data:
    """The files `stem`-train*.zip and `stem`-test*.zip of a folder, in the order of their names."""
    parts: dict[str, Examples] = {}
    for split in ("train", "test"):
        files = sorted(root.glob(f"{stem}-{split}*.zip"))
        if not files and split == "train":
            raise DataError(
                f"{root}: {stem} not found: neither the official batches (cifar-10-batches-py, cifar-100-python) "
                f"nor {stem}-train*.zip"
            )
        if files:
            read = [read_strips(file) for file in files]
            images, labels = torch.cat([x for x, _ in read]), torch.cat([y for _, y in read])
            _check(images, labels, classes, files[0])
            parts[split] = Examples(images, labels, list(classes), name=stem)
    return Data(parts["train"], test=parts.get("test"))


def strip_part(file: Path) -> Data:
    """One zip file of strips, with the classes it names."""
    images, labels = read_strips(file)
    store = ZipFiles(file)
    named = store.read("classes.txt").decode().split() if "classes.txt" in store.archive().namelist() else CIFAR10
    _check(images, labels, named, file)
    return Data(Examples(images, labels, list(named), name=file.stem))


def is_strips(file: Path) -> bool:
    """Whether a zip file holds strips."""
    return {"labels.npy", "strip-0000.webp"} <= set(ZipFiles(file).archive().namelist())


def read_strips(file: Path) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels (N,) of one zip file."""
    store = ZipFiles(file)
    names = store.archive().namelist()
    if "labels.npy" not in names:
        raise DataError(f"{file}: labels.npy is missing: not a zip file of strips")

    def pixels(name: str) -> np.ndarray[Any, Any]:
        try:
            with store.image(name) as image:
                return np.asarray(image.convert("RGB")).reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2)
        except Exception as error:  # decoders may raise any error
            raise DataError(f"{store.path(name)}: cannot be read as a strip of {SIDE} × {SIDE} images: {error}") from error

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(pixels, sorted(name for name in names if name.endswith(".webp"))))
    (stored,) = read_arrays(store.path("labels.npy"), content=store.read("labels.npy")).values()
    labels = stored.astype(np.int64)
    images = np.concatenate(found) if found else np.empty((0, 3, SIDE, SIDE), np.uint8)
    if len(images) != len(labels):
        raise DataError(f"{file}: {len(images)} images but {len(labels)} labels")
    return torch.from_numpy(images), torch.from_numpy(labels)


def _official(home: Path, files: dict[str, list[str]], key: str, classes: Sequence[str], name: str) -> Data:
    parts: dict[str, Examples] = {}
    for split, stems in files.items():
        if split == "test" and not (home / stems[0]).exists():
            continue
        read = [_batch(home / stem, key) for stem in stems]
        images, labels = torch.cat([x for x, _ in read]), torch.cat([y for _, y in read])
        _check(images, labels, classes, home / stems[0])
        parts[split] = Examples(images, labels, list(classes), name=name)
    return Data(parts["train"], test=parts.get("test"))


def _batch(path: Path, key: str) -> tuple[Tensor, Tensor]:
    if not path.exists():
        raise DataError(f"{path}: this batch is missing: download the data set again")
    batch = read_batch(path)
    if "data" not in batch or key not in batch:
        raise DataError(f"{path}: data and {key} are expected, it has {', '.join(batch)}")
    pixels = np.asarray(batch["data"])
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3 * SIDE * SIDE:
        raise DataError(f"{path}: data must be (N, {3 * SIDE * SIDE}) bytes, got {pixels.dtype} {pixels.shape}")
    return torch.from_numpy(pixels.copy()).reshape(-1, 3, SIDE, SIDE), torch.tensor(batch[key], dtype=torch.int64)


def _check(images: Tensor, labels: Tensor, classes: Sequence[str], file: Path) -> None:
    if len(images) != len(labels):
        raise DataError(f"{file}: {len(images)} images but {len(labels)} labels")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise DataError(f"{file}: labels from {int(labels.min())} to {int(labels.max())}, outside 0..{len(classes) - 1}")


def _coarse(examples: Examples) -> Examples:
    place = {fine: i for i, group in enumerate(CIFAR100_GROUPS.values()) for fine in group}
    table = torch.tensor([place[fine] for fine in CIFAR100])
    return Examples(examples.inputs, table[examples.labels], list(CIFAR100_GROUPS), name=examples.name)
