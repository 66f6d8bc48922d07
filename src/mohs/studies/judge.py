"""Do the results support a claim: one row better than another, as good as another, or beyond a number?

    better      paired t-test over the seeds that two rows share, p < 0.05; with a margin: holds if the 95 % interval of the
                gain lies beyond the margin, fails if it lies short of it
    equal       holds if the 95 % interval of the paired difference lies within ± margin; fails if the difference is
                significant and larger than the margin
    above, below    holds if the 95 % t-interval over the seeds lies beyond the number, fails if it lies short of it

Everything else is a draw, and so is everything that rests on one run. Rows with the same seed share data order, noise and, if
their networks are alike, initial weights; therefore runs are compared seed by seed. Where several comparisons must all hold
(`all_of`), one that fails decides, then one that is a draw.

A row counts only if its networks learned something:

    learned     training or test accuracy, the mean over seeds, is at least min(2/K, 1/K + ¼ (1 − 1/K))        K classes

That is twice chance or, if there are few classes, a quarter of the way from chance to 1. Either accuracy will do: with most
labels wrong, a network that has learned the true classes agrees with few of its labels. Results without the number of classes,
or without both accuracies, are not checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mohs._core.errors import DataError
from mohs._core.validation import check_choice
from mohs.evaluate.statistics import DIRECTIONS, holm, paired, summary
from mohs.studies.collect import Result

ALPHA = 0.05
ONE_RUN = "one run cannot tell a difference from chance"
ACCURACIES = {"accuracy": "training accuracy", "test_accuracy": "test accuracy"}
NOTHING = "nothing follows from it"


@dataclass(frozen=True)
class Judgment:
    """Verdict ("holds", "fails", "draw"), mean difference with its interval, p (corrected by `judge_all`), number of seeds."""

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
    """Judge whether one row is better than another; values by seed."""
    check_choice("direction", direction, DIRECTIONS)
    made = _difference(better, worse)
    if made.n < 2:
        return made
    return by_margin(made, margin, direction) if margin is not None else by_test(made, direction)


def judge_equal(one: Mapping[int, float], other: Mapping[int, float], *, margin: float) -> Judgment:
    """Judge whether two rows are equally good, within the margin; values by seed."""
    check_margin(margin)
    made = _difference(one, other)
    if made.n < 2:
        return made
    within = -margin < made.low and made.high < margin
    beyond = made.p < ALPHA and abs(made.difference) > margin
    verdict = "holds" if within else "fails" if beyond else "draw"
    return replace(made, verdict=verdict, how=f"95 % interval [{made.low:.3g}, {made.high:.3g}] against ± {margin:g}")


def judge_number(values: Mapping[int, float], *, above: float | None = None, below: float | None = None) -> Judgment:
    """Judge whether the values of a row, by seed, lie above a number, or below one."""
    if (above is None) == (below is None):
        raise ValueError("give either above or below")
    finite = [value for value in values.values() if math.isfinite(value)]
    if not finite:
        raise DataError("the row has no finite value to compare")
    found, bound = summary(finite), above if above is not None else float(below or 0.0)
    how = f"95 % interval [{found.low:.4g}, {found.high:.4g}] {'above' if below is None else 'below'} {bound:g}?"
    if found.n < 2:
        return Judgment("draw", found.mean - bound, math.nan, math.nan, math.nan, 1, ONE_RUN)
    sides = (found.low > bound, found.high < bound) if below is None else (found.high < bound, found.low > bound)
    verdict = "holds" if sides[0] else "fails" if sides[1] else "draw"
    return Judgment(verdict, found.mean - bound, found.low - bound, found.high - bound, math.nan, found.n, how)


def all_of(judged: Sequence[Judgment]) -> str:
    """The verdict on a claim for which every comparison has to hold."""
    verdicts = {one.verdict for one in judged}
    return "fails" if "fails" in verdicts else "draw" if "draw" in verdicts else "holds"


def judge_all(judged: Sequence[Judgment], *, direction: str = "higher") -> list[Judgment]:
    """The same judgments with p corrected for their number by Holm's method, and verdicts by the corrected p."""
    corrected = holm([one.p for one in judged])
    return [by_test(replace(one, p=p), direction) for one, p in zip(judged, corrected, strict=True)]


def by_test(made: Judgment, direction: str) -> Judgment:
    """The judgment with its verdict by p."""
    if not made.p < ALPHA:
        return replace(made, verdict="draw")
    return replace(made, verdict="holds" if (made.difference > 0) == (direction == "higher") else "fails")


def by_margin(made: Judgment, margin: float, direction: str) -> Judgment:
    """The judgment with its verdict by whether the gain reaches the margin."""
    check_margin(margin)
    low, high = (made.low, made.high) if direction == "higher" else (-made.high, -made.low)
    verdict = "holds" if low >= margin else "fails" if high < margin else "draw"
    return replace(made, verdict=verdict, how=f"95 % interval of the gain [{low:.3g}, {high:.3g}] against {margin:g}")


def check_margin(margin: float) -> None:
    """Validate that the margin is positive."""
    if not margin > 0:
        raise ValueError(f"margin must be greater than 0, got {margin!r}")


def _difference(one: Mapping[int, float], other: Mapping[int, float]) -> Judgment:
    """The paired difference over the shared seeds, not judged yet."""
    seeds = [seed for seed in one if seed in other and math.isfinite(one[seed]) and math.isfinite(other[seed])]
    if not seeds:
        raise DataError("the two rows share no seed with a finite value")
    ours, theirs = [one[seed] for seed in seeds], [other[seed] for seed in seeds]
    if len(seeds) < 2:
        return Judgment("draw", ours[0] - theirs[0], math.nan, math.nan, math.nan, 1, ONE_RUN)
    test = paired(ours, theirs)
    return Judgment("draw", test.difference, test.low, test.high, test.p, len(seeds), "paired t-test over seeds")


def failed_to_learn(results: Sequence[Result], row: str) -> str:
    """Why this row does not count, in a sentence; "" if its networks learned, or if the results do not tell."""
    own = [one for one in results if one["row"] == row]
    done = [one for one in own if "error" not in one]
    if own and not done:
        return f"every run of {row} failed ({own[0]['error']}): {NOTHING}"
    known = [one for one in done if "classes" in one and any(name in one for name in ACCURACIES)]
    if not known:
        return ""
    values = {name: [one[name] for one in known if name in one] for name in ACCURACIES}
    means = {name: sum(found) / len(found) for name, found in values.items() if found}
    need = learning_threshold(int(known[0]["classes"]))
    if max(means.values()) >= need:
        return ""
    reached = ", ".join(f"{ACCURACIES[name]} {100 * mean:.1f} %" for name, mean in means.items())
    return f"{row}: {reached}, under {100 * need:.1f} % with {known[0]['classes']} classes: this network did not learn: {NOTHING}"


def learning_threshold(classes: int) -> float:
    """The accuracy from which on a network has learned something, for this number of classes."""
    chance = 1 / classes
    return min(2 * chance, chance + (1 - chance) / 4)


def learned_only(results: Sequence[Result]) -> list[Result]:
    """The results of the rows whose networks learned."""
    bad = {row for row in dict.fromkeys(one["row"] for one in results) if failed_to_learn(results, row)}
    return [one for one in results if one["row"] not in bad]
