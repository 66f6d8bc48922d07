"""Whether one row of a study is better than another: by a paired test over the seeds they share, or by a margin.

Rows with the same seed share data order, noise and initial weights where their networks are alike, so that runs are compared
seed by seed. With a margin the mean difference alone decides: at least the margin holds, at least as much the other way fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mohs.errors import DataError
from mohs.losses.drop_in import check_choice
from mohs.study.statistics import DIRECTIONS, holm, paired

ALPHA = 0.05


@dataclass(frozen=True)
class Judgement:
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
) -> Judgement:
    """Values by seed of the row that should be better and of the other -> whether it is."""
    check_choice("direction", direction, DIRECTIONS)
    seeds = [seed for seed in better if seed in worse and math.isfinite(better[seed]) and math.isfinite(worse[seed])]
    if not seeds:
        raise DataError("the two rows share no seed with a number: there is nothing to compare")
    ours, theirs = [better[seed] for seed in seeds], [worse[seed] for seed in seeds]
    if len(seeds) < 2:
        gap = ours[0] - theirs[0]
        made = Judgement("draw", gap, math.nan, math.nan, math.nan, 1, "one run cannot tell a difference from chance")
    else:
        test = paired(ours, theirs)
        made = Judgement("draw", test.difference, test.low, test.high, test.p, len(seeds), "paired t-test over seeds")
    return by_margin(made, margin, direction) if margin is not None else by_test(made, direction)


def judge_all(judged: Sequence[Judgement], *, direction: str = "higher") -> list[Judgement]:
    """The same with p corrected for their number by Holm's method, and verdicts by the corrected p."""
    corrected = holm([one.p for one in judged])
    return [by_test(replace(one, p=p), direction) for one, p in zip(judged, corrected, strict=True)]


def by_test(made: Judgement, direction: str) -> Judgement:
    """The verdict by p."""
    if not made.p < ALPHA:
        return replace(made, verdict="draw")
    return replace(made, verdict="holds" if (made.difference > 0) == (direction == "higher") else "fails")


def by_margin(made: Judgement, margin: float, direction: str) -> Judgement:
    """The verdict by the size of the mean difference."""
    if not margin > 0:
        raise ValueError(f"margin must be over 0, got {margin!r}")
    gain = made.difference if direction == "higher" else -made.difference
    verdict = "holds" if gain >= margin else "fails" if gain <= -margin else "draw"
    return replace(made, verdict=verdict, how=f"mean difference against a margin of {margin:g}")
