"""Verification of pairs: do two examples show the same class, one that training may never have seen?

    same if cos(f₁, f₂) ≥ t          t: the threshold with the best accuracy on the other folds; accuracy: mean over the folds

This is the protocol of Labeled Faces in the Wild (10 folds that share no person, as many pairs of one person as of two). A
threshold lies halfway between two neighboring values; of several that are equally good the largest is used. Time is O(P log P)
for P pairs.
Huang et al., "Labeled Faces in the Wild" (2007), section IV; ADR, Tables 5 and 6.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.angle import unit
from mohs.evaluate.validate_inputs import numbers, same_length

FOLDS = 10


@dataclass(frozen=True)
class Verification:
    """Mean accuracy over the folds, its standard error, the median threshold on the cosine, and the number of pairs."""

    accuracy: float
    error: float
    threshold: float
    pairs: int


@dataclass(frozen=True)
class Pairs:
    """Pairs of examples: their places (P,), whether both are of one class (P,), and the fold of each pair (P,)."""

    first: Tensor
    second: Tensor
    same: Tensor
    fold: Tensor


@torch.no_grad()
def verification(features: Any, pairs: Pairs) -> Verification:
    """Features (N, D) and pairs of them -> accuracy over the folds."""
    x = unit(numbers("features", features, dims=(2,))).cpu()
    return verify((x[pairs.first] * x[pairs.second]).sum(1), pairs.same, pairs.fold)


def verify(similarity: Any, same: Any, fold: Any) -> Verification:
    """Similarities (P,) of pairs, whether they are the same (P,) and their folds (P,) -> accuracy over the folds."""
    values = numbers("similarity", similarity, dims=(1,)).double()
    truth, folds = torch.as_tensor(same).bool(), torch.as_tensor(fold)
    same_length(similarity=values, same=truth, fold=folds)
    names = torch.unique(folds)
    if len(names) < 2:
        raise DataError("verification needs at least two folds: the threshold is chosen on the others")
    right, thresholds = [], []
    for name in names:
        held = folds == name
        thresholds.append(best_threshold(values[~held], truth[~held]))
        right.append(((values[held] >= thresholds[-1]) == truth[held]).double().mean())
    every = torch.stack(right)
    error = float(every.std() / len(names) ** 0.5)
    return Verification(float(every.mean()), error, statistics.median(thresholds), len(values))


def best_threshold(values: Tensor, same: Tensor) -> float:
    """The largest threshold that separates the pairs best, halfway between two values or beyond all of them."""
    order = values.argsort(descending=True)
    ranked = values[order]
    gained = torch.where(same[order], 1, -1).cumsum(0)  # correct decisions more than if no pair counts as the same
    last = torch.cat([ranked[1:] != ranked[:-1], torch.ones(1, dtype=torch.bool)])  # pairs of equal value go together
    gained = gained.masked_fill(~last, -len(values) - 1)
    at = int(gained.argmax())
    if gained[at] <= 0:
        return float("inf")
    return float("-inf") if at == len(ranked) - 1 else float(ranked[at] + ranked[at + 1]) / 2


def make_pairs(labels: Any, *, folds: int = FOLDS, seed: int = 0) -> Pairs:
    """Pairs in folds that share no class: as many of one class as of two, and as many as the classes of the fold allow.

    Classes are assigned to folds at random; a fold has at least two classes, so few classes give fewer folds.
    """
    y = torch.as_tensor(labels)
    classes = torch.unique(y)
    folds = min(folds, len(classes) // 2)
    if folds < 2:
        raise DataError(f"verification needs at least four classes, two for each of two folds; there are {len(classes)}")
    draw = torch.Generator().manual_seed(seed)
    classes = classes[torch.randperm(len(classes), generator=draw)]
    found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for fold in range(folds):
        own = torch.isin(y, classes[fold::folds]).nonzero().flatten()
        first, second = torch.combinations(own, 2).unbind(1)
        same = y[first] == y[second]
        count = int(min(same.sum(), (~same).sum()))
        for kind in (same, ~same):
            places = kind.nonzero().flatten()
            places = places[torch.randperm(len(places), generator=draw)[:count]]
            found.append((first[places], second[places], same[places], torch.full_like(places, fold)))
    return Pairs(*(torch.cat(parts) for parts in zip(*found, strict=True)))
