"""The limit beyond which a value is unusual among the values of a data set."""

from __future__ import annotations

import numpy as np

from mohs.issues.found import Array

REACH = 1.5  # interquartile ranges beyond the upper quartile: 1 of 290 normal values; limits in themselves hold as well


def upper_fence(values: Array, reach: float = REACH) -> float:
    """values (N,) -> the upper quartile plus `reach` times its distance from the median, twice; NaN is ignored.

    The distance from median to upper quartile stands for half of the interquartile range, so that a long lower tail does not
    move the fence.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return float("inf")
    middle, upper = np.quantile(known, (0.5, 0.75))
    return float(upper + reach * 2 * (upper - middle))
