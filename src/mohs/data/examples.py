"""Examples: inputs, labels and where they came from; what every source gives and what training, scoring and audits take.

An example's id is its place, 0..N−1, in the set it was read into; its key is what its owner calls it (a row number, a
name), its path the file it came from. Inputs are one tensor, images (N, C, H, W) uint8 or features (N, D) floating
point, or `ImageFiles`, which reads an image when it is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from mohs._core.errors import DataError


class Inputs(Protocol):
    """What inputs must offer: a length, the shape of one, and a batch of them by their places."""

    def __len__(self) -> int: ...
    @property
    def shape(self) -> Sequence[int]: ...
    def __getitem__(self, places: Tensor) -> Tensor: ...
    def take(self, places: Tensor, /) -> Inputs:
        """The inputs at these places, to be read as these are."""
        ...

    def fingerprint(self) -> str:
        """A hash that changes with what is read."""
        ...


@dataclass(frozen=True)
class LeftOut:
    """An example that could not be read: where it was and why."""

    path: str
    reason: str


@dataclass(frozen=True, eq=False)
class Examples:
    """N examples of K classes; labels (N,) int64 index `classes`; truth: the labels before noise was added, where known.

    left_out: what could not be read; notes: what was done to the data in reading it that its owner would want to know.
    """

    inputs: Inputs | Tensor
    labels: Tensor
    classes: list[Any]
    name: str = "data"
    keys: Sequence[Any] | None = field(default=None, repr=False)
    paths: Sequence[str] | None = field(default=None, repr=False)
    truth: Tensor | None = field(default=None, repr=False)
    left_out: Sequence[LeftOut] = field(default=(), repr=False)
    notes: Sequence[str] = field(default=(), repr=False)
    _known: str | None = field(default=None, init=False, repr=False)  # the fingerprint of inputs in memory

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise DataError(f"{self.name}: {len(self.inputs)} inputs but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (C, H, W) of an image, (D,) of features."""
        return tuple(self.inputs.shape[1:])

    @property
    def kind(self) -> str:
        """ "images" or "features"."""
        return "images" if len(self.shape) == 3 else "features"

    @property
    def in_memory(self) -> bool:
        return isinstance(self.inputs, Tensor)

    def take(self, places: Tensor) -> Examples:
        """The examples at these places, numbered afresh; keys say what they were (their places, where they had none)."""
        rows = places.tolist()
        keys = rows if self.keys is None else [self.keys[i] for i in rows]
        paths = None if self.paths is None else [self.paths[i] for i in rows]
        inputs = self.inputs[places] if isinstance(self.inputs, Tensor) else self.inputs.take(places)
        truth = None if self.truth is None else self.truth[places]
        return replace(self, inputs=inputs, labels=self.labels[places], keys=keys, paths=paths, truth=truth)

    def relabeled(self, labels: Tensor) -> Examples:
        """The same examples with other labels; the first ones are kept as the truth."""
        return replace(self, labels=labels, truth=self.labels if self.truth is None else self.truth)

    def fingerprint(self) -> str:
        """A hash of labels, classes and inputs (of files: their paths and sizes): the same data give the same on any machine.

        Of inputs in memory it is worked out once: many runs, and the steps of an audit, ask the same examples for it.
        """
        if not self.in_memory:
            return self._hashed()
        if self._known is None:
            object.__setattr__(self, "_known", self._hashed())
        return str(self._known)

    def _hashed(self) -> str:
        digest = hashlib.sha256(repr((self.shape, len(self), self.classes)).encode())
        digest.update(self.labels.numpy().tobytes())
        if isinstance(self.inputs, Tensor):
            digest.update(self.inputs.contiguous().view(torch.uint8).flatten().numpy().data)
        else:
            digest.update(self.inputs.fingerprint().encode())
        return digest.hexdigest()[:16]


def joined(parts: Sequence[Examples], *, name: str | None = None) -> Examples:
    """These examples as one set, in this order; they must share their classes and be in memory."""
    first = parts[0]
    for part in parts[1:]:
        if part.classes != first.classes or part.shape != first.shape:
            raise DataError(f"{part.name} and {first.name} differ in classes or shape: they cannot be put together")
    inputs = [part.inputs for part in parts if isinstance(part.inputs, Tensor)]
    if len(inputs) < len(parts):
        raise DataError("examples that are read from files on access cannot be put together: raise memory_limit")
    return Examples(
        torch.cat(inputs),
        torch.cat([part.labels for part in parts]),
        first.classes,
        name=first.name if name is None else name,
        keys=_chained([part.keys for part in parts]),
        paths=_chained([part.paths for part in parts]),
        truth=None if any(part.truth is None for part in parts) else torch.cat([part.truth for part in parts]),  # type: ignore[misc]
        left_out=[one for part in parts for one in part.left_out],
        notes=list(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _chained(lists: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    return None if any(one is None for one in lists) else [value for one in lists for value in one or ()]


@dataclass(frozen=True, eq=False)
class Data:
    """A data set as it was found: the training examples, and validation and test where it has them."""

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
        """The splits there are, by name: train, val, test."""
        every = {"train": self.train, "val": self.val, "test": self.test}
        return {name: examples for name, examples in every.items() if examples is not None}

    @property
    def left_out(self) -> list[LeftOut]:
        """What could not be read, of all splits."""
        return [one for examples in self.splits.values() for one in examples.left_out]

    @property
    def notes(self) -> list[str]:
        """What was done to the data in reading it, of all splits, each said once."""
        return list(dict.fromkeys(note for examples in self.splits.values() for note in examples.notes))
