"""The part of a block: a Parquet file and a done marker, so that work on many blocks resumes after the last that is done.

FOLDER/00017.parquet     the rows of block 17
FOLDER/00017.npz         its tally (arrays that are combined over all blocks), written last: the block is done
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mohs._core.arrays import read_arrays
from mohs._core.files import written_whole

Tally = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class PartFile:
    """The files of a block."""

    folder: Path
    number: int

    @property
    def table(self) -> Path:
        """Its rows."""
        return self.folder / f"{self.number:05}.parquet"

    @property
    def marker(self) -> Path:
        """Its tally, which is there if the block is done."""
        return self.folder / f"{self.number:05}.npz"

    def tally(self) -> Tally | None:
        """The tally; None if the block is not done."""
        return read_arrays(self.marker) if self.marker.exists() else None

    def write(self, tables: Iterable[pa.Table]) -> None:
        """Write the tables one after another, completely or not at all; without a table there is no file."""
        pieces = iter(tables)
        first = next(pieces, None)
        if first is None:
            return
        with written_whole(self.table, sync=False) as file, pyarrow.parquet.ParquetWriter(file, first.schema) as writer:
            writer.write_table(first)
            for piece in pieces:
                writer.write_table(piece)

    def read(self) -> pa.Table:
        """Its rows, all in memory."""
        return pyarrow.parquet.read_table(self.table)

    def finish(self, tally: Tally) -> None:
        """Mark the block as done."""
        with written_whole(self.marker, sync=False) as file, file.open("wb") as opened:
            np.savez(opened, **tally)  # type: ignore[arg-type]
