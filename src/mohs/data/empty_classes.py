"""Classes without an example, for example because no image can be read, are removed with a note that names them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mohs.data.examples import Data, Examples, LeftOut

SHOWN = 5


def without_empty_classes(data: Data, *, lacks: str) -> Data:
    """The data without classes that have no training example; unchanged if fewer than two classes would remain.

    Args:
        data: Data that were read.
        lacks: What an example of an empty class lacks, for the note: "a readable image".
    """
    train = data.train
    has = torch.bincount(train.labels, minlength=len(train.classes)) > 0
    kept = has.nonzero().flatten().tolist()
    if len(kept) < 2 or bool(has.all()):
        return data
    number = torch.where(has, has.cumsum(0) - 1, -1)
    notes = [*train.notes]
    if not train.numeric and train.separator is None:  # not for sets of classes, and numbers
        empty = [repr(one) for one, there in zip(train.classes, has.tolist(), strict=True) if not there]
        shown = ", ".join(empty[:SHOWN]) + (f" and {len(empty) - SHOWN} more" if len(empty) > SHOWN else "")
        classes = f"class {shown} was" if len(empty) == 1 else f"{len(empty)} classes were"
        notes.append(f"{classes} left out, without {lacks}" + ("" if len(empty) == 1 else f": {shown}"))
    names = [train.classes[one] for one in kept]
    parts = {split: _of_classes(part, number, names, notes) for split, part in data.splits.items()}
    return Data(**{split: part for split, part in parts.items() if len(part)})


def _of_classes(part: Examples, number: Tensor, names: list[object], notes: list[str]) -> Examples:
    """The examples of the remaining classes, with their new numbers, without all others."""
    stays = number[part.labels] >= 0
    lost = [
        LeftOut(_where(part, place), f"class {part.classes[int(part.labels[place])]!r} has no training example")
        for place in (~stays).nonzero().flatten().tolist()
    ]
    found = part if bool(stays.all()) else part.take(stays.nonzero().flatten())
    return replace(found, labels=number[found.labels], classes=names, left_out=[*part.left_out, *lost], notes=notes)


def _where(part: Examples, place: int) -> str:
    if part.paths is not None:
        return str(part.paths[place])
    return f"{part.name} {place if part.keys is None else part.keys[place]}"
