"""Statistics of few runs: means with intervals, t-tests, equivalence, power, bootstrap, corrections, a verdict on two results.

    t-interval  x̄ ± t_{1−α/2, n−1} s/√n              SD: s, of n − 1
    Welch       (x̄ − ȳ)/√(s_x²/n + s_y²/m)            unequal variances; pooled: Student's, as most papers run it
    paired      x̄ − ȳ over the SD of the differences: runs that share a seed are compared run by run
    one-sided   p of "the mean exceeds the bound" (`exceeds`): its complement is that of "falls short of it"
    equivalence max of the two one-sided p of "above −margin" and "below margin" (TOST)
    detectable  effect that a two-sided t-test of n runs finds with 80 % probability, from the noncentral t distribution
    Holm        p_(i) · (n − i + 1), made monotone: the chance of any false finding is at most α
    Benjamini-Hochberg  p_(i) · n / i, made monotone: the expected share of false findings is at most α

With n = 1 SD and test are NaN, and the verdict is a draw that says so. If all n differences are the same number, up to the six
digits that files of results keep, their variance is meaningless: accuracies are multiples of 1/examples, so that a few of them
are often equal, and the rest is rounding. The exact sign test takes over, p = 2^(1−n) (for two samples the permutation test,
p = 2/C(n + m, n)), and the interval is that number if p < α and all numbers otherwise. `from_summary` tests a paper's mean ± SD
(n): AMC's Table 1 is Student's, two-sided, n = 5.
Welch (1947); Holm (1979); Schuirmann, "A comparison of the two one-sided tests procedure and the power approach" (1987);
Benjamini & Hochberg, "Controlling the false discovery rate" (JRSS B 1995); Efron, "Better bootstrap confidence intervals"
(JASA 1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mohs._core.errors import DataError
from mohs._core.validation import check_between, check_choice

Array = np.ndarray[Any, Any]
DIRECTIONS = ("higher", "lower")
METHODS = ("bca", "percentile")
DIGITS = 6  # significant digits that files of results keep


@dataclass(frozen=True)
class Summary:
    """Mean, SD (NaN for one run), n, and the t-interval of the mean (NaN for one run)."""

    mean: float
    sd: float
    n: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4g}" if self.n < 2 else f"{self.mean:.4g} ± {self.sd:.2g} (n = {self.n})"


@dataclass(frozen=True)
class TTest:
    """Difference of means (first minus second), t, degrees of freedom, two-sided p, the interval of the difference, its standard
    error, and the exact one-sided p that counts if the error is 0: runs that differ by one number leave the t-test nothing."""

    difference: float
    t: float
    df: float
    p: float
    low: float
    high: float
    error: float
    exact: float


@dataclass(frozen=True)
class Comparison:
    """The verdict ("holds", "fails" or "draw"), its test (None for a single run) and a sentence to print."""

    verdict: str
    test: TTest | None
    sentence: str


def summary(values: Sequence[float], *, interval: float = 0.95) -> Summary:
    """Results of n runs -> mean, SD and t-interval."""
    x = _runs("values", values)
    _check_interval(interval)
    mean = float(x.mean())
    if len(x) < 2:
        return Summary(mean, math.nan, 1, math.nan, math.nan)
    sd = float(x.std(ddof=1))
    half = _t_quantile(interval, len(x) - 1) * sd / math.sqrt(len(x))
    return Summary(mean, sd, len(x), mean - half, mean + half)


def from_summary(
    mean_a: float, sd_a: float, n_a: int, mean_b: float, sd_b: float, n_b: int, *, pooled: bool = False, interval: float = 0.95
) -> TTest:
    """Two-sample t-test from mean, SD and n of each: Welch's, or Student's with pooled variance."""
    _check_interval(interval)
    for name, value, least in (("n_a", n_a, 2), ("n_b", n_b, 2), ("sd_a", sd_a, 0), ("sd_b", sd_b, 0)):
        check_between(name, value, least)
    a, b = sd_a**2 / n_a, sd_b**2 / n_b
    if pooled:
        df = float(n_a + n_b - 2)
        error = math.sqrt(((n_a - 1) * sd_a**2 + (n_b - 1) * sd_b**2) / df * (1 / n_a + 1 / n_b))
    else:
        error = math.sqrt(a + b)
        df = (a + b) ** 2 / (a**2 / (n_a - 1) + b**2 / (n_b - 1)) if error else float(n_a + n_b - 2)
    same = _rounding(max(abs(mean_a), abs(mean_b)))
    return _test(mean_a - mean_b, error if error > same else 0.0, df, interval, exact=1 / math.comb(n_a + n_b, n_a))


def two_sample(a: Sequence[float], b: Sequence[float], *, pooled: bool = False, interval: float = 0.95) -> TTest:
    """t-test of independent runs: Welch's by default, Student's with pooled=True."""
    x, y = _runs("a", a, least=2), _runs("b", b, least=2)
    sides = [(float(v.mean()), float(v.std(ddof=1)), len(v)) for v in (x, y)]
    return from_summary(*sides[0], *sides[1], pooled=pooled, interval=interval)


def paired(a: Sequence[float], b: Sequence[float], *, interval: float = 0.95) -> TTest:
    """Paired t-test, for runs that share a seed one by one."""
    x, y = _runs("a", a, least=2), _runs("b", b, least=2)
    if len(x) != len(y):
        raise ValueError(f"a has {len(x)} runs and b {len(y)}: a paired test needs equal numbers, in the same order")
    _check_interval(interval)
    return _one_sample(x - y, size=float(max(np.abs(x).max(), np.abs(y).max())), interval=interval)


def one_sample(values: Sequence[float], bound: float = 0.0, *, interval: float = 0.95) -> TTest:
    """t-test of the runs' mean against a number."""
    x = _runs("values", values, least=2)
    _check_interval(interval)
    return _one_sample(x - bound, size=float(np.abs(x).max()), interval=interval)


def exceeds(test: TTest, bound: float = 0.0) -> float:
    """One-sided p of the hypothesis that the difference exceeds the bound; 1 − p is that of falling short of it."""
    from scipy.stats import t as t_distribution

    if test.error == 0:
        sign = np.sign(round(test.difference - bound, 12))
        return 0.5 if sign == 0 else test.exact if sign > 0 else 1 - test.exact
    return float(t_distribution.sf((test.difference - bound) / test.error, test.df))


def equivalence(test: TTest, margin: float) -> float:
    """p of two one-sided tests (TOST) that the difference lies within ± margin."""
    if not margin > 0:
        raise ValueError(f"margin must be greater than 0, got {margin!r}")
    return max(exceeds(test, -margin), 1 - exceeds(test, margin))


def detectable(sd: float, n: int, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest mean of n runs with this SD that a two-sided t-test finds with probability `power`; NaN for n = 1."""
    from scipy.optimize import brentq
    from scipy.stats import ncf
    from scipy.stats import t as t_distribution

    check_between("power", power, alpha, 1, ends="()")
    if n < 2 or not sd > 0:  # without an SD there is nothing to scale an effect by
        return math.nan
    critical = float(t_distribution.ppf(1 - alpha / 2, n - 1)) ** 2  # t² is noncentral F with 1 and n − 1 degrees of freedom

    def short_of(effect: float) -> float:
        return float(ncf.sf(critical, 1, n - 1, n * effect**2)) - power

    return sd * float(brentq(short_of, 1e-6, 4 * math.sqrt(critical / n) + 4))


def bootstrap(
    values: Sequence[float],
    *,
    statistic: Callable[..., Any] = np.mean,
    interval: float = 0.95,
    method: str = "bca",
    resamples: int = 9999,
    seed: int = 0,
) -> tuple[float, float]:
    """Bootstrap interval of a statistic, statistic(values, axis=...); a constant sample has a single point as its interval."""
    from scipy.stats import bootstrap as scipy_bootstrap

    check_choice("method", method, METHODS)
    check_between("resamples", resamples, 1)
    _check_interval(interval)
    x = _runs("values", values, least=2)
    if np.ptp(x) == 0:
        return float(statistic(x, axis=0)), float(statistic(x, axis=0))
    name = {"bca": "BCa", "percentile": "percentile"}[method]
    rng = np.random.default_rng(seed)
    found = scipy_bootstrap((x,), statistic, confidence_level=interval, method=name, n_resamples=resamples, rng=rng)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected by Holm's method, in the order given; NaN stays NaN and is not counted."""
    return _corrected(p_values, lambda p: np.maximum.accumulate(p * np.arange(len(p), 0, -1)))


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for the false discovery rate, in the order given; NaN stays NaN and is not counted."""
    return _corrected(p_values, lambda p: np.minimum.accumulate((p * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1])


def compare(
    ours: Sequence[float], baseline: Sequence[float], direction: str = "higher", alpha: float = 0.05, *, pair: bool = False
) -> Comparison:
    """Whether ours is better: "holds" or "fails" if the two-sided p is below alpha, otherwise a "draw".

    direction: Which is better, "higher" or "lower". pair: Whether runs share seeds in this order (paired test).
    """
    check_choice("direction", direction, DIRECTIONS)
    check_between("alpha", alpha, 0, 1, ends="()")
    a, b = summary(ours, interval=1 - alpha), summary(baseline, interval=1 - alpha)
    if min(a.n, b.n) < 2:
        return Comparison("draw", None, f"draw: ours {a} against {b}: one run cannot show a difference")
    test = (paired if pair else two_sample)(ours, baseline, interval=1 - alpha)
    better = (test.difference > 0) == (direction == "higher")
    verdict = "draw" if not test.p < alpha else "holds" if better else "fails"
    what = {"holds": "ours is better", "fails": "ours is worse", "draw": "no difference shown"}[verdict]
    kind = "paired t-test" if pair else "Welch's t-test"
    gap = f"difference {test.difference:+.4g} [{test.low:.4g}, {test.high:.4g}], p = {test.p:.2g}"
    return Comparison(verdict, test, f"{verdict}: {what} ({direction} is better): ours {a} against {b}; {gap} ({kind})")


def _one_sample(gaps: Array, *, size: float, interval: float) -> TTest:
    n, sd = len(gaps), float(gaps.std(ddof=1))
    return _test(float(gaps.mean()), sd / math.sqrt(n) if sd > _rounding(size) else 0.0, float(n - 1), interval, exact=0.5**n)


def _rounding(size: float) -> float:
    """The largest SD of differences that are one number, between values up to this size, which rounding to DIGITS gives."""
    return 1.5 * 10.0 ** (math.floor(math.log10(size)) + 1 - DIGITS) if size else 0.0


def _test(difference: float, error: float, df: float, interval: float, *, exact: float) -> TTest:
    from scipy.stats import t as t_distribution

    if error == 0:
        zero = difference == 0
        p, t = (1.0, 0.0) if zero else (2 * exact, math.copysign(math.inf, difference))
        wide = 0.0 if 2 * exact < 1 - interval else math.inf
        return TTest(difference, t, df, p, difference - wide, difference + wide, 0.0, exact)
    half = _t_quantile(interval, df) * error
    t = difference / error
    p = float(2 * t_distribution.sf(abs(t), df))
    return TTest(difference, t, df, p, difference - half, difference + half, error, exact)


def _corrected(p_values: Sequence[float], raise_sorted: Callable[[Array], Array]) -> list[float]:
    p = np.asarray(p_values, dtype=float)
    known = np.flatnonzero(~np.isnan(p))
    if ((p[known] < 0) | (p[known] > 1)).any():
        raise ValueError(f"p_values must be between 0 and 1, got {list(p_values)}")
    order = known[np.argsort(p[known], kind="stable")]
    corrected = np.full(len(p), np.nan)
    corrected[order] = np.minimum(raise_sorted(p[order]), 1.0)
    return [float(value) for value in corrected]


def _t_quantile(interval: float, df: float) -> float:
    from scipy.stats import t as t_distribution

    return float(t_distribution.ppf((1 + interval) / 2, df))


def _runs(name: str, values: Sequence[float], *, least: int = 1) -> Array:
    x = np.asarray(values, dtype=float)
    if x.ndim != 1:
        raise ValueError(f"{name} must hold one number per run, shape (n,), got shape {x.shape}")
    if len(x) < least:
        raise DataError(f"{name} has {len(x)} run(s): this needs at least {least}")
    bad = ~np.isfinite(x)
    if bad.any():
        raise DataError(f"{name}[{int(bad.argmax())}] is {x[bad.argmax()]}: leave failed runs out, and report it")
    return x


def _check_interval(interval: float) -> None:
    check_between("interval", interval, 0, 1, ends="()")
