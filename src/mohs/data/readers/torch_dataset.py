"""Any torch `Dataset` with a length whose items are (input, label), (input, label, id) or mappings of them.

Inputs are Pillow images, strings, or tensors or arrays of one shape; they are read into memory where they fit, else on access.
Items are read one after another, so the data set need not be thread-safe. Pass it without random augmentation: every access
would give different pixels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.vocabulary import INPUTS, LABELS, TEXTS, find_name
from mohs.data.decode import Size
from mohs.data.examples import Examples, LeftOut
from mohs.data.images import MEMORY_LIMIT
from mohs.data.labels import class_numbers, classes_in, label_values
from mohs.data.readers.arrays import as_inputs, from_arrays
from mohs.data.readers.image_set import Picture, Pictures, picture_data

SAMPLED = 64  # number of items that a fingerprint reads
FLOAT = 4  # bytes


class DatasetImages:
    """The Pillow images of a data set, or of a list of images; names are places."""

    threads = 1

    def __init__(self, items: Any, name: str) -> None:
        self.items, self.name = items, name

    def image(self, name: int, /) -> Image.Image:
        found = self.items[name]
        image = found if isinstance(found, Image.Image) else parts_of(found, name)[0]
        return image.copy()  # the caller closes it

    def size(self, name: int, /) -> int:
        width, height = self.image(name).size
        return width * height

    def path(self, name: int, /) -> str:
        return f"{self.name}[{name}]"


class DatasetInputs:
    """The inputs of a data set, read on access."""

    def __init__(self, dataset: Any, places: Sequence[int], shape: Sequence[int], name: str) -> None:
        self.dataset, self.places, self.name, self._shape = dataset, places, name, tuple(shape)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> Sequence[int]:
        return (len(self.places), *self._shape)

    def __getitem__(self, places: Tensor) -> Tensor:
        own = [self.places[i] for i in torch.as_tensor(places).flatten().tolist()]
        if not own:
            return torch.empty(0, *self._shape)
        rows = [torch.as_tensor(parts_of(self.dataset[place], place)[0]) for place in own]
        return as_inputs(torch.stack(rows), name=self.name)[0]

    def take(self, places: Tensor, /) -> DatasetInputs:
        """The inputs at these places."""
        return DatasetInputs(self.dataset, [self.places[i] for i in places.tolist()], self._shape, self.name)

    def fingerprint(self) -> str:
        """A hash of the places and of some of the inputs."""
        digest = hashlib.sha256(repr((self._shape, list(self.places))).encode())
        some = np.unique(np.linspace(0, len(self) - 1, min(SAMPLED, len(self))).astype(int))
        digest.update(self[torch.from_numpy(some)].contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()


def from_dataset(
    dataset: Any,
    *,
    name: str | None = None,
    image_size: int | Size | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Examples:
    """The examples of a data set; its `classes`, where it has them, name the classes 0..K−1."""
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ValueError(f"data must have a length and items by index, got {type(dataset).__name__}")
    name = type(dataset).__name__ if name is None else name
    if not len(dataset):
        raise DataError(f"{name}: the data set is empty")
    first = parts_of(dataset[0], 0)[0]
    image = isinstance(first, Image.Image)
    entries = first.width * first.height * 3 if isinstance(first, Image.Image) else FLOAT * int(np.prod(np.shape(first)))
    fits = isinstance(first, str) or entries * len(dataset) <= memory_limit
    inputs, labels = [], []
    for place in range(len(dataset)):
        given, label = parts_of(dataset[place], place)
        labels.append(label.item() if hasattr(label, "item") and getattr(label, "ndim", 1) == 0 else label)
        if fits:
            inputs.append(given)
    classes = _declared(dataset)
    if image:
        return _images(DatasetImages(inputs if fits else dataset, name), labels, classes, image_size, memory_limit)
    if isinstance(first, str):
        return from_arrays(inputs, labels, classes=classes, name=name)
    if fits:
        return from_arrays(_stacked(inputs, name), labels, classes=classes, name=name)
    return _lazily(dataset, labels, classes, tuple(as_inputs(_stacked([first], name))[0].shape[1:]), name)


def parts_of(item: Any, place: int) -> tuple[Any, Any]:
    """The input and the label of an item."""
    if isinstance(item, Mapping):
        key, label = find_name(item, (*INPUTS, *TEXTS)), find_name(item, LABELS)
        if key is None or label is None:
            raise DataError(
                f"item {place} has the keys {', '.join(map(str, item))}: an input ({', '.join((*INPUTS, *TEXTS))}) "
                f"and a label ({', '.join(LABELS)}) are expected; if the items are rows of a table, give a data frame of them"
            )
        return item[key], item[label]
    if isinstance(item, tuple | list) and len(item) in (2, 3):
        return item[0], item[1]
    raise DataError(f"item {place} must be (input, label), (input, label, id) or a mapping, got {type(item).__name__}")


def _declared(dataset: Any) -> list[Any] | None:
    classes = getattr(dataset, "classes", None)
    return list(classes) if isinstance(classes, list | tuple) else None


def _images(
    store: DatasetImages, labels: list[Any], classes: list[Any] | None, image_size: int | Size | None, memory_limit: int
) -> Examples:
    values, missing = label_values(labels, store.name)
    names = classes_in(values[~missing]) if classes is None else classes
    kept = np.flatnonzero(~missing).tolist()
    numbers = class_numbers(values[~missing], names, store.name).tolist()
    entries = [Picture(place, number, key=place) for place, number in zip(kept, numbers, strict=True)]
    left_out = [("train", LeftOut(store.path(row), "no label")) for row in np.flatnonzero(missing).tolist()]
    plan = Pictures(store, entries, names, store.name, left_out)
    return picture_data(plan, image_size=image_size, memory_limit=memory_limit).train


def _stacked(inputs: list[Any], name: str) -> Tensor:
    tensors = [torch.as_tensor(one) for one in inputs]
    shape = tensors[0].shape
    for place, one in enumerate(tensors):
        if one.shape != shape:
            raise DataError(f"{name}: item {place} has shape {tuple(one.shape)}, item 0 {tuple(shape)}: give all one shape")
    return torch.stack(tensors)


def _lazily(dataset: Any, labels: list[Any], classes: list[Any] | None, shape: tuple[int, ...], name: str) -> Examples:
    values, missing = label_values(labels, name)
    kept = np.flatnonzero(~missing).tolist()
    names = classes_in(values[~missing]) if classes is None else classes
    left_out = [LeftOut(f"{name}[{row}]", "no label") for row in np.flatnonzero(missing).tolist()]
    numbers = class_numbers(values[~missing], names, name)
    return Examples(DatasetInputs(dataset, kept, shape, name), numbers, names, name=name, keys=kept, left_out=left_out)
