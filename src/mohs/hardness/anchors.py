"""Counting wrong labels on anchors: the examples whose class a model is surest of, whatever they are labeled.

    T[t, g]      = share of the anchors of class t that are labeled g          P(given g | true t)
    counts[g, t] = n_g π_t T[t, g] / Σ_s π_s T[s, g]                            n_g: labeled g; π_t: share of class t

Predictions must be out of sample: then an example's own label has no part in its being an anchor, and the anchors' labels
are an honest sample of what the class is labeled as, wherever noise depends on the class alone.
Anchor points: Patrini et al., "Making deep neural networks robust to label noise" (CVPR 2017), section 3, there by the
highest probability and not by counting.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ANCHOR_SHARE, LEAST_ANCHORS = 0.3, 20
PURER_SHARES = (0.05, 0.1)  # fewer and surer anchors, for what can be said at least
NONE_BELOW = 0.01
UNEVEN, LEVEL, DRAWS = 0.1, 0.01, 999


def anchor_counts(given: Array, probs: Array, share: float = ANCHOR_SHARE) -> Array:
    """(K, K): of the surest examples predicted t, how many are labeled g; all that tie with the last one are taken."""
    predicted, sure = probs.argmax(1), probs.max(1)
    counts = np.zeros((probs.shape[1],) * 2)
    for t in np.unique(predicted):
        rows = np.flatnonzero(predicted == t)
        size = min(len(rows), max(LEAST_ANCHORS, math.ceil(share * len(rows))))
        least = np.partition(sure[rows], len(rows) - size)[len(rows) - size]
        counts[t] = np.bincount(given[rows[sure[rows] >= least]], minlength=len(counts))
    return counts


def least_rate(given: Array, probs: Array, interval: float) -> float:
    """The lowest that the purer anchors leave the share of wrong labels; were all anchors pure, they would say the same."""
    prior = np.bincount(probs.argmax(1), minlength=probs.shape[1])
    lows = []
    for share in PURER_SHARES:
        anchors = anchor_counts(given, probs, share)
        counts = joint_counts(anchors, prior, given)
        rate = max(0.0, float(1 - np.trace(counts) / len(given)))
        lows.append(wilson(rate, effective_size(anchors, counts.sum(0) / len(given), rate), interval)[0])
    return min(lows)


def joint_counts(anchors: Array, prior: Array, given: Array) -> Array:
    """anchors[true, given], prior of the true classes (K,) -> counts[given, true], whose rows sum to the given labels."""
    joint = (prior[:, None] * row_shares(anchors)).T
    counts: Array = np.bincount(given, minlength=len(prior))[:, None] * row_shares(joint)
    return counts


def row_shares(table: Array) -> Array:
    """Rows over their sums; an empty row, of which nothing is known, keeps to its class."""
    sums = table.sum(1, keepdims=True)
    shares: Array = np.divide(table, sums, out=np.eye(len(table)), where=sums > 0)
    return shares


def effective_size(anchors: Array, prior: Array, rate: float) -> float:
    """How many independent labels would leave the rate as uncertain as the anchors of each class do."""
    sizes, right = anchors.sum(1), np.diag(row_shares(anchors))
    variance = float((prior**2 * right * (1 - right) / np.maximum(sizes, 1)).sum())
    return rate * (1 - rate) / variance if variance > 0 and 0 < rate < 1 else float(sizes.sum())


def wilson(share: float, size: float, interval: float) -> tuple[float, float]:
    """Wilson's interval for a share of `size` labels: never empty, though nothing was found."""
    z = NormalDist().inv_cdf((1 + interval) / 2)
    middle = (share + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(share * (1 - share) / size + (z / (2 * size)) ** 2)
    return float(max(0.0, middle - half)), float(min(1.0, middle + half))


def noise_kind(wrong: Array, *, low: float, seed: int) -> str:
    """One of KINDS, from wrong[true, given] (K, K), the diagonal being those that are right."""
    rights = np.eye(len(wrong), dtype=bool)
    found = np.where(rights, 0.0, wrong)
    total = int(found.sum().round())
    if low < NONE_BELOW or total == 0:
        return "none found"
    even = np.where(rights, 0.0, wrong.sum(1, keepdims=True))  # each true class by its size, all other classes alike
    even = (even / even.sum()).ravel()
    chance = _chance(total, even, seed)
    apart = np.abs(found.ravel() / found.sum() - even).sum() / 2
    uneven = (1 + (chance >= apart).sum()) / (1 + DRAWS) < LEVEL and apart - chance.mean() >= UNEVEN
    return "class-dependent" if uneven else "about uniform"


def lower_weight(values: Array, *, steps: int = 300) -> float:
    """Share of the lower of two Gaussians fitted to values (N,) by EM; 1 where there is nothing to fit."""
    if len(values) < LEAST_ANCHORS or values.std() == 0:
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
        if total < len(even):  # most cells stay empty: touch those that do not
            cells, counts = np.unique(np.searchsorted(upto, random.random(total) * upto[-1], "right"), return_counts=True)
            found[i] = (np.abs(counts / total - even[cells]).sum() + 1 - even[cells].sum()) / 2
        else:
            found[i] = np.abs(random.multinomial(total, even) / total - even).sum() / 2
    return found
