"""Ids that travel with the batch: a data set whose items carry the number they were fetched by.

    (input, label) -> (input, label, id)          {"input": ..., "label": ...} -> {..., "id": id}

The id is the item's place in the wrapped data set, 0..N−1, what a `Recorder(N)` expects; shuffling, samplers, workers and
several processes leave it as it is. Wrap first and take a `Subset` of the result to keep the numbers of the whole set;
wrap the `Subset` to number it afresh. Only data sets with a length can be wrapped: a stream has no places.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.data import Dataset


def with_id(item: Any, index: int, *, key: str = "id") -> Any:
    """A tuple or list with the id as its last entry, or a mapping with it under `key`."""
    if isinstance(item, Mapping):
        if key in item:
            raise ValueError(f"item {index} has an entry {key!r} already: pick another name with WithIds(dataset, key=...)")
        return {**item, key: index}
    if isinstance(item, tuple | list):
        return (*item, index)
    raise ValueError(f"item {index} must be a tuple, a list or a mapping to take an id, got {type(item).__name__}")


class WithIds(Dataset[Any]):
    """`dataset` with an id in every item; `key` is its name in items that are mappings."""

    def __init__(self, dataset: Any, *, key: str = "id") -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise ValueError(f"dataset must have a length and items by number to give ids, got {type(dataset).__name__}")
        self.dataset, self.key = dataset, key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        (place,) = self._places([index])
        return with_id(self.dataset[place], place, key=self.key)

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:  # a DataLoader asks for a whole batch by this name
        places = self._places(indices)
        fetch = getattr(self.dataset, "__getitems__", None)
        items = [self.dataset[place] for place in places] if fetch is None else fetch(places)
        return [with_id(item, place, key=self.key) for item, place in zip(items, places, strict=True)]

    def __repr__(self) -> str:
        return f"WithIds({self.dataset!r}, key={self.key!r})"

    def _places(self, indices: Sequence[Any]) -> list[int]:
        """Whole numbers from 0; negative ones count from the end, as in a list."""
        size = len(self)
        places = [operator.index(index) for index in indices]
        for place in places:
            if not -size <= place < size:
                raise IndexError(f"index {place} is out of range for a data set of {size} items")
        return [place % size for place in places]
