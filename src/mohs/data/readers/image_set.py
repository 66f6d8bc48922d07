"""Images with labels and splits, from any store, as data: read together, so that all splits get one mode and one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mohs._core.errors import DataError
from mohs._core.group_numbers import group_numbers
from mohs.data.decode import Size
from mohs.data.examples import Data, Examples, LeftOut
from mohs.data.image_stores import Store
from mohs.data.images import MEMORY_LIMIT, read_images
from mohs.data.split import SPLITS

LACKS = "a readable image"  # for the note on classes without a readable image


@dataclass(frozen=True)
class Picture:
    """One image to read: its name in the store, class index, split, key, place among all examples (default: as listed), group."""

    name: Any
    label: int
    split: str = "train"
    key: Any = None
    place: int | None = None
    group: Any = None


@dataclass(frozen=True)
class Pictures:
    """The images to read, their classes, what was skipped in each split so far, and whether the images have groups."""

    store: Store
    entries: Sequence[Picture]
    classes: list[Any]
    name: str
    left_out: Sequence[tuple[str, LeftOut]] = ()
    notes: Sequence[str] = field(default=())
    grouped: bool = False


def picture_data(plan: Pictures, *, image_size: int | Size | None = None, memory_limit: int = MEMORY_LIMIT) -> Data:
    """Read the images; unreadable ones are skipped, and it is an error if fewer than two training classes have a readable one."""
    order = list(SPLITS)
    entries = sorted(plan.entries, key=lambda entry: order.index(entry.split))
    read = read_images(plan.store, [entry.name for entry in entries], image_size=image_size, memory_limit=memory_limit)
    kept = [entries[i] for i in read.kept]
    left = [*plan.left_out, *(_left_out(entries[i], one, i) for i, one in sorted(read.left_out.items()))]
    _check_read(plan, entries, kept, [one for _, one in left])
    every = Examples(
        read.inputs,
        torch.tensor([entry.label for entry in kept], dtype=torch.int64),
        plan.classes,
        name=plan.name,
        keys=[entry.key for entry in kept] if kept[0].key is not None else None,
        paths=[plan.store.path(entry.name) for entry in kept],
        groups=group_numbers([entry.group for entry in kept]) if plan.grouped else None,
        sizes=read.sizes,
        notes=[*plan.notes, *read.notes],
    )
    splits = {split: [i for i, entry in enumerate(kept) if entry.split == split] for split in order}
    home = {split: split if rows else "train" for split, rows in splits.items()}  # a split without a readable image
    parts = {
        split: replace(_between(every, rows), left_out=[one for where, one in left if home[where] == split])
        for split, rows in splits.items()
        if rows
    }
    return Data(parts["train"], parts.get("val"), parts.get("test"))


def _left_out(entry: Picture, why: LeftOut, at: int) -> tuple[str, LeftOut]:
    """The split of an image that could not be read, and why, with its key and place."""
    return entry.split, replace(why, key=entry.key, place=at if entry.place is None else entry.place)


def _between(every: Examples, rows: list[int]) -> Examples:
    """The examples at consecutive rows; a tensor is not copied."""
    first, last = rows[0], rows[-1] + 1
    if first == 0 and last == len(every):
        return every
    inputs = every.inputs[first:last] if isinstance(every.inputs, torch.Tensor) else every.inputs.take(torch.tensor(rows))
    keys = list(range(first, last)) if every.keys is None else every.keys[first:last]
    paths = None if every.paths is None else every.paths[first:last]
    sizes, groups = (None if one is None else one[first:last] for one in (every.sizes, every.groups))
    return replace(every, inputs=inputs, labels=every.labels[first:last], keys=keys, paths=paths, sizes=sizes, groups=groups)


def _check_read(plan: Pictures, entries: Sequence[Picture], kept: Sequence[Picture], left: Sequence[LeftOut]) -> None:
    """Validate that two training classes, or the only one, have a readable image."""
    expected = {entry.label for entry in entries if entry.split == "train"}
    found = {entry.label for entry in kept if entry.split == "train"}
    for label in sorted(expected - found) if len(found) < 2 else ():
        own = [entry for entry in entries if entry.split == "train" and entry.label == label]
        paths = {plan.store.path(entry.name) for entry in own}
        first = next((f" (the first: {one.path}: {one.reason})" for one in left if one.path in paths), "")
        which = f" of class {plan.classes[label]!r}" if len(plan.classes) > 1 else ""  # inputs without labels have one
        raise DataError(f"{plan.name}: none of the {len(own)} file(s){which} could be read as an image{first}")
    if not kept:
        raise DataError(f"{plan.name}: no image could be read")
