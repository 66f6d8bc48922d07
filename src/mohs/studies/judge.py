"""Whether the results bear a claim out: one row better than another, as good as another, or beyond a number.

    better      a paired t-test over the seeds that two rows share: p < .05; with a margin, better by at least so much: holds
                where the 95 % interval of the difference lies beyond the margin, fails where it lies short of it
    equal       holds where the 95 % interval of the paired difference lies within ± margin; fails where the difference is
                significant and larger than the margin
    above, below    holds where the 95 % t-interval over the seeds lies beyond the number, fails where it lies short of it

All else is a draw, and so is everything that rests on one run. Rows with the same seed share data order, noise and initial
weights where their networks are alike, so that runs are compared seed by seed. Of several that must all be true (`all_of`)
one that fails decides, then one that draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mohs._core.errors import DataError
from mohs._core.validation import check_choice
from mohs.evaluate.statistics import DIRECTIONS, holm, paired, summary

ALPHA = 0.05
ONE_RUN = "one run cannot tell a difference from chance"


@dataclass(frozen=True)
class Judgment:
    """Verdict ("holds", "fails", "draw"), mean difference with its interval, p (corrected where several were judged), n."""

    verdict: str
    difference: float
    low: float
    high: float
    p: float
    n: int
    how: str


def judge(
    better: Mapping[int, float], worse: Mapping[int, float], *, direction: str = "higher", margin: float | None = None
) -> Judgment:
    """Values by seed of the row that should be better and of the other -> whether it is."""
    check_choice("direction", direction, DIRECTIONS)
    made = _difference(better, worse)
    if made.n < 2:
        return made
    return by_margin(made, margin, direction) if margin is not None else by_test(made, direction)


def judge_equal(one: Mapping[int, float], other: Mapping[int, float], *, margin: float) -> Judgment:
    """Values by seed of two rows -> whether they are as good as each other, within the margin."""
    check_margin(margin)
    made = _difference(one, other)
    if made.n < 2:
        return made
    within = -margin < made.low and made.high < margin
    beyond = made.p < ALPHA and abs(made.difference) > margin
    verdict = "holds" if within else "fails" if beyond else "draw"
    return replace(made, verdict=verdict, how=f"95 % interval [{made.low:.3g}, {made.high:.3g}] against ± {margin:g}")


def judge_number(values: Mapping[int, float], *, above: float | None = None, below: float | None = None) -> Judgment:
    """Values by seed of one row -> whether they lie above a number, or below one."""
    if (above is None) == (below is None):
        raise ValueError("give above or below, one of the two")
    finite = [value for value in values.values() if math.isfinite(value)]
    if not finite:
        raise DataError("the row has no number: there is nothing to compare")
    found, bound = summary(finite), above if above is not None else float(below or 0.0)
    how = f"95 % interval [{found.low:.4g}, {found.high:.4g}] {'above' if below is None else 'below'} {bound:g}?"
    if found.n < 2:
        return Judgment("draw", found.mean - bound, math.nan, math.nan, math.nan, 1, ONE_RUN)
    sides = (found.low > bound, found.high < bound) if below is None else (found.high < bound, found.low > bound)
    verdict = "holds" if sides[0] else "fails" if sides[1] else "draw"
    return Judgment(verdict, found.mean - bound, found.low - bound, found.high - bound, math.nan, found.n, how)


def all_of(judged: Sequence[Judgment]) -> str:
    """The verdict where every one has to hold."""
    told = {one.verdict for one in judged}
    return "fails" if "fails" in told else "draw" if "draw" in told else "holds"


def judge_all(judged: Sequence[Judgment], *, direction: str = "higher") -> list[Judgment]:
    """The same with p corrected for their number by Holm's method, and verdicts by the corrected p."""
    corrected = holm([one.p for one in judged])
    return [by_test(replace(one, p=p), direction) for one, p in zip(judged, corrected, strict=True)]


def by_test(made: Judgment, direction: str) -> Judgment:
    """The verdict by p."""
    if not made.p < ALPHA:
        return replace(made, verdict="draw")
    return replace(made, verdict="holds" if (made.difference > 0) == (direction == "higher") else "fails")


def by_margin(made: Judgment, margin: float, direction: str) -> Judgment:
    """The verdict by whether the gain is as large as the margin."""
    check_margin(margin)
    low, high = (made.low, made.high) if direction == "higher" else (-made.high, -made.low)
    verdict = "holds" if low >= margin else "fails" if high < margin else "draw"
    return replace(made, verdict=verdict, how=f"95 % interval of the gain [{low:.3g}, {high:.3g}] against {margin:g}")


def check_margin(margin: float) -> None:
    """Raise unless the margin is over 0."""
    if not margin > 0:
        raise ValueError(f"margin must be over 0, got {margin!r}")


def _difference(one: Mapping[int, float], other: Mapping[int, float]) -> Judgment:
    """The paired difference over the seeds that both have; its verdict is still open."""
    seeds = [seed for seed in one if seed in other and math.isfinite(one[seed]) and math.isfinite(other[seed])]
    if not seeds:
        raise DataError("the two rows share no seed with a number: there is nothing to compare")
    ours, theirs = [one[seed] for seed in seeds], [other[seed] for seed in seeds]
    if len(seeds) < 2:
        return Judgment("draw", ours[0] - theirs[0], math.nan, math.nan, math.nan, 1, ONE_RUN)
    test = paired(ours, theirs)
    return Judgment("draw", test.difference, test.low, test.high, test.p, len(seeds), "paired t-test over seeds")
