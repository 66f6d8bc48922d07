"""A data set whose items include their index, so that every batch has the ids of its examples.

    (input, label) -> (input, label, id)          {"input": ..., "label": ...} -> {..., "id": id}
    Data(x, edge_index, y) -> Data(x, edge_index, y, id)          a graph of PyTorch Geometric

The id is the item's index in the wrapped data set, 0..N−1, as `Recorder(N)` expects; shuffling, samplers, workers and
several processes do not change it. Wrap first and take a `Subset` of the result to keep the ids of the whole set; wrap the
`Subset` to number it from 0. Only data sets with a length can be wrapped.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.data import Dataset

from mohs._core.graphs import is_graph


def with_id(item: Any, index: int, *, key: str = "id") -> Any:
    """A tuple or list with the id as its last entry, or a mapping or graph with it under `key`."""
    if is_graph(item):
        if "index" in key or "batch" in key:  # PyTorch Geometric shifts such entries when it joins graphs
            raise ValueError(f"{key!r} cannot be the name of a graph's id: choose another with WithIds(dataset, key=...)")
        if key in item:
            raise ValueError(f"item {index} already has an entry {key!r}: choose another name with WithIds(dataset, key=...)")
        twin = copy.copy(item)
        twin[key] = index
        return twin
    if isinstance(item, Mapping):
        if key in item:
            raise ValueError(f"item {index} already has an entry {key!r}: choose another name with WithIds(dataset, key=...)")
        return {**item, key: index}
    if isinstance(item, tuple | list):
        return (*item, index)
    raise ValueError(f"item {index} must be a tuple, a list, a mapping or a graph to take an id, got {type(item).__name__}")


class WithIds(Dataset[Any]):
    """`dataset` with an id in every item; `key` is its name in items that are mappings."""

    def __init__(self, dataset: Any, *, key: str = "id") -> None:
        if is_graph(dataset):
            raise ValueError("dataset is a single graph: number its nodes as they come, 0 to num_nodes - 1")
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise ValueError(f"dataset must have a length and items by index, got {type(dataset).__name__}")
        self.dataset, self.key = dataset, key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        (place,) = self._places([index])
        return with_id(self.dataset[place], place, key=self.key)

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:  # a DataLoader fetches a whole batch by this method
        places = self._places(indices)
        fetch = getattr(self.dataset, "__getitems__", None)
        items = [self.dataset[place] for place in places] if fetch is None else fetch(places)
        return [with_id(item, place, key=self.key) for item, place in zip(items, places, strict=True)]

    def __repr__(self) -> str:
        return f"WithIds({self.dataset!r}, key={self.key!r})"

    def _places(self, indices: Sequence[Any]) -> list[int]:
        """Indices from 0; negative ones count from the end, as in a list."""
        size = len(self)
        places = [operator.index(index) for index in indices]
        for place in places:
            if not -size <= place < size:
                raise IndexError(f"index {place} is out of range for a data set of {size} items")
        return [place % size for place in places]
