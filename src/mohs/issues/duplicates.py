"""Which examples are copies of one another: exactly the same, or nearer to each other than chance explains.

    E(i, j) = N · R · max(s_i, s_j),        s_i = (1 + ln(D_i / d(i, j)) / (b + S_i))^−(a + 5)

D_i is the mean distance of i to its 5th to 10th nearest and R = 7 the number of neighbors within about that distance. In m
dimensions a share (d/D)^m of them lies within a distance d by chance. m differs from place to place: its prior is a gamma
distribution with parameters a and b, fitted by moments to the spacings of these same neighbors, which the copies of an example
do not reach; S_i, the sum of the normalized log spacings of i (Levina & Bickel, NeurIPS 2004), makes the posterior of i, and s_i
is the mean of (d/D_i)^m over it. So a distance is compared with what is usual around both of its ends, not with a threshold.

Content (aligned pixels, character trigrams) detects copies better than features, which are also similar for examples of one
topic: where there is content, E is multiplied by the root of the features' share, since the two are not independent.

Pairs beyond chance (`by_chance`) are joined to groups. More than about five altered copies of one example are each other's usual
neighborhood, and are only found if they are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mohs.issues.by_chance import beyond_chance, chance_score
from mohs.issues.found import Array, Found

USUAL = slice(4, 10)  # ranks of neighbors that are assumed not to be copies
WITHIN = 7  # number of neighbors within the mean distance of these
LEAST = 1e-4  # smallest distance above rounding error
MOST_ALIKE = 200.0  # largest a: dimensions that hardly differ
SUPPORT = 0.5  # weight of the features if there is content
FEWEST = 30  # minimum number of examples for neighborhoods to be meaningful


@dataclass(frozen=True, eq=False)
class View:
    """The nearest examples of each in one way to look at them.

    Attributes:
        rows: (N, k), the nearest first; −1 where there are fewer.
        distances: (N, k), ascending; infinite where there are fewer.
        weight: 1 for the view that decides, less for one that only supports it.
    """

    rows: Array = field(repr=False)
    distances: Array = field(repr=False)
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of examples that may be copies: rows `first` and `second` (P,), and ln E of each."""

    first: Array = field(repr=False)
    second: Array = field(repr=False)
    log_expected: Array = field(repr=False)


@dataclass(frozen=True, eq=False)
class Copies:
    """Possible copies, independent of labels and splits: pairs of examples, and the number of each one's content (N,)."""

    pairs: Pairs
    exact: Array = field(repr=False)


def view_of(rows: Any, cosines: Any) -> View:
    """The view of features: rows (N, k) and cosines (N, k) of the nearest, as `hardness.neighbors` gives them."""
    rows, cosines = np.asarray(rows), np.asarray(cosines, dtype=np.float64)
    return View(rows, np.where(rows < 0, np.inf, np.sqrt(np.maximum(0, 2 - 2 * np.nan_to_num(cosines)))))


def candidate_pairs(views: Sequence[View]) -> Pairs:
    """The pairs that any of the views makes neighbors, with the ln E of all views together."""
    count = len(views[0].rows) if views else 0
    if count < FEWEST:
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    keys, values = zip(*(_log_shares(view, count) for view in views), strict=True)
    pair, place = np.unique(np.concatenate(keys), return_inverse=True)
    log_share = np.bincount(place, np.concatenate(values), minlength=len(pair))
    return Pairs(pair // count, pair % count, np.log(count * WITHIN) + log_share)


def duplicates(copies: Copies, labels: Array | None = None, splits: Array | None = None) -> dict[str, Found]:
    """Exact and near duplicates, those whose labels conflict, and those in another split.

    Args:
        copies: What `candidate_pairs` and `exact_copies` found.
        labels: (N,) class indices, if there are labels.
        splits: (N,) names of the splits, if there are several.

    Returns:
        `exact_duplicate`, `near_duplicate` (which counts the exact ones), with labels `conflicting_duplicate`, and with splits
        `leak`.
    """
    exact = copies.exact
    count = len(exact)
    same, pairs = _with_exact(copies.pairs, exact)
    found = beyond_chance(pairs.log_expected)
    group = joined_groups(count, pairs.first[found], pairs.second[found])
    near = Found(chance_score(_least(count, pairs)), group >= 0, group)
    result = {
        "exact_duplicate": Found(same.astype(np.float64), same, _numbered(np.where(same, exact, -1))),
        "near_duplicate": near,
    }
    if labels is not None:
        result["conflicting_duplicate"] = _differing(pairs, near, labels)
    if splits is not None:
        result["leak"] = _differing(pairs, near, np.unique(splits, return_inverse=True)[1])
    return result


def joined_groups(count: int, first: Array, second: Array) -> Array:
    """Pairs of rows -> the number of each row's group (N,), from 0 in the order of the rows; −1 for a row on its own."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(first), bool), (first, second)), shape=(count, count))
    member = connected_components(links, directed=False)[1]
    return _numbered(np.where(np.bincount(member)[member] > 1, member, -1))


def _log_shares(view: View, count: int) -> tuple[Array, Array]:
    """first · N + second of each pair (first < second) of a view, once, and the log of its share, times the view's weight."""
    rows, distances = view.rows, np.maximum(view.distances, LEAST)
    usual = distances[:, USUAL]
    known = np.isfinite(usual)
    scale = np.where(known, usual, 0).sum(1) / np.maximum(known.sum(1), 1)
    spacing, prior, rate = _spacings(usual)
    own = np.repeat(np.arange(count), rows.shape[1]).reshape(rows.shape)
    there = (rows >= 0) & np.isfinite(distances) & (scale[:, None] > 0) & (scale[rows] > 0)
    i, j, d = own[there], rows[there], distances[there]
    power = prior + usual.shape[1] - 1

    def at(end: Array) -> Array:
        nearer = np.log(scale[end] / d) / (rate + spacing[end])
        log_share: Array = -power * np.log1p(np.maximum(nearer, -0.9))
        return log_share

    value = np.maximum(at(i), at(j))
    if view.weight < 1:
        value = view.weight * np.minimum(value, 0)
    key = np.minimum(i, j) * count + np.maximum(i, j)
    key, first = np.unique(key, return_index=True)
    return key, value[first]


def _spacings(usual: Array) -> tuple[Array, float, float]:
    """Distances (N, k) of the usual neighbors -> S of each example (N,), and the parameters a and b of the prior on its intrinsic
    dimension.
    """
    steps = usual.shape[1] - 1
    ranks = np.arange(USUAL.start + 1, USUAL.start + 1 + steps)
    with np.errstate(invalid="ignore", divide="ignore"):
        spacing = (np.log(usual[:, 1:] / usual[:, :-1]) * ranks).sum(1)
    known = np.isfinite(spacing) & (spacing > 0)
    if steps < 1 or not known.any():
        return np.zeros(len(usual)), MOST_ALIKE, MOST_ALIKE
    mean = float(spacing[known].mean())
    excess = float((spacing[known] ** 2).mean()) / mean**2 * steps / (steps + 1)  # 1 if all examples have one dimension
    prior = min(MOST_ALIKE, (2 * excess - 1) / (excess - 1)) if excess > 1 else MOST_ALIKE
    return np.where(known, spacing, mean), prior, mean * (prior - 1) / steps


def _with_exact(pairs: Pairs, exact: Array) -> tuple[Array, Pairs]:
    """Whether another example has the same content (N,), and the pairs with a chain through all that have the same, E = 0."""
    order = np.argsort(exact, kind="stable")
    after = np.flatnonzero(exact[order][1:] == exact[order][:-1])
    first, second = order[after], order[after + 1]
    same = np.zeros(len(exact), bool)
    same[first] = same[second] = True
    both = (np.r_[pairs.first, first], np.r_[pairs.second, second], np.r_[pairs.log_expected, np.full(len(first), -np.inf)])
    return same, Pairs(*both)


def _differing(pairs: Pairs, near: Found, code: Array) -> Found:
    """The near duplicates whose group has several codes (N,), be they labels or splits."""
    assert near.group is not None
    member = near.group >= 0
    number = int(near.group.max(initial=-1)) + 1
    least, most = np.full(number + 1, np.iinfo(np.int64).max), np.full(number + 1, np.iinfo(np.int64).min)
    np.minimum.at(least, near.group, code)
    np.maximum.at(most, near.group, code)
    flag = member & (least != most)[near.group]
    other = code[pairs.first] != code[pairs.second]
    score = chance_score(_least(len(code), Pairs(pairs.first[other], pairs.second[other], pairs.log_expected[other])))
    return Found(np.where(flag, np.maximum(score, near.score), score), flag, _numbered(np.where(flag, near.group, -1)))


def _least(count: int, pairs: Pairs) -> Array:
    """The smallest ln E of each row's pairs (N,); ∞ without any."""
    least = np.full(count, np.inf)
    for side in (pairs.first, pairs.second):
        np.minimum.at(least, side, pairs.log_expected)
    return least


def _numbered(group: Array) -> Array:
    """Group numbers (N,) as 0, 1, ... in the order of the rows; −1 stays."""
    names, first, place = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(np.where(names < 0, -1, first), kind="stable")] = np.arange(len(names)) - int(len(names) and names[0] < 0)
    return rank[place]
