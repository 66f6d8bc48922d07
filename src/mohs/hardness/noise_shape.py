"""How wrong labels are spread over class pairs, and intervals of their share."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FEWEST = 20  # values to which two Gaussians are fitted
NONE_BELOW = 0.01
UNEVEN, LEVEL, DRAWS = 0.1, 0.01, 999


def row_shares(table: Array) -> Array:
    """Rows over their sums; an empty row becomes that of the identity."""
    sums = table.sum(1, keepdims=True)
    shares: Array = np.divide(table, sums, out=np.eye(len(table)), where=sums > 0)
    return shares


def wilson(share: float, size: float, interval: float) -> tuple[float, float]:
    """Wilson's interval for a share of `size` labels; its width is positive even for a share of 0."""
    z = NormalDist().inv_cdf((1 + interval) / 2)
    middle = (share + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(share * (1 - share) / size + (z / (2 * size)) ** 2)
    return float(max(0.0, middle - half)), float(min(1.0, middle + half))


def noise_kind(wrong: Array, *, low: float, seed: int) -> str:
    """Kind of noise from counts[true, given] (K, K); the diagonal holds the correct labels."""
    rights = np.eye(len(wrong), dtype=bool)
    found = np.where(rights, 0.0, wrong)
    total = int(found.sum().round())
    if low < NONE_BELOW or total == 0:
        return "none found"
    even = np.where(rights, 0.0, wrong.sum(1, keepdims=True))  # each true class by its size, all other classes equally likely
    even = (even / even.sum()).ravel()
    chance = _chance(total, even, seed)
    apart = np.abs(found.ravel() / found.sum() - even).sum() / 2
    uneven = (1 + (chance >= apart).sum()) / (1 + DRAWS) < LEVEL and apart - chance.mean() >= UNEVEN
    return "class-dependent" if uneven else "about uniform"


def lower_weight(values: Array, *, steps: int = 300) -> float:
    """Share of the lower of two Gaussians fitted to values (N,) by EM; 1 if there is nothing to fit."""
    if len(values) < FEWEST or values.std() == 0:
        return 1.0
    x = (values - values.mean()) / values.std()
    mean, variance, weight = np.quantile(x, [0.05, 0.7])[:, None], np.full((2, 1), 0.2), np.full((2, 1), 0.5)
    for _ in range(steps):
        odds = np.log(weight) - (np.log(variance) + (x - mean) ** 2 / variance) / 2  # (2, N)
        share = 1 / (1 + np.exp(np.clip(odds[::-1] - odds, -500, 500)))
        before, size = weight, np.maximum(share.sum(1, keepdims=True), 1e-9)
        weight = size / size.sum()
        mean = share @ x[:, None] / size
        variance = (share * (x - mean) ** 2).sum(1, keepdims=True) / size + 1e-6
        if np.abs(weight - before).max() < 1e-6:
            break
    return float(weight[mean[:, 0].argmin(), 0])


def _chance(total: int, even: Array, seed: int) -> Array:
    """Total variation from `even` (K²,) of DRAWS samples of that size, one at a time: K² may be a million."""
    random, upto = np.random.default_rng(seed), even.cumsum()
    found = np.empty(DRAWS)
    for i in range(DRAWS):
        if total < len(even):  # most cells stay empty: visit only the others
            cells, counts = np.unique(np.searchsorted(upto, random.random(total) * upto[-1], "right"), return_counts=True)
            found[i] = (np.abs(counts / total - even[cells]).sum() + 1 - even[cells].sum()) / 2
        else:
            found[i] = np.abs(random.multinomial(total, even) / total - even).sum() / 2
    return found
