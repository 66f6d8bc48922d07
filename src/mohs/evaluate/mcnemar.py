"""Whether one of two classifiers is better on the same examples.

    n₁₀: examples that only the first classifies correctly, n₀₁: only the second
    difference = (n₁₀ − n₀₁)/n, with a percentile interval over resampled examples; McNemar's exact test

McNemar, "Note on the sampling error of the difference between correlated proportions" (Psychometrika 1947).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

INTERVAL, RESAMPLES = 0.95, 9999


@dataclass(frozen=True)
class RunsCompared:
    """Accuracies of two runs on n examples (`on`: "test" or "validation"), their difference with a 95 % interval, McNemar's p."""

    accuracy_a: float
    accuracy_b: float
    difference: float
    low: float
    high: float
    p: float
    only_a: int
    only_b: int
    n: int
    on: str


def paired_by_example(right_a: Any, right_b: Any, *, on: str = "test", seed: int = 0) -> RunsCompared:
    """Whether each example is correct (N,), bool, under each classifier -> the comparison."""
    from scipy.stats import binomtest

    x, y = (np.asarray(side, dtype=bool) for side in (right_a, right_b))
    if x.shape != y.shape or x.ndim != 1 or not len(x):
        raise ValueError(f"right_a and right_b must have the same shape (N,), got {x.shape} and {y.shape}")
    n, only_a, only_b = len(x), int((x & ~y).sum()), int((~x & y).sum())
    drawn = np.random.default_rng(seed).multinomial(n, [only_a / n, only_b / n, 1 - (only_a + only_b) / n], RESAMPLES)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / n, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2])
    p = float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0
    gap = (only_a - only_b) / n
    return RunsCompared(float(x.mean()), float(y.mean()), gap, float(low), float(high), p, only_a, only_b, n, on)
