"""Inputs that are not tensors: texts, and rows of a table with columns of several types.

    Texts       inputs[places] is a list of strings                shape (N,)
    TableRows   inputs[places] is an Arrow table                   shape (N, C), C columns

Networks do not read either; embeddings and the judges of the audit do. The types of a table's columns encode their roles: see
`columns.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from torch import Tensor

from mohs.data.cells import is_text

END = b"\x1e"  # between the cells that a fingerprint reads


class Texts:
    """Strings by place."""

    kind = "text"

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = list(strings)

    def __len__(self) -> int:
        return len(self.strings)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.strings),)

    def __getitem__(self, places: Tensor | Sequence[int]) -> list[str]:
        return [self.strings[place] for place in as_places(places)]

    def take(self, places: Tensor, /) -> Texts:
        """The texts at these places."""
        return Texts(self[places])

    def joined(self, others: Sequence[Texts]) -> Texts:
        """These texts and the others after them."""
        return Texts([*self.strings, *(one for other in others for one in other.strings)])

    def fingerprint(self) -> str:
        """A hash of the strings."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        digest = hashlib.sha256()
        for one in self.strings:
            digest.update(one.encode("utf-8", "surrogatepass") + END)
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"Texts({len(self)})"


class TableRows:
    """Rows of an Arrow table by place."""

    kind = "table"

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.table.num_rows, self.table.num_columns)

    def __getitem__(self, places: Tensor | Sequence[int]) -> pa.Table:
        return self.table.take(pa.array(as_places(places), pa.int64()))

    def take(self, places: Tensor, /) -> TableRows:
        """The rows at these places."""
        return TableRows(self[places])

    def joined(self, others: Sequence[TableRows]) -> TableRows:
        """These rows and the others after them."""
        return TableRows(pa.concat_tables([self.table, *(other.table for other in others)]).unify_dictionaries())

    def fingerprint(self) -> str:
        """A hash of the columns' names, types and cells, however the table is divided into chunks."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        digest = hashlib.sha256()
        for name, column in zip(self.table.column_names, self.table.columns, strict=True):
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            digest.update(repr((name, str(kind))).encode("utf-8", "surrogatepass"))
            digest.update(np.packbits(np.asarray(column.is_null())).tobytes())
            if is_text(kind):
                cells = column.cast(kind).fill_null("").to_pylist()
                digest.update(END.join(cell.encode("utf-8", "surrogatepass") for cell in cells))
            else:
                values = column.cast(pa.int64()) if pa.types.is_temporal(kind) else column
                values = values.cast(pa.int8()) if pa.types.is_boolean(kind) else values
                digest.update(np.ascontiguousarray(values.fill_null(0).to_numpy(zero_copy_only=False)).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"TableRows({len(self)} of {', '.join(self.table.column_names)})"


def as_places(places: Tensor | Sequence[int]) -> list[int]:
    """Places as a list of integers."""
    return places.flatten().tolist() if isinstance(places, Tensor) else [int(place) for place in places]
