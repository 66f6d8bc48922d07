from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from mohs._core.errors import DataError
from mohs.data.readers.torch_dataset import from_dataset


class Items(Dataset[Any]):
    """A list of items as a data set."""

    def __init__(self, items: list[Any], classes: list[str] | None = None) -> None:
        self.items = items
        if classes is not None:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def image(level: int, size: tuple[int, int] = (6, 5)) -> Image.Image:
    return Image.new("L", size, level)


def test_tensors_are_stacked() -> None:
    x, y = torch.rand(5, 3), torch.tensor([0, 1, 0, 1, 1])
    found = from_dataset(TensorDataset(x, y))
    assert torch.equal(found.inputs, x)  # type: ignore[arg-type]
    assert found.labels.tolist() == y.tolist()
    assert from_dataset(Subset(TensorDataset(x, y), [4, 0]), name="part").name == "part"
    named = from_dataset(Items([{"image": x[i].view(1, 3, 1), "label": i % 2, "id": i} for i in range(4)], ["n", "y"]))
    assert (named.shape, named.classes) == ((1, 3, 1), ["n", "y"])


def test_images_are_read_at_once_or_on_access() -> None:
    items = Items([(image(i), "ab"[i % 2]) for i in range(5)] + [(image(9), None)])
    whole, lazy = from_dataset(items), from_dataset(items, memory_limit=10)
    assert whole.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]  # type: ignore[index, union-attr, call-overload]
    assert whole.shape == (1, 5, 6)
    assert (whole.keys, len(whole.left_out)) == ([0, 1, 2, 3, 4], 1)
    assert not lazy.in_memory
    places = torch.tensor([3, 1])
    assert torch.equal(lazy.inputs[places], whole.inputs[places])
    assert torch.equal(lazy.inputs[places], whole.inputs[places])  # again: nothing was closed
    assert from_dataset(Items([(image(1, (9, 9)), 0), (image(2), 1)]), image_size=4).shape == (1, 4, 4)


def test_tensors_beyond_the_limit_are_read_on_access() -> None:
    x = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    items = Items([(x[i], i % 2) for i in range(6)])
    whole, lazy = from_dataset(items), from_dataset(items, memory_limit=10)
    places = torch.tensor([5, 2])
    assert lazy.shape == whole.shape == (3, 4, 4)
    assert torch.equal(lazy.inputs[places], whole.inputs[places])
    assert torch.equal(lazy.take(places).inputs[torch.tensor([1])], whole.inputs[torch.tensor([2])])
    assert lazy.fingerprint() == from_dataset(items, memory_limit=10).fingerprint()
    other = Items([(x[i] // 2, i % 2) for i in range(6)])
    assert lazy.fingerprint() != from_dataset(other, memory_limit=10).fingerprint()


def test_data_sets_that_cannot_be_read() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(ValueError, match="data must have a length and items by index, got Stream"):
        from_dataset(Stream())
    for items, message in [
        ([], "Items: the data set is empty"),
        ([3], "item 0 must be .input, label., .input, label, id. or a mapping, got int"),
        ([{"sound": "a", "label": 0}], "item 0 has the keys sound, label: an input"),
        ([(torch.zeros(2), 0), (torch.zeros(3), 1)], r"item 1 has shape \(3,\), item 0 \(2,\): give all one shape"),
    ]:
        with pytest.raises(DataError, match=message):
            from_dataset(Items(items))
