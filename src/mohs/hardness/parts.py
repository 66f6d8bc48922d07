"""Examples with several labels, of classes, tokens or pixels: every labeled part is a separate row.

    several classes   logits (N, K), labels (N, K) of 0 and 1      rows (0, z_k) of two classes, "no" and "yes": z_k against 0
    positions         logits (N, K, d1, ...), labels (N, d1, ...)  rows of K classes, one per token or pixel
    sequences         lists of logits (T_i, K) and labels (T_i,)   the same, for sequences of different lengths

Parts are numbered 0..P−1: the class k, or the place in the flattened labels. Part j of example i has the id i·P + j, as in
`Recorder(N, positions=P)`, or "NAME:j" if ids are names. Labels of −100 are left out. An example is as suspect as its worst part
(`by_example`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from mohs.hardness.scores import with_grade
from mohs.hardness.table import as_table, column
from mohs.margin import NO_LABEL

Array = np.ndarray[Any, Any]
BINARY = ("no", "yes")  # classes of the rows where an example has several classes


@dataclass(frozen=True, eq=False)
class Parts:
    """The labeled parts of all examples: logits (R, K), labels, example and place (R,), and the largest number of parts P."""

    logits: Tensor
    labels: Array
    example: Array
    place: Array
    number: int

    def ids(self, ids: Array) -> Array:
        """The ids of the examples (N,) -> distinct ids of the rows (R,)."""
        return id_of_part(ids[self.example], self.place, self.number)


def several_classes(logits: Sequence[int], labels: Sequence[int]) -> bool:
    """Whether labels of this shape, for logits of that shape (N, K), are indicators of every class."""
    return len(labels) == 2 and tuple(labels) == tuple(logits)


def parts_of(logits: Any, labels: Any) -> Parts:
    """The parts of examples by their logits and labels, in the order of the examples.

    Args:
        logits: (N, K), (N, K, d1, ...), (N, d1, ..., K) if only this fits, or a list of (T, K).
        labels: (N, K), (N, d1, ...), or a list of (T,).
    """
    if isinstance(logits, list | tuple):
        return _sequences(logits, labels)
    labels = np.asarray(labels)
    if several_classes(logits.shape, labels.shape):
        outside = ~np.isin(labels, (0, 1, NO_LABEL))
        if outside.any():
            row, k = map(int, np.argwhere(outside)[0])
            raise ValueError(
                f"labels[{row}, {k}] is {labels[row, k]}: where an example has several classes, give 0, 1 or {NO_LABEL}"
            )
        logits = torch.stack([torch.zeros_like(logits), logits], -1)
        labels = labels.astype(np.int64)
    elif labels.shape == (logits.shape[0], *logits.shape[2:]):
        logits = logits.movedim(1, -1)
    elif labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"labels must have shape (N, d1, ...) for logits (N, K, d1, ...), got {labels.shape} for {tuple(logits.shape)}"
        )
    kept, number = labels.reshape(-1) != NO_LABEL, max(1, labels[:1].size)
    example, place = np.divmod(np.flatnonzero(kept), number)
    rows = logits.reshape(-1, logits.shape[-1])
    return Parts(rows if kept.all() else rows[torch.from_numpy(kept)], labels.reshape(-1)[kept], example, place, number)


def _sequences(logits: Sequence[Any], labels: Any) -> Parts:
    """The tokens of sequences of different lengths."""
    if len(logits) != len(labels) or not len(labels):
        raise ValueError(f"logits and labels must be lists of one array per sequence, got {len(logits)} and {len(labels)}")
    own = [np.asarray(one) for one in labels]
    if len(logits[0].shape) != 2:
        raise ValueError("a list of logits must hold an array (T, K) for each sequence; give (N, K) as an array or a tensor")
    for i, (z, y) in enumerate(zip(logits, own, strict=True)):
        if y.ndim != 1 or len(z.shape) != 2 or z.shape[0] != len(y) or z.shape[1] != logits[0].shape[1]:
            raise ValueError(
                f"sequence {i}: logits must have shape (T, {logits[0].shape[1]}) for labels (T,), "
                f"got {tuple(z.shape)} and {y.shape}"
            )
    joined = np.concatenate([y for y in own if len(y)] or own)  # an empty list has no integers
    rows = torch.cat([torch.as_tensor(z) for z in logits])
    example = np.repeat(np.arange(len(own)), [len(y) for y in own])
    place = np.concatenate([np.arange(len(y)) for y in own])
    kept = np.array([True] * len(joined)) if joined.dtype.kind not in "iu" else joined != NO_LABEL
    return Parts(rows[torch.from_numpy(kept)], joined[kept], example[kept], place[kept], max(1, max(len(y) for y in own)))


def id_of_part(ids: Array, place: Array, number: int) -> Array:
    """The ids of the examples (R,), the places of their parts (R,) and the largest number P of these -> ids of the rows (R,)."""
    if ids.dtype.kind in "iu":
        return ids * number + place
    return np.array([f"{name}:{j}" for name, j in zip(ids.tolist(), place.tolist(), strict=True)])


def by_example(table: Any) -> pa.Table:
    """One row per example, that of its worst part, from a table with a row per part.

    Args:
        table: A table with the columns `example` and `part`, as `score_logits` and `Recorder.table` return it for examples with
            several labels, before or after `verdict`.

    Returns:
        The row of the part whose label is most probably wrong or, without a verdict, has the lowest margin. It has the id of the
        example, and a grade among examples. Examples are in the order of the table, and one whose parts all lack scores keeps its
        first row.
    """
    table = as_table(table)
    for name in ("example", "part"):
        if name not in table.column_names:
            raise ValueError(f"the table has no column {name!r}: its rows are examples already")
    judged = "p_mislabeled" in table.column_names
    doubt = column(table, "p_mislabeled" if judged else "margin").astype(np.float64) * (1 if judged else -1)
    encoded = table.column("example").combine_chunks().dictionary_encode()
    example = np.asarray(encoded.indices)  # numbered as they first occur
    order = np.lexsort((np.arange(len(table)), -np.nan_to_num(doubt, nan=-np.inf), example))
    first = np.concatenate([[True], example[order[1:]] != example[order[:-1]]]) if len(order) else np.zeros(0, bool)
    worst = table.take(pa.array(order[first]))
    ids = worst.column("example")
    place, kind = worst.column_names.index("id"), worst.schema.field("id").with_type(ids.type)
    worst = worst.set_column(place, kind, ids).drop_columns(["example"])
    return with_grade(worst) if "mohs" in worst.column_names else worst
