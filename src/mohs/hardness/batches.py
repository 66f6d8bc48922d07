"""Batches of any data set, in its order, divided among processes.

An item is (input, label), (input, label, id) or a mapping: its label under one of LABELS, an id under one of IDS, a path under
one of PATHS, and the input under one of INPUTS; without any of these, all other entries are passed to the model by keyword
(`pixel_values`, `input_ids`). A graph of PyTorch Geometric is the input itself, with its label in `y`; a single graph is a batch
of nodes. Inputs that are mappings, tuples or lists are the model's keywords or arguments.

A data set, or a DataLoader that samples one in order, at random or by DistributedSampler, is read in the data set's own order,
each process its own batches. Any other loader is iterated by every process, which keeps the batches of its rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from mohs._core.graphs import collate_graphs, is_graph
from mohs._core.vocabulary import IDS, INPUTS, LABELS, PATHS, find_name

WALKS = (SequentialSampler, RandomSampler, DistributedSampler)  # samplers that visit the data set once each, in some order


@dataclass(frozen=True)
class Batch:
    """Some rows: the number of the first, the model's arguments, and labels, ids and paths."""

    start: int
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    labels: Any
    ids: Any = None
    paths: Any = None

    def __post_init__(self) -> None:
        if getattr(self.labels, "ndim", 1) == 0 or not hasattr(self.labels, "__len__"):
            raise ValueError(f"data gives one example at a time (at row {self.start}), not batches: pass its Dataset")

    def __len__(self) -> int:
        return len(self.labels)


def batches(data: Any, *, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
    """The batches of this process, each with the number of its first row."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if is_graph(data):
        if rank == 0:
            yield unpack(data, 0)
        return
    if isinstance(data, tuple) and all(hasattr(part, "shape") for part in data):
        raise ValueError("data must be a Dataset or a DataLoader, got a tuple of arrays: wrap tensors in a TensorDataset")
    loader = data if isinstance(data, DataLoader) else None
    source = data if loader is None else loader.dataset
    if not isinstance(source, IterableDataset) and (loader is None or _walks(loader)):
        yield from _own_batches(source, loader, (loader.batch_size or 1) if loader else batch_size, rank, ranks)
        return
    start = 0
    for turn, items in enumerate(loader or DataLoader(source, batch_size=batch_size)):
        batch = unpack(items, start)
        if turn % ranks == rank:
            yield batch
        start += len(batch)


def _walks(loader: DataLoader[Any]) -> bool:
    return type(loader.batch_sampler) is BatchSampler and isinstance(loader.sampler, WALKS)


def _own_batches(source: Any, loader: DataLoader[Any] | None, size: int, rank: int, ranks: int) -> Iterator[Batch]:
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise ValueError(f"data must be a Dataset or a DataLoader, got {type(source).__name__}")
    rows = [range(start, min(start + size, len(source))) for start in range(0, len(source), size)][rank::ranks]
    same = {} if loader is None else {name: getattr(loader, name) for name in ("collate_fn", "num_workers", "worker_init_fn")}
    if loader is None and len(source) and is_graph(source[0]):
        same = {"collate_fn": collate_graphs}
    for own, items in zip(rows, DataLoader(source, batch_sampler=rows, **same), strict=True):  # type: ignore[arg-type]
        yield unpack(items, own.start)


def unpack(items: Any, start: int) -> Batch:
    """Split a batch of the loader into its parts."""
    if isinstance(items, Mapping):
        return _unpack_mapping(items, start)
    if is_graph(items):
        return replace(_unpack_mapping(items.to_dict(), start), arguments=(items,), keywords={})
    if not isinstance(items, Sequence) or len(items) not in (2, 3):
        what = f"{len(items)} parts" if isinstance(items, Sequence) else type(items).__name__
        raise ValueError(f"data must give (input, label), (input, label, id) or a mapping, got {what} at row {start}")
    given, labels, *ids = items
    return Batch(start, *_arguments(given), labels, ids[0] if ids else None)


def _unpack_mapping(items: Mapping[str, Any], start: int) -> Batch:
    left = dict(items)
    found = []
    for keys in (LABELS, IDS, PATHS):
        key = find_name(left, keys)
        found.append(None if key is None else left.pop(key))
    if found[0] is None:
        raise ValueError(f"data gives no label at row {start}: of the keys {', '.join(items)} one must be {' or '.join(LABELS)}")
    single = find_name(left, INPUTS)
    arguments, keywords = ((), left) if single is None else _arguments(left[single])
    return Batch(start, arguments, keywords, *found)


def _arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(given, Mapping):
        return (), dict(given)
    return (tuple(given) if isinstance(given, tuple | list) else (given,)), {}
