"""Statistics: against SciPy, AMC's Table 1 from its printed means, Holm by hand, and the verdict's words."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mohs._core.errors import DataError
from mohs.evaluate.statistics import (
    benjamini_hochberg,
    bootstrap,
    compare,
    detectable,
    equivalence,
    exceeds,
    from_summary,
    holm,
    one_sample,
    paired,
    summary,
    two_sample,
)


@pytest.mark.parametrize(
    ("data", "amc", "euclid", "printed"),
    [
        ("MNIST", (99.66, 0.01), (99.65, 0.01), 0.1525),
        ("CIFAR-10", (82.97, 0.20), (82.60, 0.21), 0.0214),
        ("SVHN", (95.52, 0.05), (95.29, 0.06), 0.0002),
        ("CIFAR-100", (66.19, 0.22), (65.57, 0.20), 0.0016),
    ],
)
def test_amc_table_1_is_students_two_sided_of_five_runs(data: str, amc, euclid, printed: float) -> None:
    found = from_summary(*amc, 5, *euclid, 5, pooled=True)
    assert round(found.p, 4) == printed
    assert found.df == 8


@given(seed=st.integers(0, 2**31), n=st.integers(2, 8), m=st.integers(2, 8))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_tests_match_scipy(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(1, 2, n), rng.normal(0, 1, m)
    for pooled in (False, True):
        theirs = stats.ttest_ind(a, b, equal_var=pooled)
        ours = two_sample(a, b, pooled=pooled)
        assert (ours.t, ours.p, ours.df) == pytest.approx((theirs.statistic, theirs.pvalue, theirs.df))
        span = theirs.confidence_interval(0.95)
        assert (ours.low, ours.high) == pytest.approx((span.low, span.high))
    c = rng.normal(0, 1, n)
    theirs, ours = stats.ttest_rel(a, c), paired(a, c)
    assert (ours.t, ours.p, ours.df) == pytest.approx((theirs.statistic, theirs.pvalue, theirs.df))
    span = theirs.confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((span.low, span.high))


def test_summary() -> None:
    found = summary([1.0, 2.0, 3.0])
    assert (found.mean, found.sd, found.n) == (2, 1, 3)
    low, high = stats.t.interval(0.95, 2, 2, 1 / math.sqrt(3))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert str(found) == "2 ± 1 (n = 3)"
    one = summary([0.5])
    assert math.isnan(one.sd)
    assert math.isnan(one.low)
    assert str(one) == "0.5"


def test_bootstrap_covers_and_is_seeded() -> None:
    x = np.random.default_rng(0).exponential(size=60)
    for method, name in (("bca", "BCa"), ("percentile", "percentile")):
        theirs = stats.bootstrap((x,), np.mean, method=name, rng=np.random.default_rng(0)).confidence_interval
        assert bootstrap(x, method=method) == pytest.approx((theirs.low, theirs.high))
    low, high = bootstrap(x, statistic=np.median, resamples=500, interval=0.5)
    assert low <= np.median(x) <= high
    assert bootstrap([2.0, 2.0, 2.0]) == (2.0, 2.0)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    got = holm([0.02, math.nan, 0.04])
    assert got[0] == pytest.approx(0.04)
    assert math.isnan(got[1])
    assert got[2] == pytest.approx(0.04)
    assert holm([]) == []


def test_verdicts() -> None:
    better, worse = [0.91, 0.92, 0.93, 0.92], [0.80, 0.81, 0.79, 0.80]
    assert compare(better, worse).verdict == "holds"
    assert compare(worse, better).verdict == "fails"
    assert compare(worse, better, "lower").verdict == "holds"
    assert compare(better, better).verdict == "draw"
    assert compare(better, worse).sentence.startswith(
        "holds: ours is better (higher is better): ours 0.92 ± 0.0082 (n = 4) against 0.8 ± 0.0082 (n = 4); difference +0.12 ["
    )
    assert "Welch" in compare(better, worse).sentence
    alone = compare([0.9], worse)
    assert (alone.verdict, alone.test) == ("draw", None)
    assert alone.sentence.endswith("one run cannot show a difference")


def test_pairing_detects_differences_that_seeds_hide() -> None:
    base = np.array([0.70, 0.75, 0.80, 0.85, 0.90])
    ours = base + np.array([0.010, 0.011, 0.009, 0.010, 0.012])
    assert compare(ours, base).verdict == "draw"
    assert compare(ours, base, pair=True).verdict == "holds"
    assert "paired t-test" in compare(ours, base, pair=True).sentence


def test_constant_runs_are_judged_by_exact_tests() -> None:
    assert compare([1.0, 1.0], [0.5, 0.5]).verdict == "draw"  # two runs each: 2 of the 6 permutations are as extreme
    assert two_sample([1.0, 1.0], [0.5, 0.5]).p == pytest.approx(1 / 3)
    assert two_sample([1.0] * 5, [0.5] * 5).p == pytest.approx(2 / 252)
    assert compare([1.0, 1.0], [1.0, 1.0]).verdict == "draw"
    assert two_sample([1.0, 1.0], [1.0, 1.0]).p == 1


@pytest.mark.parametrize("n", [2, 3, 5, 6, 12])
def test_equal_differences_are_judged_by_the_sign_test(n: int) -> None:
    ours, theirs = [0.3 + 0.1 * seed for seed in range(n)], [0.2 + 0.1 * seed for seed in range(n)]
    found = paired(ours, theirs)  # 0.1 each time, up to rounding
    assert found.p == pytest.approx(stats.binomtest(n, n).pvalue)
    assert (found.low, found.high) == pytest.approx((0.1, 0.1) if n >= 6 else (-math.inf, math.inf))
    assert exceeds(found) == pytest.approx(0.5**n)
    assert exceeds(found, 0.2) == pytest.approx(1 - 0.5**n)
    assert exceeds(found, found.difference) == 0.5
    assert (compare(ours, theirs, pair=True).verdict == "holds") == (n >= 6)


@pytest.mark.parametrize("round_to", [lambda value: round(value, 6), lambda value: float(f"{value:.6g}"), float])
def test_accuracies_that_differ_by_equally_many_examples_show_little(round_to: Callable[[float], float]) -> None:
    ours, theirs = ([round_to(right / 360) for right in runs] for runs in ((331, 325), (324, 318)))
    found = paired(ours, theirs)  # 7 of 360 examples with both seeds: a variance of rounding errors would give p < 1e-5
    assert (found.p, found.low, found.high) == (0.5, -math.inf, math.inf)
    assert paired([*ours, round_to(320 / 360)], [*theirs, round_to(312 / 360)]).error > 0  # one example more is a difference


@given(seed=st.integers(0, 2**31), n=st.integers(2, 8), bound=st.floats(-2, 2), margin=st.floats(0.1, 3))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_one_sided_tests_match_scipy(seed: int, n: int, bound: float, margin: float) -> None:
    x = np.random.default_rng(seed).normal(0.5, 1, n)
    found = one_sample(x)
    above, below = (stats.ttest_1samp(x, bound, alternative=side).pvalue for side in ("greater", "less"))
    assert (exceeds(found, bound), 1 - exceeds(found, bound)) == pytest.approx((above, below))
    both = max(
        stats.ttest_1samp(x, -margin, alternative="greater").pvalue, stats.ttest_1samp(x, margin, alternative="less").pvalue
    )
    assert equivalence(found, margin) == pytest.approx(both)
    span = stats.ttest_1samp(x, 0).confidence_interval(0.9)  # TOST at 5 % is the 90 % interval within the margin
    assert (equivalence(found, margin) < 0.05) == (-margin < span.low and span.high < margin)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_false_discovery_rate_is_controlled_as_by_scipy(p: list[float]) -> None:
    q = benjamini_hochberg(p)
    assert q == pytest.approx(stats.false_discovery_control(p, method="bh").tolist())
    assert all(one >= each - 1e-12 for one, each in zip(q, p, strict=True))
    assert all(one <= each + 1e-12 for one, each in zip(q, holm(p), strict=True))
    assert benjamini_hochberg([*p, math.nan])[:-1] == q


def test_detectable_effects_are_those_of_power_tables() -> None:
    for n, effect in ((5, 1.682), (10, 0.996), (20, 0.660), (50, 0.404)):  # two-sided, α = .05, power .8 (G*Power)
        assert detectable(1.0, n) == pytest.approx(effect, abs=2e-3)
    assert detectable(2.0, 5) == pytest.approx(2 * detectable(1.0, 5))
    assert detectable(1.0, 3) > detectable(1.0, 4)
    assert math.isnan(detectable(1.0, 1))
    assert math.isnan(detectable(0.0, 3))


def test_a_detectable_effect_is_found_in_four_of_five_studies() -> None:
    drawn = np.random.default_rng(0).normal(detectable(1.0, 3), 1.0, (20_000, 3))
    assert (stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.01)


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match=r"values has 0 run\(s\): this needs at least 1"):
        summary([])
    with pytest.raises(DataError, match=r"a has 1 run\(s\): this needs at least 2"):
        two_sample([1.0], [1.0, 2.0])
    with pytest.raises(DataError, match=r"b\[1\] is nan: leave failed runs out, and report it"):
        two_sample([1.0, 2.0], [1.0, math.nan])
    with pytest.raises(ValueError, match="a has 2 runs and b 3: a paired test needs equal numbers"):
        paired([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"values must hold one number per run, shape \(n,\)"):
        summary([[1.0]])
    with pytest.raises(ValueError, match="direction must be one of higher, lower, got 'up'"):
        compare([1.0, 2.0], [1.0, 2.0], "up")
    with pytest.raises(ValueError, match="alpha must be over 0 and under 1, got 1"):
        compare([1.0, 2.0], [1.0, 2.0], alpha=1)
    with pytest.raises(ValueError, match="interval must be over 0 and under 1, got 95"):
        summary([1.0, 2.0], interval=95)
    with pytest.raises(ValueError, match="n_a must be at least 2, got 1"):
        from_summary(1, 1, 1, 1, 1, 5)
    with pytest.raises(ValueError, match="sd_b must be at least 0, got -1"):
        from_summary(1, 1, 5, 1, -1, 5)
    with pytest.raises(ValueError, match=r"p_values must be between 0 and 1, got \[0.5, 2\]"):
        holm([0.5, 2])
    with pytest.raises(ValueError, match="margin must be greater than 0"):
        equivalence(paired([1.0, 2.0], [1.0, 3.0]), 0.0)
    with pytest.raises(ValueError, match="method must be one of bca, percentile, got 'basic'"):
        bootstrap([1.0, 2.0], method="basic")
