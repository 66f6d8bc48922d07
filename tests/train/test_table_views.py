"""Views of a table's columns, with everything that is missing, constant or rare, and of rows that were not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mohs.data.columns import Column
from mohs.train.table_views import smooth_view, tree_view

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


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"no day"}))
def test_new_rows_are_viewed_by_the_statistics_of_the_seen_ones(name: str) -> None:
    column = COLUMNS[name]
    whole = smooth_view([column], lengths)
    for rows in (slice(0, 1), slice(7, 60)):
        made = smooth_view([replace(column, values=column.values[rows])], lengths, seen=[column])
        np.testing.assert_allclose(made, whole[rows], atol=1e-9)


def test_values_that_were_not_seen() -> None:
    color = COLUMNS["color"]
    new = replace(color, values=np.array([4, -1, 0]), levels=(*color.levels, "e"))
    made = smooth_view([new], lengths, seen=[color])
    assert made.shape[1] == 5
    np.testing.assert_allclose(made[1:], smooth_view([replace(color, values=np.array([-1, 0]))], lengths, seen=[color]))
    assert np.ptp(made[0] + smooth_view([color], lengths).mean(0)) < np.ptp(made[2])  # none of the units of a known level
    for name, values in (("normal", [1e30, -1e30]), ("skewed", [1e30, -1.0]), ("moment", [1e7, 0.0]), ("few", [77.0, -3.0])):
        made = smooth_view([replace(COLUMNS[name], values=np.array(values))], lengths, seen=[COLUMNS[name]])
        assert np.abs(made).max() <= 6, name
        assert made[0, 0] > 1 > -1 > made[1, 0], name
