"""Score files that need not fit in memory: one hardness table from a source of units, by one process or several.

First the rows of every unit are measured and written to a part file, one row group per unit. Then the columns that need all rows
(the grade, the norm within the class) are computed from the margins, norms and labels, and the units are copied, in order, into
the table, which is renamed to its final name when complete. Memory holds a batch, a unit's scores and about 40 bytes per row.

Under torch.distributed rank r takes units r, r + W, r + 2W, ..., and rank 0 writes the table (the folder must be shared).
Rows whose logits hold NaN or +∞, and repeated ids, do not prevent the table from being written: `Scored.problem` names the first.
If a unit cannot be read, the units scored so far are kept as a `.partial` table, which the error names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from mohs._core.distributed import gathered, ranks
from mohs._core.errors import DataError
from mohs.hardness.classes import encode
from mohs.hardness.measure import Columns, host, joined, measure, overall, repeated, table_of
from mohs.hardness.neighbors import NONE, directions_of, nearest_among, shared
from mohs.hardness.score import as_tensor, linear
from mohs.hardness.shards import Source, Unit
from mohs.hardness.table import check_table_path, table_writer

HARDEST = 5
NEIGHBORS = 10


@dataclass(frozen=True)
class Scored:
    """Result: the file, its number of rows, the hardest of them, and the first problem in the data."""

    out: Path
    rows: int
    unscored: int
    hardest: list[dict[str, Any]]
    problem: str | None = None


@dataclass(frozen=True)
class Plan:
    """Shared by all processes before the first unit: rows of the head, class names, and the candidates for neighbors."""

    source: Source
    index: np.ndarray[Any, Any]
    classes: list[Any]
    references: tuple[torch.Tensor, torch.Tensor] | None = None


def score_files(
    source: Source,
    out: Path,
    *,
    classes: Sequence[Any] | None = None,
    neighbors: bool = False,
    references: int = 50_000,
    seed: int = 0,
) -> Scored:
    """Write the table of a source as .parquet or .csv; with neighbors searched among up to this many references."""
    check_table_path(out)
    if neighbors and "features" not in source.keys:
        raise DataError(f"{source.name}: neighbors need features; add them, or leave neighbors out")
    index, names = _labels(source, source.classes if classes is None else classes)
    plan = Plan(source, index, names, _drawn(source, references, seed) if neighbors else None)
    rank, number = ranks()
    part = out.with_name(f"{out.name}.part{os.getpid()}-{rank}")
    try:
        everyone = gathered((part, *_write_part(plan, source.units[rank::number], part)))
        message = next(filter(None, (words for _, _, words in everyone)), None)
        done = [unit for i, unit in enumerate(source.units) if i // number < everyone[i % number][1]]
        target = out if message is None else out.with_stem(f"{out.stem}.partial")
        merged = _merge(plan, done, [name for name, _, _ in everyone], target) if rank == 0 and done else None
        scored: Scored | None = gathered(merged)[0]
    finally:
        part.unlink(missing_ok=True)
    if message is not None:
        raise DataError(message if scored is None else f"{message}; {scored.rows} row(s) scored so far are kept in {scored.out}")
    assert scored is not None
    return scored


def _labels(source: Source, classes: Sequence[Any] | None) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """The row of the head for every row of the source, and the class names: all labels are checked before any work."""
    if classes is None:
        seen = [np.unique(_all(source, unit, "labels")) for unit in source.units]
        try:
            _, classes = encode(np.unique(np.concatenate(seen)), num_classes=source.num_classes)
        except ValueError as error:
            for unit in source.units:  # to name the file and the row of a bad label
                _encoded(source, unit, None)
            raise DataError(f"{source.name}: {error}") from error
    return np.concatenate([_encoded(source, unit, classes) for unit in source.units]), list(classes)


def _encoded(source: Source, unit: Unit, classes: Sequence[Any] | None) -> np.ndarray[Any, Any]:
    labels = _all(source, unit, "labels")
    try:
        return encode(labels, num_classes=source.num_classes, classes=classes, first_row=unit.start)[0]
    except ValueError as error:
        raise DataError(f"{unit.file}: {error}") from error


def _all(source: Source, unit: Unit, key: str) -> np.ndarray[Any, Any]:
    return np.concatenate([batch[key] for batch in source.read(unit, key)])


def _drawn(source: Source, references: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Directions (R, D) of the references, all rows or a sample drawn with the seed, and which rows they are (R,)."""
    rows = torch.randperm(source.rows, generator=torch.Generator().manual_seed(seed))[:references].sort().values
    found = []
    for unit in source.units:
        first = unit.first
        for batch in source.read(unit, "features"):
            size = len(batch["features"])
            own = rows[(rows >= first) & (rows < first + size)] - first
            found.append(as_tensor(batch["features"][own.numpy()]).float())
            first += size
    directions, usable = directions_of(torch.cat(found))
    return directions[usable], rows[usable]


def _write_part(plan: Plan, units: Sequence[Unit], part: Path) -> tuple[int, str | None]:
    """Measure these units into a part file, one row group each; the number done, and the error that stopped it."""
    writer: pyarrow.parquet.ParquetWriter | None = None
    done = 0
    try:
        for unit in units:
            table = pa.table(_unit_columns(plan, unit))
            writer = writer or pyarrow.parquet.ParquetWriter(part, table.schema)
            writer.write_table(table, row_group_size=unit.rows)
            done += 1
    except DataError as error:
        return done, str(error)
    finally:
        if writer is not None:
            writer.close()
    return done, None


def _unit_columns(plan: Plan, unit: Unit) -> Columns:
    """The measurements of a unit's rows, batch by batch."""
    parts: list[Columns] = []
    named: dict[str, list[Any]] = {}
    first = unit.first
    head = plan.source.head
    for batch in plan.source.read(unit, "logits", "features", "ids", "paths"):
        x = as_tensor(batch["features"]) if "features" in batch else None
        z = as_tensor(batch["logits"]) if head is None or x is None or "logits" in batch else linear(x, *head)
        index = torch.from_numpy(plan.index[first : first + z.shape[0]])
        columns = measure(z, index, x, None if head is None else head[0])
        if plan.references is not None and x is not None:
            columns["neighbors"] = _agreement(plan, x, index, first)
        parts.append(host(columns))
        for key in ("ids", "paths"):
            named.setdefault(key, []).append(pa.array(batch[key])) if key in batch else None
        first += z.shape[0]
    given = {key.removesuffix("s"): pa.concat_arrays(arrays) for key, arrays in named.items()}
    return {"id": np.arange(unit.first, first), **joined(parts), **given}


def _agreement(plan: Plan, features: torch.Tensor, index: torch.Tensor, first: int) -> torch.Tensor:
    assert plan.references is not None
    near = nearest_among(directions_of(features)[0], *plan.references, k=NEIGHBORS, first_row=first)
    theirs = torch.where(near == NONE, NONE, torch.from_numpy(plan.index)[near.clamp(min=0)])
    return shared(theirs, index)


class _Parts:
    """The units' measurements, in the part files of all processes."""

    def __init__(self, units: Sequence[Unit], files: Sequence[Path]) -> None:
        opened = [pyarrow.parquet.ParquetFile(file) if file.exists() else None for file in files]
        self._place = {unit: (opened[i % len(files)], i // len(files)) for i, unit in enumerate(units)}

    def read(self, unit: Unit, *names: str) -> Columns:
        file, group = self._place[unit]
        assert file is not None
        table = file.read_row_group(group, columns=list(names) or None)
        return {name: table.column(name) for name in table.column_names}


def _merge(plan: Plan, units: Sequence[Unit], files: Sequence[Path], out: Path) -> Scored:
    """Copy the units from the part files into the table, with the columns that needed all rows."""
    parts = _Parts(plan.source.units, files)
    needed = ("margin", "label") if plan.source.head is None else ("margin", "label", "norm")
    whole = joined([host(parts.read(unit, *needed)) for unit in units])
    known = np.flatnonzero(~np.isnan(whole["margin"]))
    hardest = known[np.argsort(whole["margin"][known], kind="stable")[:HARDEST]]
    extra = overall(whole)
    shown: dict[int, dict[str, Any]] = {}
    ids, start = [], 0
    with table_writer(out) as write:
        for unit in units:
            own = slice(start, start + unit.rows)
            raw = parts.read(unit)
            table = table_of({**raw, **{name: values[own] for name, values in extra.items()}}, plan.classes)
            write(table)
            ids += raw["id"].chunks
            shown |= {int(at): _shown(table, int(at) - start) for at in hardest if own.start <= at < own.stop}
            start = own.stop
    missing = np.flatnonzero(np.isnan(whole["margin"]))
    first = _row_of(units, int(missing[0])) if missing.size else None
    problem = _problem(plan.source, first, int(missing.size), pa.chunked_array(ids))
    return Scored(out, start, int(missing.size), [shown[int(at)] for at in hardest], problem)


def _row_of(units: Sequence[Unit], at: int) -> tuple[str, int]:
    """The file, and the row in it, of the row at this place among the units."""
    for unit in units:
        if at < unit.rows:
            return unit.file, unit.start + at
        at -= unit.rows
    raise IndexError(at)


def _problem(source: Source, first: tuple[str, int] | None, unscored: int, ids: pa.ChunkedArray) -> str | None:
    """Message about the first row without scores or the first repeated id."""
    if first is not None:
        key = "logits" if "logits" in source.keys else "features"
        return (
            f"{first[0]}: {key} of row {first[1]} make no finite logits (NaN or +inf); "
            f"{unscored} such row(s) are kept in the table, without scores"
        )
    message = repeated(ids) if "ids" in source.keys else None
    return None if message is None else f"{source.name}: {message}"


def _shown(table: pa.Table, row: int) -> dict[str, Any]:
    return {name: table.column(name)[row].as_py() for name in ("id", "label", "predicted", "margin")}
