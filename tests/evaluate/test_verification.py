"""Verification of pairs: thresholds from the other folds, against a search over scikit-learn's folds and scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score
from sklearn.model_selection import PredefinedSplit

from mohs._core.errors import DataError
from mohs.evaluate.verification import Pairs, best_threshold, make_pairs, verification, verify


def by_search(similarity: np.ndarray, same: np.ndarray, fold: np.ndarray) -> float:
    """The protocol, written out: a threshold between any two values, scored on the other folds; the largest of the best."""
    scores = []
    for others, held in PredefinedSplit(fold).split():
        known = np.unique(similarity[others])
        candidates = [-np.inf, *(known[1:] + known[:-1]) / 2, np.inf]
        right = [accuracy_score(same[others], similarity[others] >= t) for t in candidates]
        threshold = max(t for t, score in zip(candidates, right, strict=True) if score == max(right))
        scores.append(accuracy_score(same[held], similarity[held] >= threshold))
    return float(np.mean(scores))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_search_over_all_thresholds(seed: int) -> None:
    draw = np.random.default_rng(seed)
    same = draw.random(200) < 0.5
    similarity = np.round(draw.normal(size=200) + same, 1)  # rounded: with ties
    fold = np.arange(200) % 10
    found = verify(similarity, same, fold)
    assert found.accuracy == pytest.approx(by_search(similarity, same, fold))
    assert found.pairs == 200
    assert 0 < found.error < 0.1


def test_the_threshold_of_separable_pairs_and_of_hopeless_ones() -> None:
    assert best_threshold(torch.tensor([0.1, 0.9, 0.4]), torch.tensor([False, True, False])) == pytest.approx(0.65)
    assert best_threshold(torch.tensor([0.9, 0.1]), torch.tensor([True, True])) == float("-inf")
    assert best_threshold(torch.tensor([0.9, 0.1]), torch.tensor([False, False])) == float("inf")


def test_features_that_name_their_class_are_verified() -> None:
    labels = torch.arange(20).repeat_interleave(6)
    features = torch.eye(20)[labels] + 0.01 * torch.randn(120, 20, generator=torch.Generator().manual_seed(0))
    assert verification(features, make_pairs(labels)).accuracy == 1.0
    noise = torch.randn(120, 20, generator=torch.Generator().manual_seed(1))
    assert verification(noise, make_pairs(labels)).accuracy < 0.6


def test_folds_share_no_class_and_have_as_many_pairs_of_either_kind() -> None:
    labels = torch.arange(7).repeat_interleave(4)
    pairs = make_pairs(labels, folds=10, seed=3)
    assert sorted(pairs.fold.unique().tolist()) == [0, 1, 2]  # two classes each at least
    assert torch.equal(pairs.same, labels[pairs.first] == labels[pairs.second])
    seen = [set(labels[torch.cat([pairs.first[pairs.fold == f], pairs.second[pairs.fold == f]])].tolist()) for f in range(3)]
    assert set.union(*seen) == set(range(7))
    assert sum(map(len, seen)) == 7
    for f in range(3):
        assert int((pairs.same & (pairs.fold == f)).sum()) * 2 == int((pairs.fold == f).sum())
    assert len(set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))) == len(pairs.first)


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="at least four classes"):
        make_pairs([0, 0, 1, 1, 2, 2])
    with pytest.raises(DataError, match="at least two folds"):
        verify([0.1, 0.2], [True, False], [0, 0])
    one = torch.tensor([0])
    with pytest.raises(DataError, match=r"features\[1\] holds NaN"):
        verification([[1.0], [float("nan")]], Pairs(one, one + 1, one.bool(), one))
