"""Which examples have the same content, to the bit.

Rows of few columns can agree by chance: a row whose values are all common is likely to have a copy. Such rows are not counted
as copies: with independent columns N · Π p_c(value) rows agree with it by chance, and that must be below ½ (`by_chance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from mohs.issues.by_chance import beyond_chance
from mohs.issues.found import Array

CHUNK = 4096
NARROW = 64  # columns up to which rows may agree by chance


def exact_copies(
    images: Any = None,
    texts: Sequence[str] | None = None,
    table: pa.Table | None = None,
    features: Array | None = None,
    count: int = 0,
) -> Array:
    """A number for the content of each example (N,), the same for the same content; the first that is given counts."""
    if images is not None:
        parts = torch.split(torch.arange(len(images)), CHUNK)
        return contents(one.tobytes() for rows in parts for one in torch.as_tensor(images[rows]).numpy())
    if texts is not None:
        return contents(text.strip().encode("utf-8", "surrogatepass") for text in texts)
    if table is not None:
        return _rows([_codes(column) for column in table.columns], table.num_rows)
    if features is None:
        return np.arange(count)
    number = contents(row.tobytes() for row in np.ascontiguousarray(features))
    if features.shape[1] > NARROW or number.max(initial=-1) + 1 == len(number):
        return number
    return _rows([np.unique(column, return_inverse=True)[1] for column in features.T], len(features))


def contents(rows: Iterable[bytes]) -> Array:
    """The bytes of each example -> a number for each (N,), the same for the same bytes (their hash of 64 bits is kept)."""
    seen: dict[int, int] = {}
    return np.array([seen.setdefault(hash(row), len(seen)) for row in rows], dtype=np.int64)


def _codes(column: pa.ChunkedArray) -> Array:
    """A number for each cell; null is a value too."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    whole = column.combine_chunks().dictionary_encode()
    return np.asarray(whole.indices.fill_null(-1), dtype=np.int64) + 1


def _rows(codes: Sequence[Array], count: int) -> Array:
    """Columns as numbers -> the number of each row's content; a row that may be repeated by chance gets its own number."""
    if not codes:
        return np.arange(count)
    log_expected = np.log(count) + sum(np.log(np.bincount(code)[code] / count) for code in codes)
    number = contents(row.tobytes() for row in np.stack(codes, 1))
    alone = number.max(initial=-1) + 1 + np.arange(count)
    return np.where(beyond_chance(np.asarray(log_expected)), number, alone)
