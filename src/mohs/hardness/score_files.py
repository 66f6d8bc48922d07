"""Score files that need not fit in memory: one hardness table from a source of units, by one process or several.

First the rows of every block are measured and written to a part file (`blocks`). Then the columns that need all rows are added
and the parts are copied, in order, into the table, which is renamed to its final name when complete. These columns come from
tallies of the blocks: the shortest and longest features of each class, and the margins of up to RANKED rows, which give the
grades. The grades are exact up to that many rows, and `Scored.notes` says so beyond. Memory does not grow with the number of
rows. A killed process leaves its parts next to the table; the same call resumes from the blocks that are done.

Under torch.distributed rank r takes blocks r, r + W, r + 2W, ..., and rank 0 writes the table (the folder must be shared).
Rows whose logits hold NaN or +∞, and repeated ids, do not prevent the table from being written: `Scored.problem` names the first.
If a unit cannot be read, the rows scored before it are kept as a `.partial` table, which the error names.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from mohs._core.distributed import from_first, ranks
from mohs._core.errors import DataError
from mohs._core.executor import Executor, Torchrun
from mohs._core.part_files import PartFile, Tally
from mohs.hardness.blocks import BlockWork, Measured, blocks_of, class_names, run_blocks
from mohs.hardness.classes import encode
from mohs.hardness.human import agreement_of, easiest
from mohs.hardness.measure import Columns, measure, repeated, table_of
from mohs.hardness.neighbors import NONE, directions_of, nearest_among, shared
from mohs.hardness.ranks import Ranks, drawn_rows
from mohs.hardness.score import as_tensor, linear
from mohs.hardness.shards import Source
from mohs.hardness.table import check_table_path, table_writer

HARDEST = 5
NEIGHBORS = 10
RANKED = 2**20  # maximum number of rows whose margins give the grades
COMPARED = 2**21  # with at most this many rows, all ids are compared for duplicates


@dataclass(frozen=True)
class Scored:
    """Result: the file, its number of rows, the hardest of them, the first problem in the data, and what is approximate."""

    out: Path
    rows: int
    unscored: int
    hardest: list[dict[str, Any]]
    problem: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class References:
    """Reference examples among which neighbors are searched: directions (R, D), rows in rising order (R,) and labels (R,)."""

    directions: torch.Tensor
    rows: torch.Tensor
    labels: torch.Tensor

    @staticmethod
    def of(features: torch.Tensor, rows: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> References:
        """References from features (R, D), without those that have no direction."""
        directions, usable = directions_of(features.float())
        return References(directions[usable], torch.from_numpy(rows)[usable], torch.from_numpy(labels)[usable])

    def agreement(self, features: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Share of the nearest references with the label of each of these examples (n,), which are these rows (n,)."""
        near = nearest_among(directions_of(features)[0], self.directions, self.rows, k=NEIGHBORS, own=rows)
        at = torch.searchsorted(self.rows, near.clamp(min=0)).clamp(max=len(self.rows) - 1)
        return shared(torch.where(near == NONE, NONE, self.labels[at]), index)


@dataclass(frozen=True, eq=False)
class ByHead:
    """Measurements of a batch by its logits, or by its features and the head."""

    head: tuple[torch.Tensor, torch.Tensor | None] | None
    references: References | None

    def __call__(self, batch: Mapping[str, Any], index: torch.Tensor, first: int) -> tuple[dict[str, torch.Tensor], Tally]:
        x = as_tensor(batch["features"]) if "features" in batch else None
        z = as_tensor(batch["logits"]) if self.head is None or x is None or "logits" in batch else linear(x, *self.head)
        columns = measure(z, index, x, None if self.head is None else self.head[0])
        if self.references is not None and x is not None:
            columns["neighbors"] = self.references.agreement(x, index, torch.arange(first, first + len(x)))
        return columns, {}


@dataclass(frozen=True, eq=False)
class ScoreTally:
    """Statistics to combine over the blocks: the margins of drawn rows, the range of norms in each class, the hardest rows."""

    rows: int
    classes: int
    human: bool = False

    def __call__(self, columns: Columns, first: int) -> Tally:
        margin = np.asarray(columns["margin"])
        drawn = drawn_rows(self.rows, RANKED)
        here = drawn[np.searchsorted(drawn, first) : np.searchsorted(drawn, first + len(margin))] - first
        hardest = np.argsort(margin, kind="stable")[:HARDEST]
        hardest = hardest[~np.isnan(margin[hardest])]
        tally: Tally = {"margins": margin[here], "hardest": first + hardest, "least": margin[hardest]}
        tally["unscored"] = first + np.flatnonzero(np.isnan(margin))[:1]
        if self.human:
            tally |= {"confidences": np.asarray(columns["confidence"])[here], "labels": np.asarray(columns["label"])[here]}
        tally["missing"] = np.isnan(margin).sum(keepdims=True)
        return tally | (norm_ranges(columns["norm"], columns["label"], self.classes) if "norm" in columns else {})


def norm_ranges(norms: Any, labels: Any, classes: int) -> Tally:
    """The least and largest finite norm of each class (K,); +∞ and −∞ for a class without one."""
    norms, labels = np.asarray(norms), np.asarray(labels)
    known = np.isfinite(norms)
    low, high = np.full(classes, np.inf), np.full(classes, -np.inf)
    np.minimum.at(low, labels[known], norms[known])
    np.maximum.at(high, labels[known], norms[known])
    return {"low": low, "high": high}


def norm_within(norms: Any, labels: Any, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Norms (n,) scaled from 0 to 1 between the least and the largest of each label's class (K,); NaN where not finite."""
    norms, labels = np.asarray(norms), np.asarray(labels)
    with np.errstate(invalid="ignore"):
        span = np.where(high == low, 1.0, high - low)
        scaled = (norms - low.astype(norms.dtype)[labels]) / span.astype(norms.dtype)[labels]
    return np.where(np.isfinite(norms), scaled, np.nan).astype(norms.dtype)


def score_files(
    source: Source,
    out: Path,
    *,
    classes: Sequence[Any] | None = None,
    neighbors: bool = False,
    human: bool = False,
    references: int = 50_000,
    seed: int = 0,
    executor: Executor | None = None,
) -> Scored:
    """Write the table of a source as .parquet or .csv, with neighbors searched among up to `references` examples.

    human: Add the share of people who would choose the label, by a model that was trained on votes (`human`).
    """
    check_table_path(out)
    if neighbors and "features" not in source.keys:
        raise DataError(f"{source.name}: neighbors need features; add them, or leave neighbors out")
    names = class_names(source, source.classes if classes is None else classes)
    found = drawn_references(source, names, references, seed) if neighbors else None
    folder = parts_folder(out, source, [names, neighbors, references, seed, *(["human"] if human else [])])
    work = BlockWork(source, names, ByHead(source.head, found), ScoreTally(source.rows, len(names), human), folder)
    folder.mkdir(exist_ok=True)
    measured = list(run_blocks(work, blocks_of(source.units), executor or Torchrun()))
    message = measured[-1].error
    target = out if message is None else out.with_stem(f"{out.stem}.partial")
    first = ranks()[0] == 0
    scored: Scored | None = from_first(_merge(source, names, measured, folder, target) if first and measured[0].rows else None)
    if first:
        shutil.rmtree(folder)
    if message is not None:
        raise DataError(message if scored is None else f"{message}; {scored.rows} row(s) scored so far are kept in {scored.out}")
    assert scored is not None
    return scored


def drawn_references(source: Source, classes: Sequence[Any], count: int, seed: int) -> References:
    """The references: all rows, or a sample drawn with the seed."""
    rows = drawn_rows(source.rows, count, seed=seed)
    found = source.take(rows, "features", "labels")
    labels = encode(found["labels"], num_classes=len(classes), classes=classes)[0]
    return References.of(as_tensor(found["features"]), rows, labels)


def parts_folder(out: Path, source: Source, settings: Sequence[Any]) -> Path:
    """Folder of the parts, next to the table; its name is a hash of the source and the settings."""
    text = json.dumps([source.fingerprint(), list(settings)], default=str)
    return out.with_name(f"{out.name}.parts-{hashlib.sha256(text.encode()).hexdigest()[:8]}")


def _merge(source: Source, classes: Sequence[Any], measured: Sequence[Measured], folder: Path, out: Path) -> Scored:
    """Copy the parts into the table, with the columns that needed all rows."""
    tallies = [one.tally for one in measured if one.rows]
    add = extra_columns(tallies, len(classes))
    least = np.concatenate([one["least"] for one in tallies])
    hardest = np.concatenate([one["hardest"] for one in tallies])[np.argsort(least, kind="stable")[:HARDEST]]
    shown: dict[int, dict[str, Any]] = {}
    ids: list[pa.ChunkedArray] = []
    start, message = 0, None
    compared = source.rows <= COMPARED
    with table_writer(out) as write:
        for number, _ in enumerate(tallies):
            raw = PartFile(folder, number).read()
            table = table_of({**{name: raw.column(name) for name in raw.column_names}, **add(raw)}, classes)
            write(table)
            if compared:
                ids.append(raw.column("id"))
            elif "ids" in source.keys and message is None:
                message = repeated(raw.column("id"))
            stop = start + raw.num_rows
            shown |= {int(at): _shown(table, int(at) - start) for at in hardest if start <= at < stop}
            start = stop
    if compared and "ids" in source.keys:
        message = repeated(pa.chunked_array([chunk for column in ids for chunk in column.chunks]))
    unscored = np.concatenate([one["unscored"] for one in tallies])
    missing = int(sum(one["missing"][0] for one in tallies))
    problem = _problem(source, _row_of(source, int(unscored[0])) if missing else None, missing, message)
    return Scored(out, start, missing, [shown[int(at)] for at in hardest], problem, notes_of(source))


def extra_columns(tallies: Sequence[Tally], classes: int) -> Callable[[pa.Table], Columns]:
    """A function from a part to the columns that depend on all rows: the grade, the norm within the class, and human."""
    margins = Ranks.of(-np.concatenate([one["margins"] for one in tallies]).astype(np.float64))
    low, high = (
        (np.min([one["low"] for one in tallies], 0), np.max([one["high"] for one in tallies], 0))
        if "low" in tallies[0]
        else (None, None)
    )

    means = None
    if "confidences" in tallies[0]:
        confidences, labels = (np.concatenate([one[name] for one in tallies]) for name in ("confidences", "labels"))
        means = easiest(confidences, labels, classes)

    def add(part: pa.Table) -> Columns:
        grades = margins.grade(-part.column("margin").to_numpy().astype(np.float64))
        made: Columns = {"mohs": pa.array(grades, mask=grades == 0)}
        if low is not None and high is not None:
            made["norm_in_class"] = norm_within(part.column("norm"), part.column("label"), low, high)
        if means is not None:
            made["human"] = agreement_of(part.column("confidence"), part.column("label"), means)
        return made

    return add


def notes_of(source: Source) -> tuple[str, ...]:
    """What is approximate for a source of this size."""
    notes = []
    if source.rows > RANKED:
        notes.append(f"grades are places among {RANKED:,} rows drawn at random")
    if source.rows > COMPARED and "ids" in source.keys:
        notes.append("ids were compared within blocks of rows only")
    return tuple(notes)


def _row_of(source: Source, row: int) -> tuple[str, int]:
    """The file of a row among all rows, and its place there."""
    unit = next(unit for unit in source.units if row < unit.first + unit.rows)
    return unit.file, unit.start + row - unit.first


def _problem(source: Source, first: tuple[str, int] | None, unscored: int, message: str | None) -> str | None:
    """Message about the first row without scores or the first repeated id."""
    if first is not None:
        key = "logits" if "logits" in source.keys else "features"
        return (
            f"{first[0]}: {key} of row {first[1]} make no finite logits (NaN or +inf); "
            f"{unscored} such row(s) are kept in the table, without scores"
        )
    return None if message is None else f"{source.name}: {message}"


def _shown(table: pa.Table, row: int) -> dict[str, Any]:
    return {name: table.column(name)[row].as_py() for name in ("id", "label", "predicted", "margin")}
