"""Training by hardness: length of the features, AVH and accuracy at every epoch, for five bins of the final grade.

The AVH paper's Figure 4, with the grades 1–2, 3–4, ... 9–10 instead of bins of human agreement.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from torch import Tensor

from mohs.audit.options import Array
from mohs.hardness.table import column

BINS = 5
TRACED = {"norm": "norm", "avh": "avh", "accuracy": "right"}


def course_by_hardness(trace: Mapping[str, Tensor], table: pa.Table) -> dict[str, Array]:
    """trace[name] (epochs, N) -> {"epoch": (E,), "norm" | "avh" | "accuracy": (E, 5)}, the easiest bin first."""
    grade = column(table, "mohs").astype(float)
    bins = [(grade > 2 * b) & (grade <= 2 * b + 2) for b in range(BINS)]
    made: dict[str, Array] = {"epoch": np.arange(len(next(iter(trace.values()))))}
    for name, source in TRACED.items():
        values = trace[source].float().numpy()
        made[name] = np.stack([_mean(values[:, rows]) for rows in bins], 1)
    return made


def settled_variability(trace: Mapping[str, Tensor]) -> Array:
    """Standard deviation of the confidence (N,) over the epochs, except the first tenth, in which little has been learned."""
    confidence = trace["confidence"].float().numpy()
    late = confidence[min(len(confidence) - 1, max(1, len(confidence) // 10)) :]
    seen = ~np.isnan(late)
    count = np.maximum(seen.sum(0), 1)
    mean = np.where(seen, late, 0).sum(0) / count
    spread: Array = np.sqrt(np.where(seen, (late - mean) ** 2, 0).sum(0) / count)
    return spread


def _mean(values: Array) -> Array:
    """Mean of each row (E,) over the examples that were seen; NaN if there are none."""
    seen = ~np.isnan(values)
    total: Array = np.where(seen, values, 0).sum(1) / np.where(seen.any(1), np.maximum(seen.sum(1), 1), np.nan)
    return total
