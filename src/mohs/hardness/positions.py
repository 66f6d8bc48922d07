"""Examples with positions (tokens, pixels): every position with a label is a row of its own.

    logits (N, K, d1, ...), labels (N, d1, ...) -> logits (R, K), labels (R,), example and position of each row (R,)

Positions are numbered 0..P−1 in the order of the flattened labels. Position j of example i has the id i·P + j, as in
`Recorder(N, positions=P)`, or "NAME:j" if ids are names. Labels of −100 are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from mohs.margin import NO_LABEL

Array = np.ndarray[Any, Any]


def rows_by_position(logits: Tensor, labels: Array) -> tuple[Tensor, Array, Array, Array]:
    """Rows of the positions that have a label: logits (R, K), labels, example and position (R,).

    Args:
        logits: (N, K, d1, ...), or (N, d1, ..., K) where only this fits.
        labels: (N, d1, ...).
    """
    if labels.shape == (logits.shape[0], *logits.shape[2:]):
        logits = logits.movedim(1, -1)
    elif labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"labels must have shape (N, d1, ...) for logits (N, K, d1, ...), got {labels.shape} for {tuple(logits.shape)}"
        )
    kept = labels.reshape(-1) != NO_LABEL
    example, position = np.divmod(np.flatnonzero(kept), max(1, labels[:1].size))
    rows = logits.reshape(-1, logits.shape[-1])
    return (rows if kept.all() else rows[kept]), labels.reshape(-1)[kept], example, position


def id_of_position(ids: Array, position: Array, positions: int) -> Array:
    """The ids of the examples (R,), the positions (R,) and their largest number P -> distinct ids of the rows (R,)."""
    if ids.dtype.kind in "iu":
        return ids * positions + position
    return np.array([f"{name}:{j}" for name, j in zip(ids.tolist(), position.tolist(), strict=True)])
