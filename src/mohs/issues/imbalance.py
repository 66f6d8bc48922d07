"""Which classes are rare: they have few examples to learn from and to judge by.

class_imbalance   1 − min(1, n_c K / N) for the n_c examples of class c of K; flagged below a tenth of an even share
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mohs.issues.found import Array, Found

RARE = 0.1  # fraction of an even share


def class_imbalance(labels: Array, classes: Sequence[Any]) -> Found:
    """Examples of rare classes: labels (N,) class indices, classes their names."""
    counts = np.bincount(labels, minlength=len(classes))
    even = counts * len(classes) / max(len(labels), 1)
    rare = (even < RARE) & (counts > 0)
    details = [
        {"class": str(classes[c]), "examples": int(counts[c]), "share": round(counts[c] / len(labels), 5)}
        for c in sorted(np.flatnonzero(rare).tolist(), key=lambda c: counts[c])
    ]
    return Found((1 - np.minimum(1, even))[labels], rare[labels], details=details)
