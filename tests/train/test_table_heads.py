"""Views of a table's columns, with everything that is missing, constant or rare, and the models' out-of-sample scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mohs.data.columns import Column
from mohs.hardness.judgment import judge_labels
from mohs.train.table_heads import boost_scores, boosts, forest_scores, linear_scores, log_probs, smooth_view, tree_view

N = 400
RANDOM = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def lengths(texts: list[str]) -> Array:
    """Texts as vectors: how often each vowel occurs."""
    return np.array([[text.count(letter) for letter in "aeiou"] for text in texts], dtype=float)


def holes(values: Array, share: float = 0.2) -> Array:
    return np.where(np.random.default_rng(1).random(len(values)) < share, np.nan, values)


COLUMNS: dict[str, Column] = {
    "normal": Column("normal", "numeric", RANDOM.normal(size=N)),
    "holes": Column("holes", "numeric", holes(RANDOM.normal(size=N))),
    "skewed": Column("skewed", "numeric", np.exp(3 * RANDOM.normal(size=N))),
    "few": Column("few", "numeric", RANDOM.integers(0, 5, N).astype(float)),
    "constant": Column("constant", "numeric", np.full(N, 7.0)),
    "all missing": Column("all missing", "numeric", np.full(N, np.nan)),
    "one missing": Column("one missing", "numeric", np.where(np.arange(N) == 3, np.nan, RANDOM.normal(size=N))),
    "huge": Column("huge", "numeric", np.where(np.arange(N) == 5, 1e150, RANDOM.normal(size=N))),
    "yes": Column("yes", "boolean", holes(RANDOM.integers(0, 2, N).astype(float))),
    "day": Column("day", "date", holes(18_000 + RANDOM.integers(0, 900, N).astype(float))),
    "moment": Column("moment", "date", 18_000 + 900 * RANDOM.random(N)),
    "no day": Column("no day", "date", np.full(N, np.nan)),
    "color": Column("color", "categorical", RANDOM.integers(-1, 4, N), ("a", "b", "c", "d")),
    "two": Column("two", "categorical", RANDOM.integers(-1, 2, N), ("a", "b")),
    "rare": Column("rare", "categorical", np.where(np.arange(N) < 300, 0, np.arange(N) - 299), tuple(map(str, range(101)))),
    "many": Column("many", "categorical", RANDOM.integers(0, 50, N), tuple(map(str, range(50)))),
    "one level": Column("one level", "categorical", np.zeros(N, int), ("a",)),
    "no level": Column("no level", "categorical", np.full(N, -1), ("a", "b")),
    "words": Column("words", "text", np.array(["a pie " * int(k) for k in RANDOM.integers(0, 9, N)], dtype=object)),
    "silence": Column("silence", "text", np.array([""] * N, dtype=object)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"no day"}))
def test_every_column_has_finite_smooth_units_of_moderate_variance(name: str) -> None:
    made = smooth_view([COLUMNS[name]], lengths)
    assert len(made) == N
    assert np.isfinite(made).all()
    assert np.abs(made).max() <= 6 + 1e-9 or COLUMNS[name].role in ("categorical", "text")
    total = made.var(0).sum()
    if name in ("constant", "all missing", "one level", "no level", "silence"):
        assert total == 0
    elif name != "huge":
        assert 0.5 < total < 5


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"no day"}))
def test_the_tree_view_keeps_missing_values(name: str) -> None:
    made = tree_view([COLUMNS[name]], lengths)
    assert made.dtype == np.float32
    assert made.shape[0] == N
    assert not np.isinf(made).any()
    column = COLUMNS[name]
    if column.role in ("numeric", "boolean"):
        np.testing.assert_array_equal(np.isnan(made[:, 0]), np.isnan(column.values))


def test_dates_that_are_all_missing() -> None:
    with np.errstate(all="ignore"):
        assert np.isfinite(smooth_view([COLUMNS["no day"]], lengths)).all()
        assert np.isnan(tree_view([COLUMNS["no day"]], lengths)).all()


def test_numbers_are_standardized_ranked_and_marked() -> None:
    normal = smooth_view([COLUMNS["normal"]], lengths)
    values = COLUMNS["normal"].values
    np.testing.assert_allclose(normal[:, 0], (values - values.mean()) / values.std())
    skewed = smooth_view([COLUMNS["skewed"]], lengths)[:, 0]
    order = np.argsort(COLUMNS["skewed"].values)
    assert (np.diff(skewed[order]) > 0).all()
    assert abs((skewed**3).mean()) < 0.1  # ranks: no longer skewed
    with_holes = smooth_view([COLUMNS["holes"]], lengths)
    missing = np.isnan(COLUMNS["holes"].values)
    assert with_holes.shape[1] == 2
    assert len(np.unique(with_holes[missing], axis=0)) == 1
    assert set(with_holes[missing, 1]).isdisjoint(with_holes[~missing, 1])
    assert smooth_view([COLUMNS["one missing"]], lengths).shape[1] == 1  # a mark on one row would only name it
    assert smooth_view([COLUMNS["few"]], lengths).shape[1] == 6  # value, and one unit for each of five values


def test_rare_categories_share_a_unit_and_missing_is_one() -> None:
    rare = smooth_view([COLUMNS["rare"]], lengths)
    assert rare.shape[1] == 2  # the common level, and all others together
    assert len(np.unique(rare[300:], axis=0)) == 1
    color = smooth_view([COLUMNS["color"]], lengths)
    assert color.shape[1] == 5
    assert len(np.unique(color.round(9), axis=0)) == 5
    assert color.var(0).sum() == pytest.approx(1)
    two = tree_view([COLUMNS["two"]], lengths)[:, 0]
    np.testing.assert_array_equal(np.isnan(two), COLUMNS["two"].values < 0)
    many = tree_view([COLUMNS["many"]], lengths)
    counts = np.bincount(COLUMNS["many"].values, minlength=50)
    np.testing.assert_array_equal(many[:, -1], counts[COLUMNS["many"].values])
    rank = many[:, -2]
    assert (np.diff(counts[COLUMNS["many"].values][np.argsort(rank, kind="stable")]) <= 0).all()


def test_order_of_rows_does_not_matter() -> None:
    rows = np.random.default_rng(2).permutation(N)
    used = [column for name, column in COLUMNS.items() if name != "no day"]
    shuffled = [Column(c.name, c.role, c.values[rows], c.levels) for c in used]
    np.testing.assert_allclose(smooth_view(shuffled, lengths).var(0).sum(), smooth_view(used, lengths).var(0).sum())
    before, after = (tree_view([c for c in some if c.role == "numeric"], lengths) for some in (used, shuffled))
    np.testing.assert_array_equal(after, before[rows])


# --- models --------------------------------------------------------------------------------------------------------------


def problem(wrong: float = 0.0) -> tuple[list[Column], Array, Array]:
    """Three classes by two numbers and a category, with missing values; given and true labels."""
    random = np.random.default_rng(3)
    true = np.arange(N) % 3
    x = np.stack([np.cos(2.1 * true), np.sin(2.1 * true)], 1) + 0.35 * random.normal(size=(N, 2))
    color = np.where(random.random(N) < 0.9, true, random.integers(0, 3, N))
    color[random.random(N) < 0.1] = -1
    columns = [
        Column("x", "numeric", holes(x[:, 0], 0.1)),
        Column("y", "numeric", x[:, 1]),
        Column("color", "categorical", color, ("red", "green", "blue")),
        Column("noise", "numeric", random.normal(size=N)),
    ]
    given = np.where(random.random(N) < wrong, (true + random.integers(1, 3, N)) % 3, true)
    return columns, given, true


def all_scores(columns: list[Column], labels: Array, classes: int = 3) -> dict[str, Array]:
    fold, smooth, trees = np.arange(len(labels)) % 5, smooth_view(columns, lengths), tree_view(columns, lengths)
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
    smooth, trees = smooth_view(columns, lengths), tree_view(columns, lengths)
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
    scores, _ = linear_scores(smooth_view(columns, lengths), few, 2, np.arange(N) % 5)
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
    columns = [COLUMNS["normal"], Column("rare", "numeric", known)]
    labels = (COLUMNS["normal"].values > 0).astype(np.int64)
    fold = np.where(np.isnan(known), 1 + np.arange(N) % 3, 0)
    scores, _ = boost_scores(columns, tree_view(columns, lengths), labels, 2, fold, 0)
    assert np.isfinite(scores).all()
    assert (scores.argmax(1) == labels).mean() > 0.95
