"""Examples: inputs, labels and their origin; returned by every reader, and the input of training, scoring and audits.

An example's id is its index, 0..N−1, in the set it was read into; its key is the user's name for it (a row number, a name),
its path the file it came from. Inputs are one of five kinds:

    images      uint8 (N, C, H, W): a tensor, or `ImageFiles`, which decodes an image on access
    features    floating point (N, D): a tensor
    text        strings: `Texts`
    table       rows with columns of several types: `TableRows`
    predictions a model's scores instead of inputs: `Predictions`
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.hardness.annotators import Votes

KINDS = ("images", "features", "text", "table", "predictions")


class Inputs(Protocol):
    """Inputs that are not one tensor: a length, a shape (N, ...), and a batch by places (a tensor; list or table for rows)."""

    def __len__(self) -> int: ...
    @property
    def shape(self) -> Sequence[int]: ...
    def __getitem__(self, places: Tensor) -> Any: ...
    def take(self, places: Tensor, /) -> Inputs:
        """The inputs at these places, read the same way."""
        ...

    def fingerprint(self) -> str:
        """A hash that changes with the inputs."""
        ...


@dataclass(frozen=True)
class LeftOut:
    """An example that was skipped: its location and the reason; its key, and its place among all examples, if it has one."""

    path: str
    reason: str
    key: Any = field(default=None, compare=False, repr=False)
    place: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """N examples of K classes.

    Attributes:
        inputs: images, features, texts or rows of a table.
        labels: class indices (N,), int64.
        classes: names of the classes.
        name: name of the data set.
        keys: the user's id of each example, such as a row number.
        paths: the file of each example.
        truth: labels before noise was added, where known.
        votes: labels that several people gave, where known.
        separator: separator of the names in a class if every class is a set of names, for examples with several labels.
        groups: numbers (N,) of groups of examples that belong together, the same in all splits (`groups.py`).
        sizes: height and width (N, 2) of the images as stored, where they were read from files.
        left_out: examples that were skipped, with the reason.
        notes: what the reader changed or dropped.
        columns: names of the features, where they were columns of a table.
        label_column: name of the column that the labels were read from.
    """

    inputs: Inputs | Tensor
    labels: Tensor
    classes: list[Any]
    name: str = "data"
    keys: Sequence[Any] | None = None
    paths: Sequence[str] | None = None
    truth: Tensor | None = None
    votes: Votes | None = None
    separator: str | None = None
    groups: Tensor | None = None
    sizes: Tensor | None = None
    left_out: Sequence[LeftOut] = ()
    notes: Sequence[str] = ()
    columns: Sequence[str] = ()
    label_column: str = ""
    _known: str | None = field(default=None, init=False)  # the fingerprint of inputs in memory

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise DataError(f"{self.name}: {len(self.inputs)} inputs but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Examples({self.about})"

    @property
    def about(self) -> str:
        """A description in one line: "photos: 400 images (3 × 64 × 64) of 7 classes"."""
        shape = " × ".join(map(str, self.shape))
        plural = "" if shape == "1" else "s"
        inputs = {
            "images": f"images ({shape})",
            "features": f"rows of {shape} feature{plural}",
            "text": "texts",
            "table": f"rows of {shape} column{plural}",
            "predictions": f"predictions ({shape})",
        }
        labels = "with numbers as labels" if self.numeric else f"of {len(self.classes):,} classes"
        return f"{self.name}: {len(self):,} {inputs[self.kind]} {labels}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input, which is (C, H, W) for images, (D,) for features, () for texts, (C,) for rows with C columns."""
        return tuple(self.inputs.shape[1:])

    @property
    def kind(self) -> str:
        """The kind of inputs, "images", "features", "text" or "table"."""
        return str(getattr(self.inputs, "kind", "images" if len(self.shape) == 3 else "features"))

    @property
    def numeric(self) -> bool:
        """Whether labels are numbers, the targets of a regression: class i is then the number classes[i]."""
        return bool(self.classes) and isinstance(self.classes[0], float)

    @property
    def in_memory(self) -> bool:
        """Whether the inputs are one tensor."""
        return isinstance(self.inputs, Tensor)

    def take(self, places: Tensor) -> Examples:
        """The examples at these places, renumbered from 0; keys keep their old names (their old places by default)."""
        rows = places.tolist()
        keys = rows if self.keys is None else [self.keys[i] for i in rows]
        paths = None if self.paths is None else [self.paths[i] for i in rows]
        inputs = self.inputs[places] if isinstance(self.inputs, Tensor) else self.inputs.take(places)
        truth, sizes, groups = (None if one is None else one[places] for one in (self.truth, self.sizes, self.groups))
        votes = None if self.votes is None else self.votes.take(places.numpy())
        kept = {"keys": keys, "paths": paths, "truth": truth, "sizes": sizes, "votes": votes, "groups": groups}
        return replace(self, inputs=inputs, labels=self.labels[places], **kept)  # type: ignore[arg-type]

    def relabeled(self, labels: Tensor) -> Examples:
        """The same examples with other labels; the original labels are kept as the truth."""
        return replace(self, labels=labels, truth=self.labels if self.truth is None else self.truth)

    def fingerprint(self) -> str:
        """A hash of labels, classes and inputs (for files: their paths and sizes), the same on every machine.

        Groups are excluded: decisions on labels are valid whatever the groups. It is cached for a tensor, since many runs and the
        steps of an audit use it.
        """
        if not self.in_memory:
            return self._hashed()
        if self._known is None:
            object.__setattr__(self, "_known", self._hashed())
        return str(self._known)

    def _hashed(self) -> str:
        digest = hashlib.sha256(repr((self.shape, len(self), self.classes)).encode())
        digest.update(self.labels.numpy().tobytes())
        if self.votes is not None:
            for part in (self.votes.example, self.votes.annotator, self.votes.label, self.votes.count):
                digest.update(part.tobytes())
        if isinstance(self.inputs, Tensor):
            digest.update(self.inputs.contiguous().view(torch.uint8).flatten().numpy().data)
        else:
            digest.update(self.inputs.fingerprint().encode())
        return digest.hexdigest()[:16]


def joined(parts: Sequence[Examples], *, name: str | None = None) -> Examples:
    """These examples as one set, in this order; they must share their classes and be in memory."""
    first = parts[0]
    for part in parts[1:]:
        if part.classes != first.classes or part.shape != first.shape or part.kind != first.kind:
            raise DataError(f"{part.name} and {first.name} differ in classes or shape: they cannot be concatenated")
    return Examples(
        _joined_inputs([part.inputs for part in parts]),
        torch.cat([part.labels for part in parts]),
        first.classes,
        name=first.name if name is None else name,
        keys=_chained([part.keys for part in parts]),
        paths=_chained([part.paths for part in parts]),
        truth=_stacked([part.truth for part in parts]),
        groups=_apart([part.groups for part in parts]),
        sizes=_stacked([part.sizes for part in parts]),
        left_out=[one for part in parts for one in part.left_out],
        notes=list(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _joined_inputs(inputs: Sequence[Any]) -> Any:
    if all(isinstance(one, Tensor) for one in inputs):
        return torch.cat(list(inputs))
    if all(hasattr(one, "joined") for one in inputs):
        return inputs[0].joined(inputs[1:])
    raise DataError("examples that are decoded on access cannot be concatenated: raise memory_limit")


def _stacked(tensors: Sequence[Tensor | None]) -> Tensor | None:
    known = [one for one in tensors if one is not None]
    return torch.cat(known) if len(known) == len(tensors) else None


def _apart(groups: Sequence[Tensor | None]) -> Tensor | None:
    """Groups of several sets, whose numbers were given in each set, as groups of all: no group is in two sets."""
    known = [torch.unique(one, return_inverse=True)[1] for one in groups if one is not None]
    first = np.cumsum([0, *(int(one.max()) + 1 for one in known)])
    return torch.cat([one + int(start) for one, start in zip(known, first, strict=False)]) if len(known) == len(groups) else None


def _chained(lists: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    return None if any(one is None for one in lists) else [value for one in lists for value in one or ()]


def groups_hash(groups: Tensor) -> str:
    """A hash of which examples (N,) belong together."""
    return hashlib.sha256(groups.numpy().tobytes()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: training examples, and validation and test examples where it has such splits."""

    train: Examples
    val: Examples | None = None
    test: Examples | None = None

    @property
    def name(self) -> str:
        return self.train.name

    @property
    def classes(self) -> list[Any]:
        return self.train.classes

    @property
    def splits(self) -> dict[str, Examples]:
        """The existing splits by name (train, val, test)."""
        every = {"train": self.train, "val": self.val, "test": self.test}
        return {name: examples for name, examples in every.items() if examples is not None}

    @property
    def left_out(self) -> list[LeftOut]:
        """Skipped examples of all splits."""
        return [one for examples in self.splits.values() for one in examples.left_out]

    @property
    def notes(self) -> list[str]:
        """Notes of all splits, without repetition."""
        return list(dict.fromkeys(note for examples in self.splits.values() for note in examples.notes))

    def fingerprint(self) -> str:
        """The fingerprints of the splits, and a hash of the training examples' groups if there are any, joined by dashes."""
        groups = [] if self.train.groups is None else [groups_hash(self.train.groups)]
        return "-".join([*(part.fingerprint() for part in self.splits.values()), *groups])
