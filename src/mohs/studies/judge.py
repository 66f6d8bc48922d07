"""Do the results support a claim: one row better than another, as good as another, or beyond a number?

Every comparison has two one-sided p: of the hypothesis that the claim holds, and of the one that it fails.

    better          gain > 0 (holds), gain < 0 (fails); with a margin: gain > margin, gain < margin
    equal           |difference| < margin by two one-sided tests (TOST), |difference| > margin
    above, below    beyond the number, short of the number

p is twice the smaller of the two, and decides: p < 0.05 is a verdict, everything else a draw, and so is everything that rests on
one run. That is the 95 % interval against 0, the margin or the number. Rows with the same seed share data order, noise and, if
their networks are alike, initial weights; therefore runs are compared seed by seed, by a t-test of the differences. Differences
that are all the same number are judged by the exact sign test instead (`evaluate/statistics.py`).

Where k comparisons must all hold (`all_of`), the claim holds by the largest p of a holding comparison, which needs no
correction, and fails by k times the smallest p of a failing one.

A run counts only if its network learned something:

    learned     training or test accuracy is at least min(2/K, 1/K + ¼ (1 − 1/K))        K classes

That is twice chance or, if there are few classes, a quarter of the way from chance to 1. Either accuracy will do: with most
labels wrong, a network that has learned the true classes agrees with few of its labels. A training that stopped with an error,
or did not learn, has collapsed: it is excluded, with its partner in paired comparisons, and reported. A row with fewer than two
runs left, where some collapsed, counts as not run. Results without the number of classes, or without both accuracies, are not
checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mohs._core.errors import DataError
from mohs._core.validation import check_choice
from mohs.evaluate.statistics import DIRECTIONS, TTest, detectable, equivalence, exceeds, holm, one_sample, paired
from mohs.studies.collect import Result

ALPHA = 0.05
NORMAL_95 = 1.959963984540054
ONE_RUN = "one run cannot tell a difference from chance"
ACCURACIES = {"accuracy": "training accuracy", "test_accuracy": "test accuracy"}


@dataclass(frozen=True)
class Judgment:
    """Verdict ("holds", "fails", "draw"), mean difference with its 95 % interval, p, and number of seeds.

    p_holds, p_fails: one-sided. detectable: the distance from the bound that these runs would show with 80 % probability.
    """

    verdict: str
    difference: float
    low: float
    high: float
    p: float
    n: int
    how: str
    p_holds: float = math.nan
    p_fails: float = math.nan
    detectable: float = math.nan


def judge(
    better: Mapping[int, float], worse: Mapping[int, float], *, direction: str = "higher", margin: float | None = None
) -> Judgment:
    """Judge whether one row is better than another; values by seed."""
    check_choice("direction", direction, DIRECTIONS)
    if margin is not None:
        check_margin(margin)
    test, n, difference = _paired(better, worse)
    return _alone(difference) if test is None else _beyond(test, n, direction, margin or 0.0, "paired t-test over seeds")


def judge_equal(one: Mapping[int, float], other: Mapping[int, float], *, margin: float) -> Judgment:
    """Judge whether two rows are equally good, within the margin; values by seed."""
    check_margin(margin)
    test, n, difference = _paired(one, other)
    return _alone(difference) if test is None else _within(test, n, margin)


def judge_number(values: Mapping[int, float], *, above: float | None = None, below: float | None = None) -> Judgment:
    """Judge whether the values of a row, by seed, lie above a number, or below one."""
    if (above is None) == (below is None):
        raise ValueError("give either above or below")
    finite = [value for value in values.values() if math.isfinite(value)]
    if not finite:
        raise DataError("the row has no finite value to compare")
    bound, direction = (above, "higher") if above is not None else (float(below or 0.0), "lower")
    if len(finite) < 2:
        return _alone(finite[0] - bound)
    return _beyond(one_sample(finite, bound), len(finite), direction, 0.0, f"t-test against {bound:g}")


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over examples, such as a correlation with its bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Its standard error, by the normal distribution."""
        return (self.high - self.low) / (2 * NORMAL_95)

    def minus(self, other: Estimate) -> Estimate:
        """The difference, as if independent: too wide an interval where both come from the same examples and agree."""
        value, half = self.value - other.value, NORMAL_95 * math.hypot(self.error, other.error)
        return Estimate(value, value - half, value + half)


def judge_estimate(
    found: Estimate, *, above: float | None = None, below: float | None = None, margin: float | None = None
) -> Judgment:
    """Judge whether an estimate lies above a number, below one, or within ± margin."""
    bound = next((value for value in (above, below) if value is not None), 0.0)
    value, z = found.value - bound, (found.value - bound) / found.error
    test = TTest(value, z, math.inf, math.nan, found.low - bound, found.high - bound, found.error, math.nan)
    if margin is not None:
        return _within(test, 1, margin)
    return _beyond(test, 1, "lower" if below is not None else "higher", 0.0, f"interval over examples against {bound:g}")


def all_of(judged: Sequence[Judgment], *, of: int | None = None) -> Judgment:
    """One judgment on a claim for which every comparison has to hold: its verdict, p and the least of the numbers of seeds.

    of: The number of comparisons that the claim consists of, if not all of them are given.
    """
    of = len(judged) if of is None else of
    if of == 1:
        return judged[0]
    known = [one.p_fails for one in judged if not math.isnan(one.p_fails)]
    holds = math.nan if len(known) < of else max(one.p_holds for one in judged)
    fails = min(1.0, of * min(known)) if known else math.nan
    worst = max(judged, key=lambda one: -1.0 if math.isnan(one.p_holds) else one.p_holds)
    least = max((one.detectable for one in judged if not math.isnan(one.detectable)), default=math.nan)
    n = min(one.n for one in judged)
    return decided(replace(worst, p_holds=holds, p_fails=fails, n=n, detectable=least))


def judge_all(judged: Sequence[Judgment]) -> list[Judgment]:
    """The same judgments with p corrected for their number by Holm's method, and verdicts by the corrected p."""
    corrected = holm([one.p for one in judged])
    return [decided(one, p=p) for one, p in zip(judged, corrected, strict=True)]


def decided(made: Judgment, *, p: float | None = None) -> Judgment:
    """The judgment with its verdict by p: twice the smaller one-sided p, unless a corrected one is given."""
    if p is None:
        sides = [side for side in (made.p_holds, made.p_fails) if not math.isnan(side)]
        p = min(1.0, 2 * min(sides)) if sides else math.nan
    if not p < ALPHA:
        return replace(made, p=p, verdict="draw")
    holds = not math.isnan(made.p_holds) and (math.isnan(made.p_fails) or made.p_holds < made.p_fails)
    return replace(made, p=p, verdict="holds" if holds else "fails")


def check_margin(margin: float) -> None:
    """Validate that the margin is positive."""
    if not margin > 0:
        raise ValueError(f"margin must be greater than 0, got {margin!r}")


def _beyond(test: TTest, n: int, direction: str, bound: float, how: str) -> Judgment:
    """Judge whether the gain exceeds the bound, or falls short of it."""
    p = exceeds(test, bound) if direction == "higher" else 1 - exceeds(test, -bound)
    if bound:
        how = f"95 % interval [{test.low:.3g}, {test.high:.3g}] against a gain of {bound:g}"
    return decided(_judgment(test, n, p, 1 - p, _exact(test, how)))


def _within(test: TTest, n: int, margin: float) -> Judgment:
    """Judge whether the difference lies within ± margin, or beyond."""
    beyond = min(exceeds(test, margin), 1 - exceeds(test, -margin))
    span = f": 95 % interval [{test.low:.3g}, {test.high:.3g}]" if math.isfinite(test.df) else ""
    how = f"two one-sided tests{span} against ± {margin:g}"
    return decided(_judgment(test, n, equivalence(test, margin), beyond, _exact(test, how)))


def _judgment(test: TTest, n: int, holds: float, fails: float, how: str) -> Judgment:
    runs = n if math.isfinite(test.df) else 1_000_000  # an interval over examples: the normal distribution
    effect = detectable(test.error * math.sqrt(runs), runs)
    return Judgment("draw", test.difference, test.low, test.high, math.nan, n, how, holds, fails, effect)


def _exact(test: TTest, how: str) -> str:
    return how if test.error else "all runs differ by the same number: exact sign test"


def _alone(difference: float) -> Judgment:
    return Judgment("draw", difference, math.nan, math.nan, math.nan, 1, ONE_RUN)


def _paired(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[TTest | None, int, float]:
    """The paired test over the shared seeds (None for a single one), their number, and the mean difference."""
    seeds = [seed for seed in one if seed in other and math.isfinite(one[seed]) and math.isfinite(other[seed])]
    if not seeds:
        raise DataError("the two rows share no seed with a finite value")
    ours, theirs = [one[seed] for seed in seeds], [other[seed] for seed in seeds]
    if len(seeds) < 2:
        return None, 1, ours[0] - theirs[0]
    test = paired(ours, theirs)
    return test, len(seeds), test.difference


def learning_threshold(classes: int) -> float:
    """The least accuracy of a network that has learned something, for this number of classes."""
    chance = 1 / classes
    return min(2 * chance, chance + (1 - chance) / 4)


def collapsed(result: Result) -> str:
    """Why this run does not count; "" if its network learned, or if the results do not say."""
    if "error" in result:
        return str(result["error"])
    known = {name: float(result[name]) for name in ACCURACIES if name in result}
    if "classes" not in result or not known:
        return ""
    need = learning_threshold(int(result["classes"]))
    if max(known.values()) >= need:
        return ""
    reached = ", ".join(f"{ACCURACIES[name]} {100 * value:.1f} %" for name, value in known.items())
    return f"{reached}, under {100 * need:.1f} % with {result['classes']} classes"


def collapses(results: Sequence[Result], row: str) -> str:
    """The runs of a row that collapsed, in a sentence; "" if there are none."""
    own = [one for one in results if one["row"] == row]
    bad = [f"seed {one['seed']}: {reason}" for one in own if (reason := collapsed(one))]
    return f"{len(bad)} of {len(own)} runs of {row} collapsed ({'; '.join(bad)})" if bad else ""


def failed_to_learn(results: Sequence[Result], row: str) -> str:
    """Why this row does not count, in a sentence; "" if at least two of its runs learned, or if no run collapsed."""
    reason = collapses(results, row)
    left = sum(one["row"] == row and not collapsed(one) for one in results)
    return f"{reason}: nothing follows from it" if reason and left < 2 else ""


def learned_only(results: Sequence[Result]) -> list[Result]:
    """The results that count: of runs whose networks learned, in rows with enough of them."""
    bad = {row for row in dict.fromkeys(one["row"] for one in results) if failed_to_learn(results, row)}
    return [one for one in results if one["row"] not in bad and not collapsed(one)]
