"""Foreign examples are found, with help of the classes' probabilities; data without any stay unflagged."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import mohs


def blobs(seed: int, size: int = 600, dimensions: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=size)
    centers = 6 * rng.normal(size=(4, dimensions))
    return (centers[labels] + rng.normal(size=(size, dimensions))).astype(np.float32), labels


@pytest.mark.parametrize("seed", range(5))
def test_clean_data_have_at_most_a_stray_outlier(seed: int) -> None:
    assert mohs.find_issues(blobs(seed)[0]).found["outlier"].flag.sum() <= 1


def test_foreign_examples_score_highest() -> None:
    x, _ = blobs(0)
    x[:10] = 6 * np.random.default_rng(1).normal(size=(10, x.shape[1]))
    found = mohs.find_issues(x).found["outlier"]
    truth = np.arange(len(x)) < 10
    assert average_precision_score(truth, found.score) > 0.95
    assert found.flag[truth].sum() >= 5
    assert not found.flag[~truth].any()


def test_copies_of_an_outlier_do_not_hide_it() -> None:
    x, _ = blobs(0)
    x[:5] = -x[:5].sum(0)
    assert mohs.find_issues(x).found["outlier"].flag[:5].all()


def test_doubt_helps_and_does_not_flag_alone() -> None:
    x, labels = blobs(0)
    probs = np.full((len(x), 4), 0.01)
    probs[np.arange(len(x)), labels] = 0.97
    probs[:10] = 0.25
    without, with_doubt = (mohs.find_issues(x, labels, probs=p).found["outlier"] for p in (None, probs))
    rank = [np.argsort(np.argsort(-one.score))[:10].mean() for one in (without, with_doubt)]
    assert rank[1] < rank[0]
    assert with_doubt.flag.sum() <= 1


def test_few_examples_are_not_judged() -> None:
    found = mohs.find_issues(np.eye(5)).found["outlier"]
    assert np.isnan(found.score).all()
    assert not found.flag.any()
