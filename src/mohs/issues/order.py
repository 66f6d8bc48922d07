"""Whether the examples depend on their order: then they are not independent, and a split by position is biased.

    labels     share of successive examples with the same label, beyond Σ p_c², the share by chance
    features   how near, in the order of its class, an example's neighbors in feature space are: mean distance of their places,
               from 0 to 1, against 1/3 by chance

Data sorted by class are not flagged, even if some labels are wrong or have been corrected, since class folders are stored in this
order. Features are compared within a class, without the example just before or after, which may be a copy (`duplicates`). Both
tests flag where chance is excluded (five standard errors) and the effect is at least a tenth; either marks all examples, since no
example on its own depends on order. The score of an example is how near its neighbors are, 1 − 3 · mean distance, from 0 to 1.
"""

from __future__ import annotations

import numpy as np

from mohs.issues.found import Array, Found

ERRORS, EFFECT = 5.0, 0.1
SORTED = 0.75  # data are sorted by class if at least this share of examples is in the block of its class
NEIGHBORS = 5
BY_CHANCE = 1 / 3  # mean distance of two places in [0, 1]; its variance is 1/18
FEWEST = 100


def order_dependence(labels: Array, near: Array | None = None) -> Found:
    """Dependence on order: labels (N,) and, if there are features, rows (N, k) of the nearest, −1 where there are fewer."""
    count = len(labels)
    details, score = [], np.zeros(count)
    if count >= FEWEST:
        excess, z = label_runs(labels)
        if z > ERRORS and excess > EFFECT and not _in_blocks(labels):
            details.append(
                {"what": "labels of successive examples agree", "beyond chance": round(excess, 3), "z": round(float(z), 1)}
            )
    if count >= FEWEST and near is not None:
        distance, score = place_distances(labels, near)
        known = ~np.isnan(distance)
        number = max(int(known.sum()), 1)
        effect = 1 - float(distance[known].mean()) / BY_CHANCE if known.any() else 0.0
        z = effect * BY_CHANCE / np.sqrt(2 / 18 / number)  # a pair counts twice where each is the other's neighbor
        if z > ERRORS and effect > EFFECT:
            details.append(
                {"what": "nearest neighbors are close in the order", "beyond chance": round(effect, 3), "z": round(float(z), 1)}
            )
    return Found(score, np.full(count, bool(details)), details=details)


def label_runs(labels: Array) -> tuple[float, float]:
    """labels (N,) -> share of successive examples with the same label beyond chance, and that in standard errors."""
    shares = np.bincount(labels) / len(labels)
    chance = float((shares**2).sum())
    agree = float((labels[1:] == labels[:-1]).mean())
    return agree - chance, (agree - chance) / np.sqrt(max(chance * (1 - chance), 1e-12) / (len(labels) - 1))


def place_distances(labels: Array, near: Array) -> tuple[Array, Array]:
    """Distance in the order of its class of an example's nearest of the same class (N,), NaN without one, and its score (N,)."""
    order = np.lexsort((np.arange(len(labels)), labels))
    counts = np.bincount(labels)
    rank = np.empty(len(labels), np.int64)
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = rank / np.maximum(counts[labels] - 1, 1)
    rows = near[:, :NEIGHBORS]
    same = (rows >= 0) & (labels[rows] == labels[:, None]) & (counts[labels] >= 2 * NEIGHBORS)[:, None]
    same &= np.abs(rank[rows] - rank[:, None]) > 1
    apart = np.abs(place[rows] - place[:, None])
    number = same.sum(1)
    first = np.where(number > 0, np.take_along_axis(apart, same.argmax(1)[:, None], 1)[:, 0], np.nan)
    mean = np.where(number > 0, (apart * same).sum(1) / np.maximum(number, 1), 1.0)
    return first, np.maximum(0, 1 - mean / BY_CHANCE)


def _in_blocks(labels: Array) -> bool:
    """Whether nearly every example lies where sorted data have its class: in one block, half of it on each side of the median."""
    _, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    middle = np.argsort(index, kind="stable")[np.cumsum(counts) - counts + counts // 2]  # median place of each class
    return float((np.abs(np.arange(len(index)) - middle[index]) <= counts[index] / 2).mean()) >= SORTED
