"""Ranks of values among those of all examples, or of a sample of them that fits in memory.

rows = drawn_rows(N, k, seed=0)       k of N rows, one in each of k equal intervals, in O(k) memory
ranks = Ranks.of(values[rows])        all values up to k, a sample beyond
ranks.rank(values)                    from 0 (the lowest) to 1 (the highest), ties in the middle
ranks.grade(values)                   from 1 to 10 by decile
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

GRADES = 10
Array = np.ndarray[Any, Any]


def drawn_rows(count: int, most: int, *, seed: int = 0) -> Array:
    """Rows in rising order: all of `count`, or `most` of them drawn at random, one in each of `most` equal intervals."""
    if count <= most:
        return np.arange(count)
    edges = np.arange(most + 1) * count // most
    return edges[:-1] + (np.random.default_rng(seed).random(most) * np.diff(edges)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Ranks:
    """Reference values (n,), in rising order, without NaN, among which other values are ranked."""

    values: Array

    @staticmethod
    def of(values: Any) -> Ranks:
        """Ranks among these values, ignoring NaN."""
        values = np.asarray(values, np.float64)
        return Ranks(np.sort(values[~np.isnan(values)]))

    def rank(self, values: Any) -> Array:
        """Values (m,) -> ranks (m,) from 0 to 1, ties in the middle; ½ without a value, or if there is nothing to compare."""
        twice, known = self._twice_middle(values)
        ranks = np.full(len(twice), 0.5)
        if len(self.values) > 1:
            ranks[known] = ((twice[known] - 1) / 2 / (len(self.values) - 1)).clip(0, 1)
        return ranks

    def grade(self, values: Any) -> Array:
        """Values (m,) -> ⌈10 · middle/n⌉ (m,), from 1 to 10; 0, no grade, where a value is NaN."""
        twice, known = self._twice_middle(values)
        if not len(self.values):
            return np.zeros(len(twice), np.int8)
        grades = -(-GRADES * twice // (2 * len(self.values)))
        return np.where(known, grades.clip(1, GRADES), 0).astype(np.int8)

    def _twice_middle(self, values: Any) -> tuple[Array, Array]:
        """Twice the middle of the places that equal values take (m,), and which values are known (m,)."""
        values = np.asarray(values, np.float64)
        twice = np.searchsorted(self.values, values, "left") + np.searchsorted(self.values, values, "right")
        return twice, ~np.isnan(values)
