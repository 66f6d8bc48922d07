"""The result of one check: a score and a flag for every example, and details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Found:
    """One issue in N examples.

    Attributes:
        score: (N,) from 0 to 1, higher is worse; NaN if it is unknown.
        flag: (N,) whether the example has the issue.
        group: (N,) number of the example's group, −1 without one: copies of one another, or examples that share a weakness.
        details: What was found, a row of plain values for each finding: a pair of classes, a column, a group.
        part: Share of affected columns, if the issue is not one of examples; default: the share of flagged examples.
    """

    score: Array = field(repr=False)
    flag: Array = field(repr=False)
    group: Array | None = field(default=None, repr=False)
    details: Sequence[Mapping[str, Any]] = ()
    part: float | None = None

    @property
    def share(self) -> float:
        """Share of the examples (or columns) that are flagged."""
        if self.part is not None:
            return self.part
        return float(self.flag.mean()) if len(self.flag) else 0.0

    @property
    def number(self) -> int:
        """Number of examples (or columns) that are flagged."""
        return int(self.flag.sum()) if self.part is None else len(self.details)
