"""From logits, features and head to the rows of a hardness table: measurements of chunks, columns of all rows, the table.

    measure(logits, index, features, weight)       a chunk of rows -> its measurements
    overall(columns)                               all rows -> norm_in_class, human and the grade mohs, which depend on all rows
    table_of(columns, classes)                     columns by row of the head -> a table by class name
    finished(columns, classes)                     all three for columns that hold every row

A row whose logits hold NaN or +∞ is kept: its scores are NaN, it has no prediction and no grade; `unscored(table)` lists
such rows. A row with such features but finite logits has NaN only in the columns of the features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.hardness.angular import avc, avh
from mohs.hardness.classes import decode
from mohs.hardness.human import agreement_of, easiest
from mohs.hardness.neighbors import neighbor_agreement
from mohs.hardness.scores import grade_column
from mohs.hardness.snapshot import measure_logits, norm, norm_in_class
from mohs.hardness.table import column, make_table

NONE = -1  # the prediction of a row without scores
Columns = dict[str, Any]


@torch.no_grad()
def measure(logits: Tensor, index: Tensor, features: Tensor | None = None, weight: Tensor | None = None) -> dict[str, Tensor]:
    """logits (n, K), rows of the head (n,), features (n, D), weight (K, D) -> one (n,) tensor per column."""
    if logits.dim() != 2:
        raise ValueError(f"logits must have shape (N, K), got {tuple(logits.shape)}")
    index = index.to(logits.device)
    made = measure_logits(logits, index)
    bad = made["margin"].isnan()
    made = {name: values.masked_fill(bad, NONE if name == "predicted" else torch.nan) for name, values in made.items()}
    if features is not None and weight is not None:
        made |= {"avh": avh(features, weight, index), "avc": avc(features, weight), "norm": norm(features)}
    return {"label": index, **made}


def overall(columns: Mapping[str, Any], *, human: bool = False) -> Columns:
    """The columns that depend on all rows, from margin, norm and label of all rows; human: include that score."""
    made: Columns = {"mohs": grade_column(-np.asarray(columns["margin"], np.float64))}
    if "norm" in columns:
        made["norm_in_class"] = norm_in_class(torch.as_tensor(columns["norm"]), torch.as_tensor(columns["label"])).numpy()
    if human:
        label, confidence = np.asarray(columns["label"]), columns["confidence"]
        made["human"] = agreement_of(confidence, label, easiest(confidence, label, int(label.max(initial=0)) + 1))
    return made


def table_of(columns: Mapping[str, Any], classes: Sequence[Any]) -> pa.Table:
    """The table of these columns, in which label and predicted are rows of the head."""
    predicted = np.asarray(columns["predicted"])
    names = decode(np.maximum(predicted, 0), classes)
    named = {"label": decode(columns["label"], classes), "predicted": pa.array(names, mask=predicted == NONE)}
    return make_table({**columns, **named}, classes=classes)


def host(columns: Mapping[str, Any]) -> Columns:
    """Tensors (in half precision as float32) and lists as arrays."""
    made = {}
    for name, values in columns.items():
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            values = values.float() if values.is_floating_point() and values.element_size() < 4 else values
            made[name] = values.numpy()
        else:
            made[name] = np.asarray(values)
    return made


def joined(parts: Sequence[Columns]) -> Columns:
    """Concatenate the chunks."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def finished(columns: Columns, classes: Sequence[Any], *, device: torch.device | None = None, human: bool = False) -> pa.Table:
    """The table of columns that hold every row, with row numbers as ids if there are no others.

    A column `features` is replaced by neighbors, computed on this device.
    """
    columns = {"id": np.arange(len(columns["label"])), **columns}
    if "features" in columns:
        features, labels = torch.as_tensor(columns.pop("features"), device=device), torch.from_numpy(columns["label"])
        columns["neighbors"] = neighbor_agreement(features, labels).cpu().numpy()
    return table_of({**columns, **overall(columns, human=human)}, classes)


def sound(table: pa.Table, *, strict: bool) -> pa.Table:
    """Return the table; raise an error that carries it if an id occurs twice or (if strict) a row has no scores."""
    message = repeated(table.column("id"))
    missing = unscored(table)
    if message is None and strict and missing.size:
        row = int(missing[0])
        message = (
            f"logits of row {row} (id {table.column('id')[row].as_py()!r}) hold NaN or +inf; {missing.size} row(s) do: "
            "fix them, or use strict=False to keep them without scores"
        )
    if message is not None:
        raise with_table(DataError(message), table)
    return table


def with_table(error: Exception, table: pa.Table | None) -> Exception:
    """The error, with the rows that were scored as its `table`."""
    error.table = table  # type: ignore[attr-defined]
    if table is not None:
        error.add_note(f"{table.num_rows} row(s) were scored: they are this error's .table")
    return error


def unscored(table: pa.Table) -> np.ndarray[Any, Any]:
    """The numbers of the rows that have no scores, because their logits held NaN or +∞."""
    return np.flatnonzero(np.isnan(column(table, "margin")))


def repeated(ids: Any) -> str | None:
    """Message about the first id that occurs in two rows; None if all ids are distinct."""
    ids = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(np.asarray(ids))
    if pc.count_distinct(ids, mode="all").as_py() == len(ids):
        return None
    seen: dict[Any, int] = {}
    for row, value in enumerate(ids.to_pylist()):
        if seen.setdefault(value, row) != row:
            return f"id {value!r} occurs in rows {seen[value]} and {row}: give every example a distinct id"
    return None
