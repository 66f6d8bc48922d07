"""Out-of-sample scores of the models of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mohs.data.columns import Column
from mohs.hardness.judgment import judge_labels
from mohs.train.table_heads import boost_scores, boosts, forest_scores, linear_scores, log_probs
from mohs.train.table_views import smooth_view, tree_view

N = 400
Array = np.ndarray[Any, Any]


def problem(wrong: float = 0.0) -> tuple[list[Column], Array, Array]:
    """Three classes by two numbers and a category, with missing values; given and true labels."""
    random = np.random.default_rng(3)
    true = np.arange(N) % 3
    x = np.stack([np.cos(2.1 * true), np.sin(2.1 * true)], 1) + 0.35 * random.normal(size=(N, 2))
    color = np.where(random.random(N) < 0.9, true, random.integers(0, 3, N))
    color[random.random(N) < 0.1] = -1
    columns = [
        Column("x", "numeric", np.where(random.random(N) < 0.1, np.nan, x[:, 0])),
        Column("y", "numeric", x[:, 1]),
        Column("color", "categorical", color, ("red", "green", "blue")),
        Column("noise", "numeric", random.normal(size=N)),
    ]
    given = np.where(random.random(N) < wrong, (true + random.integers(1, 3, N)) % 3, true)
    return columns, given, true


def all_scores(columns: list[Column], labels: Array, classes: int = 3) -> dict[str, Array]:
    fold, smooth, trees = np.arange(len(labels)) % 5, smooth_view(columns), tree_view(columns)
    return {
        "linear": linear_scores(smooth, labels, classes, fold)[0],
        "forest": forest_scores(trees, labels, classes, 0)[0],
        "boost": boost_scores(columns, trees, labels, classes, fold, 0)[0],
    }


def test_models_find_wrong_labels() -> None:
    columns, given, true = problem(0.1)
    made, wrong = all_scores(columns, given), given != true
    for name, scores in made.items():
        assert (scores.argmax(1) == true).mean() > 0.9, name
        np.testing.assert_allclose(np.exp(scores).sum(1), 1, atol=2e-3)
    judgment = judge_labels(np.stack(list(made.values())), given)
    assert wrong[judgment.flagged].mean() > 0.8
    assert (wrong & judgment.flagged).sum() > 0.7 * wrong.sum()
    again = all_scores(columns, given)
    for name, scores in made.items():
        np.testing.assert_array_equal(again[name], scores)


@pytest.mark.parametrize("row", [3, 120])
def test_no_label_influences_its_own_scores(row: int) -> None:
    columns, given, _ = problem(0.1)
    fold, changed = np.arange(N) % 5, given.copy()
    changed[row] = (changed[row] + 1) % 3
    smooth, trees = smooth_view(columns), tree_view(columns)
    for before, after in (
        (linear_scores(smooth, given, 3, fold), linear_scores(smooth, changed, 3, fold)),
        (boost_scores(columns, trees, given, 3, fold, 0), boost_scores(columns, trees, changed, 3, fold, 0)),
    ):
        np.testing.assert_allclose(after[0][row], before[0][row], atol=0.02)  # the class frequencies alone are mixed in
        assert np.abs(after[0] - before[0])[fold != fold[row]].max() > 1e-3


def test_classes_of_one_two_or_no_examples() -> None:
    columns, given, _ = problem()
    given = given.copy()
    given[0], given[1], given[2] = 4, 5, 5  # classes 3 (none), 4 (one example), 5 (two)
    for name, scores in all_scores(columns, given, 6).items():
        assert scores.shape == (N, 6), name
        assert np.isfinite(scores).all(), name
    few = np.where(np.arange(N) < 1, 1, 0)  # some folds see a single class
    scores, _ = linear_scores(smooth_view(columns), few, 2, np.arange(N) % 5)
    assert np.isfinite(scores).all()


def test_log_probs_mix_in_the_class_frequencies() -> None:
    labels = np.array([0, 0, 0, 1])
    probs = np.array([[1.0, 0.0], [np.nan, 0.5], [0.0, 0.0], [0.25, 0.75]])
    found = np.exp(log_probs(probs, labels))
    prior = np.array([3.5, 1.5]) / 5
    little = 0.5 * prior + 0.25
    for row, p in zip(found, (probs[0], prior, prior, probs[3]), strict=True):
        np.testing.assert_allclose(row, 0.999 * p + 0.001 * little)


def test_boosting_is_for_few_rows_or_classes() -> None:
    assert boosts(1000, 40)
    assert not boosts(1001, 40)
    assert boosts(10**6, 3)


def test_a_column_with_few_known_values_is_not_boosted() -> None:
    """Where the known values are all held out, scikit-learn cannot bin the column."""
    known = np.full(N, np.nan)
    known[:3] = [1.0, 2.0, 3.0]
    values = np.random.default_rng(0).normal(size=N)
    columns = [Column("normal", "numeric", values), Column("rare", "numeric", known)]
    labels = (values > 0).astype(np.int64)
    fold = np.where(np.isnan(known), 1 + np.arange(N) % 3, 0)
    scores, _ = boost_scores(columns, tree_view(columns), labels, 2, fold, 0)
    assert np.isfinite(scores).all()
    assert (scores.argmax(1) == labels).mean() > 0.95


def test_a_forest_in_groups_scores_each_row_without_its_fold() -> None:
    rng = np.random.default_rng(0)
    own = np.repeat(np.arange(60), 6)
    x, labels = rng.normal(size=(60, 4))[own], rng.integers(0, 2, 60)[own]  # the groups alone tell the labels
    fold = own % 5
    known, _ = forest_scores(x, labels, 2, 0)
    unknown, _ = forest_scores(x, labels, 2, 0, fold=fold)
    assert (known.argmax(1) == labels).mean() > 0.95
    assert (unknown.argmax(1) == labels).mean() < 0.7


def test_a_fold_may_hold_all_but_one_example_of_a_class() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    labels = np.where(np.arange(200) < 8, 2, (x[:, 0] > 0).astype(int))
    fold = np.where(np.arange(200) < 7, 0, np.arange(200) % 5)
    columns = [Column("x", "numeric", x[:, 0]), Column("y", "numeric", x[:, 1])]
    scores, _ = boost_scores(columns, x, labels, 3, fold, 0)
    assert np.isfinite(scores).all()
    assert (scores.argmax(1) == labels)[8:].mean() > 0.9
