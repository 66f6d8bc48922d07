"""Blocks: the rows of a source measured a block at a time, each block written to a part file with a done marker.

The executor chooses which process measures a block; the rows, ids and files of a block do not depend on the choice. A block
that is done is not measured again. Memory holds a batch of the source and the columns of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.executor import Executor
from mohs._core.part_files import PartFile, Tally
from mohs.hardness.classes import encode
from mohs.hardness.measure import Columns, host, joined
from mohs.hardness.shards import Source, Unit

BLOCK_ROWS = 65_536
Batch = Mapping[str, Any]
Measure = Callable[[Batch, Tensor, int], tuple[Mapping[str, Any], Tally]]  # a batch, its classes, its first row -> columns, sums


@dataclass(frozen=True)
class Block:
    """Consecutive units, as many as make BLOCK_ROWS rows."""

    number: int
    units: tuple[Unit, ...]

    @property
    def first(self) -> int:
        """Its first row among all rows of the source."""
        return self.units[0].first


def blocks_of(units: Sequence[Unit]) -> list[Block]:
    """The units in blocks."""
    groups: list[list[Unit]] = []
    room = 0  # rows that still fit in the last block
    for unit in units:
        if unit.rows > room:
            groups.append([])
            room = BLOCK_ROWS
        groups[-1].append(unit)
        room -= unit.rows
    return [Block(number, tuple(group)) for number, group in enumerate(groups)]


@dataclass(frozen=True, eq=False)
class Measured:
    """A block that was measured: the number of its rows, its tally, and the error that cut it short."""

    rows: int
    tally: Tally
    error: str | None = None


@dataclass(frozen=True, eq=False)
class BlockWork:
    """Measures a block of the source into the folder.

    Attributes:
        source: The source.
        classes: Class names in the order of the head's rows.
        measure: Function of a batch that returns its columns, and sums to be added over the batches of a block.
        tally: Function of a block's columns and its first row that returns what else is combined over all blocks.
        folder: Where the parts are.
        keys: Columns of the source to read besides the labels.
    """

    source: Source
    classes: Sequence[Any]
    measure: Measure
    tally: Callable[[Columns, int], Tally]
    folder: Path
    keys: tuple[str, ...] = ("logits", "features", "ids", "paths")

    def __call__(self, block: Block) -> Measured:
        part = PartFile(self.folder, block.number)
        done = part.tally()
        if done is not None:
            return Measured(sum(unit.rows for unit in block.units), done)
        parts: list[Columns] = []
        sums: Tally = {}
        error = None
        try:
            for unit in block.units:
                columns, own = self.columns(unit)
                parts.append(columns)
                sums = add_tallies(sums, own)
        except DataError as problem:
            error = str(problem)
        if not parts:
            return Measured(0, {}, error)
        columns = joined(parts)
        part.write([pa.table(columns)])
        tally = self.tally(columns, block.first) | sums
        if error is None:
            part.finish(tally)
        return Measured(len(columns["id"]), tally, error)

    def columns(self, unit: Unit) -> tuple[Columns, Tally]:
        """The columns of a unit's rows, measured batch by batch, and their sums."""
        parts: list[Columns] = []
        sums: Tally = {}
        first = unit.first
        for batch in self.source.read(unit, "labels", *self.keys):
            index = torch.from_numpy(self._encoded(batch["labels"], unit, first - unit.first))
            given = {key: batch[plural] for key, plural in (("id", "ids"), ("path", "paths")) if plural in batch}
            rows = np.arange(first, first + len(index))
            columns, own = self.measure(batch, index, first)
            parts.append(host({"id": rows, **columns, **given}))
            sums = add_tallies(sums, own)
            first += len(index)
        return joined(parts), sums

    def _encoded(self, labels: Any, unit: Unit, skipped: int) -> np.ndarray[Any, Any]:
        try:
            first = unit.start + skipped
            return encode(labels, num_classes=len(self.classes), classes=self.classes, first_row=first)[0]
        except ValueError as error:
            raise DataError(f"{unit.file}: {error}") from error


def run_blocks(work: BlockWork, blocks: Sequence[Block], executor: Executor) -> Iterator[Measured]:
    """Measure the blocks; yields them in order, up to and including the first that was cut short by an error."""
    for measured in executor.map(work, blocks):
        yield measured
        if measured.error is not None:
            return


def add_tallies(a: Tally, b: Tally) -> Tally:
    """The sums of both, entry by entry; the first may be empty."""
    return {name: a[name] + values for name, values in b.items()} if a else b


def class_names(source: Source, classes: Sequence[Any] | None = None) -> list[Any]:
    """The class names in the order of the head's rows; all labels are checked before any work."""
    if classes is not None:
        for unit in source.units:
            _encoded(source, unit, classes)
        return list(classes)
    seen = [np.unique(_labels(source, unit)) for unit in source.units]
    every = np.unique(np.concatenate(seen))
    if source.num_classes == 0:  # no head: the classes are the distinct labels
        return [value.item() if isinstance(value, np.generic) else value for value in every]
    try:
        return encode(every, num_classes=source.num_classes)[1]
    except ValueError as error:
        for unit in source.units:  # to name the file and the row of a bad label
            _encoded(source, unit, None)
        raise DataError(f"{source.name}: {error}") from error


def _encoded(source: Source, unit: Unit, classes: Sequence[Any] | None) -> None:
    number = source.num_classes or len(classes or ())
    try:
        encode(_labels(source, unit), num_classes=number, classes=classes, first_row=unit.start)
    except ValueError as error:
        raise DataError(f"{unit.file}: {error}") from error


def _labels(source: Source, unit: Unit) -> np.ndarray[Any, Any]:
    return np.concatenate([batch["labels"] for batch in source.read(unit, "labels")])
