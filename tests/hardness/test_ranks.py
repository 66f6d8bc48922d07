"""Ranks among all values or a sample of them, and how the sample is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from mohs.hardness.ranks import Ranks, drawn_rows


def test_all_rows_or_one_in_each_stretch() -> None:
    assert drawn_rows(7, 7).tolist() == list(range(7))
    for count, most in ((1000, 10), (1003, 10), (10**12, 1000)):
        rows = drawn_rows(count, most, seed=3)
        edges = np.arange(most + 1) * count // most
        assert ((rows >= edges[:-1]) & (rows < edges[1:])).all()
    assert (drawn_rows(1000, 10, seed=0) != drawn_rows(1000, 10, seed=1)).any()
    assert (drawn_rows(1000, 10) == drawn_rows(1000, 10)).all()


def test_every_row_is_as_likely() -> None:
    hits = np.bincount(np.concatenate([drawn_rows(50, 10, seed=seed) for seed in range(4000)]), minlength=50)
    assert hits.min() > 0.85 * 800
    assert hits.max() < 1.15 * 800


def test_ranks_among_all_values_are_exact_ties_in_the_middle() -> None:
    values = np.random.default_rng(0).integers(0, 30, size=200).astype(float)
    ranks = Ranks.of(values)
    np.testing.assert_array_equal(ranks.rank(values), (rankdata(values) - 1) / 199)
    assert ranks.rank([np.nan, -1, 99]).tolist() == [0.5, 0, 1]
    assert ranks.grade([np.nan, -1, 99]).tolist() == [0, 1, 10]


def test_ranks_among_a_sample_are_close() -> None:
    values = np.random.default_rng(0).normal(size=100_000)
    some = Ranks.of(values[drawn_rows(len(values), 5000)])
    assert np.abs(some.rank(values) - Ranks.of(values).rank(values)).max() < 0.025  # Kolmogorov: 1.6/√5000
    counts = np.bincount(some.grade(values), minlength=11)[1:]
    assert counts.sum() == 100_000
    np.testing.assert_allclose(counts, 10_000, rtol=0.15)


@pytest.mark.parametrize("values", [[], [np.nan], [2.0]])
def test_with_nothing_to_compare_there_is_no_rank(values: list[float]) -> None:
    assert Ranks.of(values).rank([1.0, np.nan]).tolist() == [0.5, 0.5]
