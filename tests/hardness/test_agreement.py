"""Agreement with people: coefficients against scipy, the fast resampling against plain resampling, the tests by simulation."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, pearsonr, spearmanr

from mohs.hardness.agreement import (
    CIFAR10H_EDGES,
    by_bins,
    compare_scores,
    correlation,
    fisher_z,
    human_agreement,
    paired_bootstrap,
    steiger,
)
from mohs.hardness.correlation import KINDS, resampled
from mohs.hardness.table import make_table

SCIPY = {"spearman": spearmanr, "kendall": kendalltau, "pearson": pearsonr}


def people(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Agreement with many ties, a good score that runs against it, and a worse one that runs with it."""
    rng = np.random.default_rng(seed)
    agreement = np.minimum(1.0, np.round(rng.beta(6, 1, n) * 20) / 20)
    return agreement, -agreement + 0.1 * rng.normal(size=n), agreement + 0.4 * rng.normal(size=n)


def test_agreement_is_the_share_of_votes_for_the_label() -> None:
    counts = np.array([[3, 1, 0], [0, 0, 5], [2, 2, 4]], dtype=np.uint8)
    assert human_agreement(counts, [0, 2, 1]).tolist() == [0.75, 1.0, 0.25]
    assert human_agreement(counts, torch.tensor([1, 0, 2])).tolist() == [0.25, 0.0, 0.5]
    assert human_agreement(counts, ["cat", "eel", "dog"], classes=["cat", "dog", "eel"]).tolist() == [0.75, 1.0, 0.25]


@pytest.mark.parametrize(
    ("counts", "labels", "match"),
    [
        ([[1, 2], [0, 0]], [0, 1], r"counts\[1\].*sum above 0"),
        ([[1, 2], [3, -1]], [0, 1], r"counts\[1\].*at least 0"),
        ([[1, math.nan]], [0], r"counts\[0\]"),
        ([[1, 2]], [0, 1], "each of the 1 rows"),
        ([1, 2], [0, 1], "got shape"),
        ([[1, 2], [1, 2]], [0, 7], "different classes|outside"),
    ],
)
def test_bad_votes_are_named(counts: list, labels: list, match: str) -> None:
    if match.startswith("different"):  # 0 and 7 would be two names for two columns; 0, 1, 7 are one too many
        counts, labels = [*counts, [1, 1]], [*labels, 1]
    with pytest.raises(ValueError, match=match):
        human_agreement(counts, labels)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**31), n=st.integers(4, 60), levels=st.integers(2, 8))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_coefficients_match_scipy_including_ties(kind: str, seed: int, n: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, levels, n).astype(float), rng.integers(0, levels, n) / levels
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(correlation(x, y, kind=kind, resamples=0).value)
        return
    assert correlation(x, y, kind=kind, resamples=0).value == pytest.approx(SCIPY[kind](x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_resamples_match_a_loop(kind: str) -> None:
    agreement, good, poor = people(80)
    rng = np.random.default_rng(5)
    fast = resampled([good, poor], agreement, kind, resamples=20, seed=5)
    for row in fast:
        rows = rng.integers(0, 80, 80)
        plain = [SCIPY[kind](score[rows], agreement[rows]).statistic for score in (good, poor)]
        assert row == pytest.approx(plain, abs=1e-12)


def test_interval_has_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    rho = 0.5
    held = 0
    for seed in range(200):
        x, noise = rng.normal(size=(2, 100))
        found = correlation(x, rho * x + math.sqrt(1 - rho**2) * noise, kind="pearson", interval=0.9, resamples=300, seed=seed)
        held += found.low <= rho <= found.high
    assert 160 <= held <= 196  # 180 expected; percentiles run a little short


def test_infinite_scores_have_ranks_and_no_pearson() -> None:
    score, agreement = np.array([math.inf, 3.0, 2.0, 1.0]), np.array([0.1, 0.2, 0.3, 0.4])
    assert correlation(score, agreement, resamples=0).value == -1
    assert math.isnan(correlation(score, agreement, kind="pearson", resamples=0).value)


def test_bins_partition_the_examples_and_may_be_empty() -> None:
    agreement = np.array([0.0, 0.6, 0.61, 0.8, 0.95, 0.96, 0.99, 1.0, 1.0])
    bins = by_bins(np.arange(9.0), agreement, resamples=10)
    assert [b.correlation.n for b in bins] == [2, 2, 1, 2, 2]  # [0, .6], (.6, .8], (.8, .95], (.95, 1), 1
    assert bins[-1].low == bins[-1].high == 1.0
    assert [b.mean_score for b in bins] == [0.5, 2.5, 4.0, 5.5, 7.5]
    assert all(math.isnan(b.correlation.value) for b in bins)  # fewer than 3 examples, or all unanimous
    empty = by_bins(np.arange(9.0), agreement, edges=(0.1, 0.2, 1.0))
    assert empty[0].correlation.n == 0
    assert math.isnan(empty[0].mean_score)
    assert empty[1].correlation.n == 8
    assert empty[1].correlation.value == pytest.approx(spearmanr(np.arange(1, 9), agreement[1:]).statistic)


def test_bins_of_the_unanimous_have_no_correlation_though_others_have() -> None:
    agreement, good, _ = people()
    bins = by_bins(good, agreement, edges=CIFAR10H_EDGES, resamples=10)
    assert sum(b.correlation.n for b in bins) == 400
    assert bins[1].correlation.value < -0.3
    assert bins[1].correlation.low <= bins[1].correlation.value <= bins[1].correlation.high
    assert math.isnan(bins[-1].correlation.value)


def test_published_values_of_the_dependent_test() -> None:
    assert steiger(0.2, 0.5, 0.1, 315).z == pytest.approx(-4.4152, abs=5e-5)  # as R's cocor prints for these
    assert steiger(0.5, 0.2, 0.1, 315).z == pytest.approx(4.4152, abs=5e-5)


@pytest.mark.parametrize("between", [0.0, 0.5, 0.9])
def test_steiger_has_nominal_level_and_fisher_does_not(between: float) -> None:
    """Two scores equally correlated with a third variable, correlated with each other: every rejection is an error."""
    rng = np.random.default_rng(1)
    r, n, trials = 0.5, 150, 3000
    mix = np.linalg.cholesky(np.array([[1, r, r], [r, 1, between], [r, between, 1]]))
    wrong = {"steiger": 0, "fisher": 0}
    for _ in range(trials):
        a, b, c = np.corrcoef(mix @ rng.normal(size=(3, n)))[np.triu_indices(3, 1)]
        wrong["steiger"] += steiger(a, b, c, n).p_two_sided < 0.05
        wrong["fisher"] += fisher_z(a, b, n).p_two_sided < 0.05
    assert 0.04 <= wrong["steiger"] / trials <= 0.062
    if between == 0.9:
        assert wrong["fisher"] / trials < 0.01


def test_one_sided_and_two_sided() -> None:
    assert fisher_z(0.4, 0.4, 100).p == pytest.approx(0.5)
    assert steiger(0.4, 0.4, 1.0, 100).z == 0
    better, worse = fisher_z(0.5, 0.3, 100), fisher_z(0.3, 0.5, 100)
    assert better.z == -worse.z > 0
    assert better.p + worse.p == pytest.approx(1)
    assert better.p_two_sided == worse.p_two_sided == pytest.approx(2 * better.p)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fisher_z(1.0, 0.2, 100), "r1 must lie between"),
        (lambda: fisher_z(0.1, 0.2, 3), "n must be at least 4"),
        (lambda: steiger(0.1, math.nan, 0.2, 30), "r2 must lie between"),
        (lambda: steiger(0.9, -0.9, 0.9, 30), "no three variables"),
        (lambda: correlation([1, 2], [1, 2, 3]), "2 entries and agreement 3"),
        (lambda: correlation([1, math.nan, 2], [1, 2, 3]), r"score\[1\] is NaN"),
        (lambda: correlation([1, 2, 3], [1, 2, math.nan]), r"agreement\[2\] is NaN"),
        (lambda: correlation([[1], [2]], [1, 2]), "one number per example"),
        (lambda: correlation([1, 2], [1, 2], kind="cosine"), "spearman, kendall, pearson"),
        (lambda: correlation([1, 2], [1, 2], interval=95), "interval must lie between 0 and 1, got 95"),
        (lambda: correlation([1, 2], [1, 2], resamples=-1), "resamples must be at least 0"),
        (lambda: by_bins([1, 2], [1, 2], edges=(0.5, 0.2)), "ascending order"),
        (lambda: compare_scores({}, [1, 2]), "scores is empty"),
        (lambda: compare_scores({"a": [1, 2]}, [1, 2], reference="b"), "reference must be one of a"),
    ],
)
def test_errors_name_the_argument(call: object, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["spearman", "pearson"])
def test_paired_bootstrap_finds_a_difference_whatever_the_signs(kind: str) -> None:
    agreement, good, poor = people()
    found = paired_bootstrap(good, poor, agreement, kind=kind)
    strength = abs(SCIPY[kind](good, agreement).statistic) - abs(SCIPY[kind](poor, agreement).statistic)
    assert found.value == pytest.approx(strength)
    assert 0 < found.low < found.value < found.high
    assert found.p < 0.01
    turned = paired_bootstrap(-good, poor, agreement, kind=kind)
    assert (turned.value, turned.low, turned.high) == pytest.approx((found.value, found.low, found.high))
    swapped = paired_bootstrap(poor, good, agreement, kind=kind)
    assert (swapped.value, swapped.low, swapped.high) == pytest.approx((-found.value, -found.high, -found.low))


def test_paired_bootstrap_has_nominal_error_rate() -> None:
    rng = np.random.default_rng(2)
    wrong = 0
    for seed in range(200):
        truth, a, b = rng.normal(size=(3, 120))
        wrong += paired_bootstrap(truth + a, truth + b, truth, resamples=200, seed=seed).p < 0.1
    assert 8 <= wrong <= 38  # 20 expected


def test_rows_of_a_results_table() -> None:
    agreement, good, poor = people()
    scores = {"poor": poor, "good": good, "flat": np.ones(400)}
    rows = compare_scores(scores, agreement, reference="poor", resamples=300)
    assert [row["score"] for row in rows] == ["good", "poor", "flat"]
    best, base, flat = rows
    assert best["value"] < 0 < base["value"]
    assert best["strength"] == -best["value"]
    alone = correlation(good, agreement, resamples=300)
    assert (best["value"], best["low"], best["high"]) == (alone.value, alone.low, alone.high)
    pair = paired_bootstrap(good, poor, agreement, resamples=300)
    assert (best["difference"], best["difference_low"], best["p_bootstrap"]) == (pair.value, pair.low, pair.p)
    assert best["p_steiger"] < best["p_fisher"] < 0.05  # they agree with each other, so Fisher's is too large
    assert (base["difference"], base["p_bootstrap"], base["p_steiger"], base["p_fisher"]) == (0, 1, 1, 1)
    assert math.isnan(flat["value"])
    assert math.isnan(flat["p_steiger"])


def test_a_hardness_table_provides_its_scores() -> None:
    agreement, good, poor = people()
    table = make_table({"id": np.arange(400), "avh": good, "confidence": poor, "label": ["a"] * 400})
    rows = compare_scores(table, agreement, reference="confidence", resamples=50)
    assert {row["score"] for row in rows} == {"avh", "confidence"}
    with pytest.raises(ValueError, match="no column that measures hardness"):
        compare_scores(pa.table({"id": [1, 2]}), [0.1, 0.2])
