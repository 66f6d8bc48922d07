"""A claim's verdict from a table of results: which numbers are compared, and the evidence as text.

    better, worse                two rows (or lists of rows: each is compared with each), by `relation`
    matched = true               the first of better with the first of worse, the second with the second, ...
    better, above | below        one or several rows against a number, by the interval over seeds
    better, other_metric         two metrics of the same row, paired by seed; other_metric may be a list
    relation = "ratio"           better ÷ worse, seed by seed, against `above` or `below`
    relation = "range"           the largest of the rows minus the smallest, seed by seed, against `above` or `below`
    relation = "ranks"           Spearman's ρ of metric and other_metric over the rows, seed by seed, against `above` or `below`;
                                 both compare settings, some of which may not learn: such runs count
    together = true              the mean over the rows, seed by seed, is compared
    pooled = true                the runs of all rows are one sample, compared with a number or with another metric
    interval = "examples"        each run by its own interval over examples, columns METRIC_low and METRIC_high; with
                                 relation = "equal" and no other row or metric: within ± margin of 0

A claim with several comparisons holds if all of them hold. If a row has not been run, or has fewer than two runs whose networks
learned, the claim is "not run", unless a comparison of the other rows refutes it. A verdict has `caveats`: rows that are missing,
collapsed trainings, lost classes, suspected gradient masking, and results older than the learning rates that their recipe
selects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mohs._core.errors import DataError
from mohs._core.validation import check_choice
from mohs.evaluate.statistics import DIRECTIONS
from mohs.hardness.correlation import coefficients
from mohs.studies.collect import CHOSEN, Result, by_seed, read_benchmark, read_results
from mohs.studies.judge import (
    Estimate,
    Judgment,
    all_of,
    collapsed,
    collapses,
    failed_to_learn,
    judge,
    judge_equal,
    judge_estimate,
    judge_number,
)
from mohs.studies.recipe import Recipe

VERDICTS = ("holds", "fails", "draw", "not run")
RELATIONS = ("better", "equal", "ratio", "range", "ranks")
ACROSS = ("range", "ranks")  # relations that compute one number from all rows
LEAST_ROWS = {"range": 2, "ranks": 3}
INTERVALS = ("seeds", "examples")
LEAST_P = 1e-4  # smaller values of p are shown as "p < 0.0001"
MASKING = "masking_suspected"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, the evidence as text, and the number, hardware, date and code of the runs.

    judged: the judgment on all comparisons together. comparisons: each as text, with its judgment. caveats: limits of the
    verdict. planned: the number of seeds in the recipe. code: commits or trees that the runs name.
    """

    verdict: str
    evidence: str
    n: int | None = None
    hardware: str = ""
    date: str = ""
    judged: Judgment | None = None
    comparisons: Sequence[tuple[str, Judgment]] = ()
    caveats: Sequence[str] = ()
    planned: int | None = None
    code: Sequence[str] = ()

    @property
    def p(self) -> float:
        """p of the verdict; NaN without a test."""
        return math.nan if self.judged is None else self.judged.p


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the register; `source` is the paper's short name."""

    id: str
    where: str
    what: str
    paper: str
    counterpart: str
    source: str
    recipe: str | None = None
    results: str | None = None
    better: Sequence[str] = ()
    worse: Sequence[str] = ()
    metric: str = "test_accuracy"
    other_metric: Sequence[str] = ()
    relation: str = "better"
    matched: bool = False
    together: bool = False
    pooled: bool = False
    interval: str = "seeds"
    direction: str = "higher"
    margin: float | None = None
    above: float | None = None
    below: float | None = None
    test: str | None = None
    refuted_by: str | None = None
    reason: str = ""
    rerun: str = ""
    headline: bool = False
    again: str | None = None

    def __post_init__(self) -> None:
        check_choice("direction", self.direction, DIRECTIONS)
        check_choice("relation", self.relation, RELATIONS)
        check_choice("interval", self.interval, INTERVALS)
        for name in ("better", "worse", "other_metric"):  # a string is a list of one
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if self.test is not None and self.refuted_by is not None:
            raise ValueError("a claim is proven by test, or refuted by refuted_by, not both")
        if self.better and self.proof is not None:
            raise ValueError("a claim is judged by rows of results, or by a test, not both")
        check_comparison(self)

    @property
    def proof(self) -> str | None:
        """The test that proves or refutes the claim."""
        return self.test or self.refuted_by

    @property
    def computed(self) -> bool:
        """Whether the verdict is computed from rows of the results."""
        return bool(self.better) and self.results is not None


def check_comparison(claim: Claim) -> None:
    """Validate that the claim's fields describe one comparison."""
    number, metrics = claim.above is not None or claim.below is not None, bool(claim.other_metric)
    if not claim.better:
        if claim.worse or number or metrics:
            raise ValueError("a comparison needs better, the row the claim is about")
        return
    if claim.above is not None and claim.below is not None:
        raise ValueError("give either above or below")
    if claim.relation in ACROSS:
        _check_across(claim, number=number)
        return
    if metrics and (claim.worse or number):
        raise ValueError("other_metric compares two metrics of one row: it goes with neither worse nor above nor below")
    if claim.together and (number or claim.relation == "ratio" or (claim.worse and len(claim.worse) != len(claim.better))):
        raise ValueError("together compares the mean of rows with the mean of equally many others, or two metrics")
    if claim.matched and (claim.together or len(claim.worse) != len(claim.better)):
        raise ValueError("matched compares rows with equally many others, one by one")
    if claim.pooled and (claim.worse or claim.together):
        raise ValueError("pooled compares the runs of all rows with a number, or two metrics of them")
    if claim.relation == "ratio":
        if not claim.worse or not number:
            raise ValueError('relation = "ratio" needs worse, and above or below')
        return
    if claim.relation == "equal" and (number or claim.margin is None):
        raise ValueError('relation = "equal" compares two rows or two metrics and needs a margin')
    zero = claim.relation == "equal" and claim.interval == "examples" and not claim.worse and not metrics
    if bool(claim.worse) + number + metrics != 1 and not zero:
        raise ValueError("better needs exactly one of worse, above, below and other_metric")


def _check_across(claim: Claim, *, number: bool) -> None:
    least, ranks = LEAST_ROWS[claim.relation], claim.relation == "ranks"
    alone = not (claim.worse or claim.matched or claim.together or claim.pooled or claim.interval != "seeds")
    if not alone or not number or len(claim.better) < least or ranks != bool(claim.other_metric):
        other = ", other_metric" if ranks else ""
        raise ValueError(f'relation = "{claim.relation}" needs at least {least} rows in better{other}, and above or below')


def verdict_from(claim: Claim, path: Path, recipe: Recipe | None = None) -> Verdict:
    """Compute the verdict from a results file; "not run" while rows are missing, unless the existing ones refute the claim."""
    results = read_benchmark(path) if path.suffix == ".json" else read_results(path)
    rows = list(dict.fromkeys([*claim.better, *claim.worse]))
    late = [row for row in rows if not any(one["row"] == row for one in results)]
    bad = {row: reason for row in rows if claim.relation not in ACROSS and (reason := failed_to_learn(results, row))}
    reasons = [*([_late(late)] if late else []), *bad.values()]
    missing, not_run = {*late, *bad}, Verdict("not run", "; ".join(reasons))
    present = _without(claim, missing)
    if present is None:
        return not_run
    made = list(_comparisons(present, [one for one in results if claim.relation in ACROSS or not collapsed(one)]))
    judged = all_of([found for _, found in made], of=count(claim) if missing else len(made))
    if missing and judged.verdict != "fails":
        return not_run
    own = [one for one in results if one["row"] in rows]
    comparisons = "; ".join(text for text, _ in made)
    hows = "; ".join(dict.fromkeys(found.how for _, found in made))
    return Verdict(
        judged.verdict,
        f"{comparisons}; {hows}. {claim.reason}".strip(),
        n=len(made) if claim.interval == "examples" else judged.n,
        hardware="; ".join(sorted({str(one["hardware"]) for one in own if "hardware" in one})),
        date=max((str(one["date"]) for one in own if "date" in one), default=""),
        judged=judged,
        comparisons=made,
        caveats=[*reasons, *_caveats(present, results, recipe)],
        planned=None if recipe is None or claim.interval == "examples" or claim.pooled else recipe.study.seeds,
        code=sorted({str(one.get("git", "unknown")) for one in own}),
    )


def count(claim: Claim) -> int:
    """The number of comparisons that all have to hold, of a claim that compares rows."""
    if claim.relation in ACROSS:
        return max(1, len(claim.other_metric))
    return len(claim.better) * (1 if claim.matched or not claim.worse else len(claim.worse))


def _late(rows: Sequence[str]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]} of its study has not been run yet"
    return f"rows {', '.join(rows[:-1])} and {rows[-1]} of its study have not been run yet"


def _without(claim: Claim, missing: set[str]) -> Claim | None:
    """The claim restricted to the existing rows, where one failing comparison decides; None if nothing remains to compare."""
    if not missing:
        return claim
    if claim.together or claim.pooled or claim.relation in ACROSS:
        return None
    pairs = list(zip(claim.better, claim.worse, strict=True)) if claim.matched else []
    if claim.matched:
        left = [pair for pair in pairs if not missing & set(pair)]
        better, worse = [pair[0] for pair in left], [pair[1] for pair in left]
    else:
        better, worse = ([row for row in own if row not in missing] for own in (claim.better, claim.worse))
    return replace(claim, better=better, worse=worse) if better and (worse or not claim.worse) else None


def _caveats(claim: Claim, results: Sequence[Result], recipe: Recipe | None) -> Iterator[str]:
    """What limits the verdict, one phrase each."""
    rows = list(dict.fromkeys([*claim.better, *claim.worse]))
    choices = {} if recipe is None else {row.label: row.choose for row in recipe.rows if row.choose is not None}
    if claim.rerun:
        yield f"to be rerun: {claim.rerun}"
    before = [row for row in rows if row in choices and not any(CHOSEN in one for one in results if one["row"] == row)]
    if before:
        keys = " and ".join(dict.fromkeys(str(choices[row].key) for row in before))
        yield f"to be rerun: each row of the recipe now selects its {keys} on held-out examples"
    for row in rows:
        own = [one for one in results if one["row"] == row]
        if reason := collapses(results, row):
            yield reason
        lost = sorted(int(one["lost_classes"]) for one in own if one.get("lost_classes"))
        if lost:
            span = f"{lost[0]}" if lost[0] == lost[-1] else f"{lost[0]} to {lost[-1]}"
            yield f"{len(lost)} of {len(own)} runs of {row} lost {span} of {own[0]['classes']} classes"
    ball, robust, _ = claim.metric.partition("robust_")
    if robust:
        for row in claim.better:
            own = [one for one in results if one["row"] == row and f"{ball}{MASKING}" in one]
            bad = sum(one[f"{ball}{MASKING}"] > 0 for one in own)
            if bad:
                yield f"gradient masking suspected in {bad} of {len(own)} runs of {row}"


def _comparisons(claim: Claim, results: Sequence[Result]) -> Iterator[tuple[str, Judgment]]:
    """Every comparison of the claim, as text, with its judgment."""
    if claim.interval == "examples":
        yield from _estimates(claim, results)
        return
    if claim.together:
        yield from _means(claim, results)
        return
    if claim.relation in ACROSS:
        yield from _across(claim, results)
        return
    for at, row in enumerate(["all runs"] if claim.pooled else claim.better):
        ours = _numbers(claim, results, row, claim.metric)
        if claim.other_metric:
            for metric in claim.other_metric:
                theirs = _numbers(claim, results, row, metric)
                yield _pair(f"{row}: {claim.metric}", metric, "", ours, theirs, _judge(claim))
        elif not claim.worse:
            found = judge_number(ours, above=claim.above, below=claim.below)
            yield f"{row} {_mean(ours):.4g} ({claim.metric})", found
        for worse in [claim.worse[at]] if claim.matched else claim.worse:
            theirs = _numbers(claim, results, worse, claim.metric)
            if claim.relation == "ratio":
                shared = {seed: ours[seed] / theirs[seed] for seed in ours if theirs.get(seed)}
                found = judge_number(shared, above=claim.above, below=claim.below)
                yield f"{row} ÷ {worse} {_mean(shared):.4g} ({claim.metric})", found
            else:
                yield _pair(row, worse, f" ({claim.metric})", ours, theirs, _judge(claim))


def _means(claim: Claim, results: Sequence[Result]) -> Iterator[tuple[str, Judgment]]:
    """Compare the mean over the rows with the mean over other rows, or with that of another metric."""
    ours, count = _mean_of_rows(claim, results, claim.better, claim.metric), len(claim.better)
    if claim.worse:
        theirs = _mean_of_rows(claim, results, claim.worse, claim.metric)
        names = f"mean of {', '.join(claim.better)}", f"of {', '.join(claim.worse)}"
        yield _pair(*names, f" ({claim.metric})", ours, theirs, _judge(claim))
    for metric in claim.other_metric:
        theirs = _mean_of_rows(claim, results, claim.better, metric)
        yield _pair(f"mean of {count} rows: {claim.metric}", metric, "", ours, theirs, _judge(claim))


def _across(claim: Claim, results: Sequence[Result]) -> Iterator[tuple[str, Judgment]]:
    """One number of all rows, seed by seed: their range, or the correlation of their ranks by two metrics."""
    bounds, rows = {"above": claim.above, "below": claim.below}, len(claim.better)
    ours = _by_row(claim, results, claim.metric)
    if claim.relation == "range":
        found = {seed: max(values) - min(values) for seed, values in ours.items()}
        yield f"range of {rows} rows {_mean(found):.4g} ({claim.metric})", judge_number(found, **bounds)
    for metric in claim.other_metric:
        theirs = _by_row(claim, results, metric)
        shared = [seed for seed in ours if seed in theirs]
        ranks = {seed: coefficients([np.array(ours[seed])], np.array(theirs[seed]), "spearman")[0] for seed in shared}
        yield f"ρ of {claim.metric} and {metric} over {rows} rows {_mean(ranks):.3g}", judge_number(ranks, **bounds)


def _by_row(claim: Claim, results: Sequence[Result], metric: str) -> dict[int, list[float]]:
    """The metric of every row, by seed, for the seeds that all rows share."""
    found = [_numbers(claim, results, row, metric) for row in claim.better]
    return {seed: [one[seed] for one in found] for seed in found[0] if all(seed in one for one in found)}


def _estimates(claim: Claim, results: Sequence[Result]) -> Iterator[tuple[str, Judgment]]:
    """Judge every run by its own interval over examples: against a number, another row or another metric."""
    bounds = {"above": claim.above, "below": claim.below} | ({"margin": claim.margin} if claim.relation == "equal" else {})
    if claim.worse or claim.other_metric:  # the difference against 0
        bounds |= {} if claim.relation == "equal" else {"below" if claim.direction == "lower" else "above": 0.0}
    for at, row in enumerate(claim.better):
        for seed, ours in _estimated(claim, results, row, claim.metric).items():
            name = f"{row}, seed {seed}"
            rivals = [(other, other, claim.metric) for other in ([claim.worse[at]] if claim.matched else claim.worse)]
            rivals += [(metric, row, metric) for metric in claim.other_metric]
            for label, other, metric in rivals:
                theirs = _estimated(claim, results, other, metric)
                if seed in theirs:
                    gap = ours.minus(theirs[seed])
                    text = f"{name}: {claim.metric} {ours.value:.3g}, {label} {theirs[seed].value:.3g}"
                    yield f"{text} ({gap.value:+.3g} [{gap.low:.3g}, {gap.high:.3g}])", judge_estimate(gap, **bounds)
            if not rivals:
                text = f"{name} {ours.value:.3g} [{ours.low:.3g}, {ours.high:.3g}] ({claim.metric})"
                yield text, judge_estimate(ours, **bounds)


def _estimated(claim: Claim, results: Sequence[Result], row: str, metric: str) -> dict[int, Estimate]:
    value, low, high = (_numbers(claim, results, row, name) for name in (metric, f"{metric}_low", f"{metric}_high"))
    return {seed: Estimate(value[seed], low[seed], high[seed]) for seed in value}


def _mean_of_rows(claim: Claim, results: Sequence[Result], rows: Sequence[str], metric: str) -> dict[int, float]:
    """The mean over the rows by seed, for the seeds that all rows share."""
    found = [_numbers(claim, results, row, metric) for row in rows]
    return {seed: _mean({i: one[seed] for i, one in enumerate(found)}) for seed in found[0] if all(seed in one for one in found)}


def _judge(claim: Claim) -> Callable[[dict[int, float], dict[int, float]], Judgment]:
    if claim.relation == "equal":
        return lambda ours, theirs: judge_equal(ours, theirs, margin=claim.margin or 0.0)
    return lambda ours, theirs: judge(ours, theirs, direction=claim.direction, margin=claim.margin)


def _pair(
    one: str,
    other: str,
    metric: str,
    ours: dict[int, float],
    theirs: dict[int, float],
    judged: Callable[[dict[int, float], dict[int, float]], Judgment],
) -> tuple[str, Judgment]:
    found = judged(ours, theirs)
    ours, theirs = ({seed: own[seed] for seed in own if seed in other} for own, other in ((ours, theirs), (theirs, ours)))
    return f"{one} {_mean(ours):.4g}, {other} {_mean(theirs):.4g}{metric}: {found.difference:+.3g}{p_text(found.p)}", found


def p_text(p: float) -> str:
    """ ", p = ..." for a sentence; empty without a test."""
    return "" if math.isnan(p) else f", p = {p:.2g}" if p >= LEAST_P else f", p < {LEAST_P:g}"


def _numbers(claim: Claim, results: Sequence[Result], row: str, metric: str) -> dict[int, float]:
    """The metric by seed; of all rows, numbered, if the claim pools them."""
    if claim.pooled:
        own = [by_seed(results, each, metric) for each in claim.better]
        found = dict(enumerate(value for one in own for value in one.values()))
    else:
        found = by_seed(results, row, metric)
    if not found:
        rows = ", ".join(dict.fromkeys(str(one["row"]) for one in results if metric in one)) or "(none)"
        raise DataError(f"{claim.id}: {claim.results} has no {metric} for row {row!r}; rows that have it: {rows}")
    return found


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)
