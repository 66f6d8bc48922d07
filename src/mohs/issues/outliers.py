"""Which examples are unlike all others: far from all others in feature space, and unlike any class.

    p_far     upper tail, in a normal distribution fitted to the middle of the data, of the log distance to the 10th nearest
    p_doubt   share of the examples that are at least as undecided: entropy of the out-of-sample probabilities of the classes
    p         Fisher's combination of the two: the tail of χ² with four degrees of freedom at −2 ln(p_far · p_doubt)

The fit uses the median and the wider of two spreads, to the upper quartile and to the upper decile, which a few percent of
outliers hardly move. Doubt alone never flags: an example between two classes is hard, not foreign. E = N p examples are expected
to look so by chance (`by_chance`).
"""

from __future__ import annotations

import numpy as np

from mohs.issues.by_chance import beyond_chance, chance_score
from mohs.issues.found import Array, Found

RANK = 9  # index, from 0, of the neighbor whose distance counts: copies of an outlier do not hide it
NORMAL = {0.75: 0.6744897501960817, 0.9: 1.2815515655446004}  # quantiles of the standard normal distribution
LEAST_SPREAD = 1e-6
FEWEST = 30  # minimum number of examples for a distribution to be meaningful


def outliers(distances: Array, probs: Array | None = None) -> Found:
    """Outliers by distances (N, k) to the nearest, ascending, and probabilities (N, K) that did not see the labels."""
    from scipy.special import log_ndtr

    count = len(distances)
    if count < FEWEST or not distances.shape[1]:
        return Found(np.full(count, np.nan), np.zeros(count, bool))
    far = np.log(np.maximum(distances[:, min(RANK, distances.shape[1] - 1)], 1e-12))
    known = np.isfinite(far)
    middle, *upper = np.quantile(far[known], (0.5, *NORMAL)) if known.any() else (0.0, 0.0)
    far = np.where(known, far, middle)  # an example without a direction has no neighbors
    spread = max((at - middle) / z for at, z in zip(upper, NORMAL.values(), strict=False))
    log_p = log_ndtr((middle - far) / max(spread, LEAST_SPREAD))
    if probs is not None:
        log_p = _combined(log_p, np.log(_tail(_entropy(probs))))
    log_expected = np.where(known, np.log(count) + log_p, np.nan)
    return Found(chance_score(log_expected), known & beyond_chance(log_expected))


def _combined(log_p: Array, log_q: Array) -> Array:
    """Fisher's combination of two independent p-values, in logarithms: the tail of χ²₄ at x is e^(−x/2) (1 + x/2)."""
    half = -(log_p + log_q)
    combined: Array = np.log1p(half) - half
    return combined


def _entropy(probs: Array) -> Array:
    p = np.clip(np.nan_to_num(probs), 1e-12, None)
    entropy: Array = -(p * np.log(p)).sum(1)
    return entropy


def _tail(values: Array) -> Array:
    """The share of the values that are at least as large (N,); equal values share it."""
    ordered = np.sort(values)
    tail: Array = (len(values) - np.searchsorted(ordered, values, side="left")) / len(values)
    return tail
