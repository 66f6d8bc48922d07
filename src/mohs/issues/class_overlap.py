"""Which classes are the same, and which should be split.

same     A model that did not see their labels cannot distinguish the examples of two classes: the AUC of ln p_a − ln p_b between
         them is near ½ for two names of one class. overlap = 2 (1 − AUC), flagged over ½. Each class is compared with the
         CONFUSED classes that get most of its probability.
split    2-means divides the unit features of a class into parts, each at least a tenth, whose means form a larger angle than
         those of most classes with their nearest class, with a gap between them: Ashman's D over 6. Halves of a normal
         distribution have 2.7, of a circle 4.3. Unit vectors have a gap wherever one column is much larger than the others, so
         the features themselves must have one, too: over 4, as halves of a uniform distribution have 3.5.

The score of an example is the largest overlap of its class, or that it has a split; its flag says that its class is concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mohs.issues.found import Array, Found
from mohs.issues.weak_groups import unit_rows

SAME, FEWEST, CONFUSED = 0.5, 10, 3
LEAST_PART, GAP, UNDIVIDED = 0.1, 6.0, 4.0
MOST = 1000  # maximum number of examples of a class that are clustered


def class_overlap(labels: Array, probs: Array, classes: Sequence[Any], features: Array | None = None, *, seed: int = 0) -> Found:
    """Classes to merge or to split: labels (N,), out-of-sample probabilities (N, K), features (N, D), if there are any."""
    log_p = np.log(np.clip(np.nan_to_num(probs), 1e-12, None))
    rows = [np.flatnonzero((labels == c) & ~np.isnan(probs).any(1)) for c in range(len(classes))]
    score, flagged, details = np.zeros(len(classes)), np.zeros(len(classes), bool), []
    for a, b in _confused(rows, probs):
        overlap = 2 * (1 - _auc(log_p[rows[a], a] - log_p[rows[a], b], log_p[rows[b], a] - log_p[rows[b], b]))
        overlap = float(np.clip(overlap, 0, 1))
        score[[a, b]] = np.maximum(score[[a, b]], overlap)
        if overlap > SAME:
            flagged[[a, b]] = True
            details.append(
                {"classes": f"{classes[a]} and {classes[b]}", "verdict": "nearly the same", "overlap": round(overlap, 3)}
            )
    if features is not None:
        for c, angle, gap in split_classes(labels, features, len(classes), seed=seed):
            flagged[c], score[c] = True, max(score[c], 1.0)
            details.append(
                {"classes": str(classes[c]), "verdict": "two separate parts", "angle": round(angle, 3), "gap": round(gap, 1)}
            )
    return Found(score[labels], flagged[labels], details=details)


def split_classes(labels: Array, features: Array, number: int, *, seed: int = 0) -> list[tuple[int, float, float]]:
    """Classes with two separate parts: class, angle between the parts' means in radians, and Ashman's D."""
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    parts = np.split(order, np.searchsorted(labels[order], np.arange(1, number)))
    rows = {c: np.sort(one[:MOST]) for c, one in enumerate(parts) if len(one) >= FEWEST / LEAST_PART}
    if len(rows) < 2:
        return []
    vectors = {c: np.nan_to_num(np.asarray(features[one], dtype=np.float32)) for c, one in rows.items()}
    center = np.mean([one.mean(0) for one in vectors.values()], axis=0)
    vectors = {c: one - center for c, one in vectors.items()}
    units = {c: unit_rows(one) for c, one in vectors.items()}
    means = unit_rows(np.stack([one.mean(0) for one in units.values()]))
    cosines = means @ means.T
    np.fill_diagonal(cosines, -1)
    usual = float(np.median(np.arccos(np.clip(cosines.max(1), -1, 1))))
    found = []
    for c, one in units.items():
        if (one == one[0]).all():  # copies of one example cannot be split
            continue
        fitted = KMeans(2, n_init=1, random_state=seed).fit(one)
        part = fitted.labels_
        axis = fitted.cluster_centers_[1] - fitted.cluster_centers_[0]
        if min(np.bincount(part, minlength=2)) < LEAST_PART * len(one):
            continue
        gap = _gap(one @ axis, part)
        first, second = unit_rows(fitted.cluster_centers_)
        angle = float(np.arccos(np.clip(first @ second, -1, 1)))
        if gap > GAP and angle > usual and _gap(vectors[c] @ axis, part) > UNDIVIDED:
            found.append((c, angle, gap))
    return found


def _gap(along: Array, part: Array) -> float:
    """Ashman's D of the two parts of values (n,)."""
    left, right = along[part == 0], along[part == 1]
    return float(np.sqrt(2) * abs(right.mean() - left.mean()) / np.sqrt(left.var() + right.var() + 1e-12))


def _confused(rows: Sequence[Array], probs: Array) -> list[tuple[int, int]]:
    """Pairs of classes worth comparing: each with those that get most of its probability."""
    pairs = set()
    for a, own in enumerate(rows):
        if len(own) < FEWEST:
            continue
        mean = probs[own].mean(0)
        mean[a] = -1
        pairs |= {(min(a, b), max(a, b)) for b in np.argsort(-mean)[:CONFUSED].tolist() if b != a and len(rows[b]) >= FEWEST}
    return sorted(pairs)


def _auc(higher: Array, lower: Array) -> float:
    """Probability that a value of the first (n,) is above one of the second (m,); ties count half."""
    ordered = np.sort(lower)
    below = np.searchsorted(ordered, higher, side="left") + np.searchsorted(ordered, higher, side="right")
    return float(below.mean() / 2 / len(lower))
