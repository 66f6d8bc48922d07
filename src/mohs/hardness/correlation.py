"""Correlation coefficients, bootstrap resamples of them without sorting again, and tests of one against another.

    spearman     Pearson's r of midranks          kendall   τ-b; both corrected for ties
    resample     wᵢ, how often example i was drawn (Σw = n); the midrank of a value v in it is
                 Σ_{u ≤ v} c_u − (c_v − 1)/2,     c_u = Σ w over the examples with value u
    Fisher       Z = (z₁ − z₂) / √(2/(n − 3)),    z = artanh r
    Steiger      Z = (z₁ − z₂) √(n − 3) / √(2 − 2c),  c = [r₁₂(1 − 2r̄²) − ½r̄²(1 − 2r̄² − r₁₂²)] / (1 − r̄²)²,  r̄ = (r₁ + r₂)/2

So a resample costs O(n) for Spearman and Pearson; Kendall is computed anew, in O(n log n). Fisher's test assumes that
the two correlations are independent. If they share a variable and the examples, use Steiger's test; Fisher's p is then too
large if the scores agree (r₁₂ > 0). On rank correlations both are approximate. A correlation is NaN if a side is constant or
n < 3.
Steiger, "Tests for comparing elements of a correlation matrix" (Psychological Bulletin 1980), eq. 14.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kendalltau

Array = np.ndarray[Any, Any]
Weighted = Callable[[Array], list[float]]
LEAST = 3  # examples


@dataclass(frozen=True)
class ZTest:
    """A normal test statistic; positive where the first correlation is the larger."""

    z: float

    @property
    def p(self) -> float:
        """One-sided: probability of a z this large if the first correlation is not larger."""
        return math.erfc(self.z / math.sqrt(2)) / 2

    @property
    def p_two_sided(self) -> float:
        return math.erfc(abs(self.z) / math.sqrt(2))


def coefficients(scores: Sequence[Array], y: Array, kind: str) -> list[float]:
    """The correlation of each of the scores (N,) with y (N,); kind is one of KINDS."""
    return KINDS[kind](scores, y)(np.ones(len(y), dtype=np.int64))


def resampled(scores: Sequence[Array], y: Array, kind: str, *, resamples: int, seed: int) -> Array:
    """The correlations in every resample of the examples: (resamples, scores)."""
    weighted = KINDS[kind](scores, y)
    rng = np.random.default_rng(seed)
    drawn = np.full((resamples, len(scores)), np.nan)
    for row in drawn:
        row[:] = weighted(np.bincount(rng.integers(0, len(y), len(y)), minlength=len(y)))
    return drawn


def fisher_z(r1: float, r2: float, n: int) -> ZTest:
    """Whether r1 is larger than r2, each of n examples, by the test for independent correlations, as in the AVH paper."""
    _check(n, r1=r1, r2=r2)
    return ZTest((math.atanh(r1) - math.atanh(r2)) / math.sqrt(2 / (n - 3)))


def steiger(r1: float, r2: float, r12: float, n: int) -> ZTest:
    """Whether r1 is larger than r2 when both share a variable and the n examples; r12: the correlation of the other two."""
    _check(n, r1=r1, r2=r2)
    if not (abs(r12) <= 1 and 1 + 2 * r1 * r2 * r12 - r1**2 - r2**2 - r12**2 > -0.01):  # printed values are rounded
        raise ValueError(f"r12={r12} is incompatible with r1={r1} and r2={r2}: no three variables have these correlations")
    if r1 == r2:
        return ZTest(0.0)  # the same score twice has c = 1
    square = ((r1 + r2) / 2) ** 2
    c = (r12 * (1 - 2 * square) - square * (1 - 2 * square - r12**2) / 2) / (1 - square) ** 2
    return ZTest((math.atanh(r1) - math.atanh(r2)) * math.sqrt(n - 3) / math.sqrt(max(2 - 2 * c, 1e-12)))


def _spearman(scores: Sequence[Array], y: Array) -> Weighted:
    groups = [np.unique(values, return_inverse=True)[1] for values in (*scores, y)]  # the only sort

    def weighted(w: Array) -> list[float]:
        *ranks, own = (_midranks(group, w) for group in groups)
        return [_pearson_of(rank, own, w) for rank in ranks]

    return weighted


def _pearson(scores: Sequence[Array], y: Array) -> Weighted:
    return lambda w: [_pearson_of(x, y, w) for x in scores]


def _kendall(scores: Sequence[Array], y: Array) -> Weighted:
    *groups, own = (np.unique(values, return_inverse=True)[1] for values in (*scores, y))

    def weighted(w: Array) -> list[float]:
        rows = np.repeat(np.arange(len(w)), w)
        if len(rows) < LEAST:
            return [math.nan] * len(groups)
        return [float(kendalltau(group[rows], own[rows], method="asymptotic").statistic) for group in groups]

    return weighted


KINDS: dict[str, Callable[[Sequence[Array], Array], Weighted]] = {"spearman": _spearman, "kendall": _kendall, "pearson": _pearson}


def _midranks(group: Array, w: Array) -> Array:
    share = np.bincount(group, weights=w)
    ranks: Array = (share.cumsum() - (share - 1) / 2)[group]
    return ranks


def _pearson_of(x: Array, y: Array, w: Array) -> float:
    """Weighted r; a variance that is only rounding error counts as 0 (constant)."""
    if w.sum() < LEAST:
        return math.nan
    with np.errstate(invalid="ignore", divide="ignore"):  # an infinite score has no Pearson coefficient: NaN
        dx, dy = x - x @ w / w.sum(), y - y @ w / w.sum()
        spread_x, spread_y = dx * dx @ w, dy * dy @ w
        if spread_x <= 1e-24 * (x * x @ w) or spread_y <= 1e-24 * (y * y @ w):
            return math.nan
        return float(np.clip(dx * dy @ w / math.sqrt(spread_x * spread_y), -1.0, 1.0))


def _check(n: int, **given: float) -> None:
    for name, value in given.items():
        if not abs(value) < 1:
            raise ValueError(f"{name} must lie between −1 and 1, both excluded, got {value}")
    if n <= 3:
        raise ValueError(f"n must be at least 4 examples, got {n}")
