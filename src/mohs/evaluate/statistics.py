"""Statistics of few runs: means with intervals, t-tests, bootstrap, Holm's correction, and a verdict on two results.

    t-interval  x̄ ± t_{1−α/2, n−1} s/√n              SD: s, of n − 1
    Welch       (x̄ − ȳ)/√(s_x²/n + s_y²/m)            unequal variances; pooled: Student's, as most papers run it
    paired      x̄ − ȳ over the SD of the differences: runs that share a seed are compared run by run
    Holm        p_(i) · (n − i + 1), made monotone: uniformly more powerful than Bonferroni's correction

With n = 1 SD and test are NaN, and the verdict is a draw that says so. If both samples are constant, p is 1 for equal and 0
for different means. `from_summary` tests a paper's mean ± SD (n): AMC's Table 1 is Student's, two-sided, n = 5.
Welch (1947); Holm (1979); Efron, "Better bootstrap confidence intervals" (JASA 1987).
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
    """Difference of means (first minus second), t, degrees of freedom, two-sided p, and the interval of the difference."""

    difference: float
    t: float
    df: float
    p: float
    low: float
    high: float


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
    return _test(mean_a - mean_b, error, df, interval)


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
    gaps = x - y
    return _test(float(gaps.mean()), float(gaps.std(ddof=1)) / math.sqrt(len(gaps)), float(len(gaps) - 1), interval)


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
    p = np.asarray(p_values, dtype=float)
    known = np.flatnonzero(~np.isnan(p))
    if ((p[known] < 0) | (p[known] > 1)).any():
        raise ValueError(f"p_values must be between 0 and 1, got {list(p_values)}")
    order = known[np.argsort(p[known], kind="stable")]
    raised = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    corrected = np.full(len(p), np.nan)
    corrected[order] = np.minimum(raised, 1.0)
    return [float(value) for value in corrected]


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


def _test(difference: float, error: float, df: float, interval: float) -> TTest:
    from scipy.stats import t as t_distribution

    if error == 0:
        t = math.copysign(math.inf, difference) if difference else 0.0
        return TTest(difference, t, df, 1.0 if difference == 0 else 0.0, difference, difference)
    half = _t_quantile(interval, df) * error
    t = difference / error
    return TTest(difference, t, df, float(2 * t_distribution.sf(abs(t), df)), difference - half, difference + half)


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
