"""Which groups of examples a model does badly on: classes, and clusters of features that cut across them.

    error of a group   share of its labels that are not the class predicted out of sample
    weak_group         an example's score: the larger of its class's and its cluster's error

A group is flagged if its error is at least 1.5 times that of all examples, by a binomial test at 1 % divided by the number of
groups. Clusters are k-means clusters of unit features, one per 100 examples, at most 30.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mohs.issues.found import Array, Found

TIMES, LEVEL = 1.5, 0.01
FEWEST = 20  # examples of a group
PER_CLUSTER, MOST_CLUSTERS, FITTED = 100, 30, 20_000


def weak_groups(labels: Array, probs: Array, classes: Sequence[Any], features: Array | None = None, *, seed: int = 0) -> Found:
    """Groups that do badly: labels (N,), out-of-sample probabilities (N, K), and features (N, D), if there are any."""
    from scipy.stats import binom

    known = ~np.isnan(probs).any(1)
    wrong = known & (np.nan_to_num(probs).argmax(1) != labels)
    overall = float(wrong[known].mean()) if known.any() else 0.0
    assigned = {"class": labels}
    if features is not None and len(features) >= 2 * PER_CLUSTER:
        assigned["cluster"] = clusters(features, min(MOST_CLUSTERS, len(features) // PER_CLUSTER), seed=seed)
    tested = sum(len(np.unique(group)) for group in assigned.values())
    score, flag, details = np.zeros(len(labels)), np.zeros(len(labels), bool), []
    for kind, group in assigned.items():
        size = np.bincount(group[known], minlength=int(group.max(initial=0)) + 1)
        errors = np.bincount(group[wrong], minlength=len(size))
        rate = errors / np.maximum(size, 1)
        rare = binom.sf(errors - 1, size, overall) < LEVEL / max(tested, 1)
        weak = rare & (rate > TIMES * overall) & (size >= FEWEST)
        score, flag = np.maximum(score, rate[group]), flag | weak[group]
        for g in sorted(np.flatnonzero(weak).tolist(), key=lambda g: -rate[g]):
            mostly = int(np.bincount(labels[group == g], minlength=len(classes)).argmax())
            name = f"class {classes[g]}" if kind == "class" else f"cluster {g}, mostly {classes[mostly]}"
            details.append(
                {"group": name, "examples": int(size[g]), "error": round(float(rate[g]), 4), "error of all": round(overall, 4)}
            )
    return Found(score, flag, details=details)


def clusters(features: Array, number: int, *, seed: int = 0) -> Array:
    """Features (N, D) -> the k-means cluster of each unit vector (N,), fitted to at most 20,000 of them."""
    from sklearn.cluster import MiniBatchKMeans

    sample = np.sort(np.random.default_rng(seed).permutation(len(features))[:FITTED])
    fitted = MiniBatchKMeans(number, random_state=seed, n_init=1, batch_size=1024, max_iter=30).fit(unit_rows(features[sample]))
    parts = [fitted.predict(unit_rows(features[at : at + FITTED])) for at in range(0, len(features), FITTED)]
    return np.concatenate(parts).astype(np.int64)


def unit_rows(rows: Array) -> Array:
    """Rows (n, D) of length 1, float32; what is not finite counts as 0."""
    values = np.nan_to_num(np.asarray(rows, dtype=np.float32), posinf=0.0, neginf=0.0)
    unit: Array = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    return unit
