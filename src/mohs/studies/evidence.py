"""A claim's verdict from a table of results: which numbers are compared, and the evidence in words.

    better, worse                two rows (or lists of rows: each is compared with each), by `relation`
    better, above | below        one or several rows against a number, by the interval over seeds
    better, other_metric         two metrics of the same row, paired by seed; other_metric may be a list
    relation = "ratio"           better ÷ worse, seed by seed, against `above` or `below`
    together = true              the mean over the rows, seed by seed, is compared

A claim with several comparisons holds if all of them hold. If the networks of a row did not learn, the claim is "not run".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mohs._core.errors import DataError
from mohs._core.validation import check_choice
from mohs.evaluate.statistics import DIRECTIONS
from mohs.studies.collect import Result, by_seed, read_results
from mohs.studies.judge import Judgment, all_of, failed_to_learn, judge, judge_equal, judge_number

VERDICTS = ("holds", "fails", "draw", "not run")
RELATIONS = ("better", "equal", "ratio")
LEAST_P = 1e-4  # smaller values of p, such as the 0 of identical differences, are shown as "p < 0.0001"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, the evidence in words, and the number, hardware and date of the runs."""

    verdict: str
    evidence: str
    n: int | None = None
    hardware: str = ""
    date: str = ""


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
    together: bool = False
    direction: str = "higher"
    margin: float | None = None
    above: float | None = None
    below: float | None = None
    check: str | None = None
    test: str | None = None
    verdict: str | None = None
    reason: str = ""
    n: int | None = None
    hardware: str = ""
    date: str = ""
    headline: bool = False
    again: str | None = None

    def __post_init__(self) -> None:
        check_choice("direction", self.direction, DIRECTIONS)
        if self.verdict is not None:
            check_choice("verdict", self.verdict, VERDICTS)
        if self.check is not None:
            check_choice("check", self.check, ("analytic",))
        check_choice("relation", self.relation, RELATIONS)
        for name in ("better", "worse", "other_metric"):  # a string is a list of one
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        check_comparison(self)

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
    if metrics and (claim.worse or number):
        raise ValueError("other_metric compares two metrics of one row: it goes with neither worse nor above nor below")
    if claim.together and (number or claim.relation == "ratio" or (claim.worse and len(claim.worse) != len(claim.better))):
        raise ValueError("together compares the mean of rows with the mean of equally many others, or two metrics")
    if claim.relation == "ratio":
        if not claim.worse or not number:
            raise ValueError('relation = "ratio" needs worse, and above or below')
        return
    if bool(claim.worse) + number + metrics != 1:
        raise ValueError("better needs exactly one of worse, above, below and other_metric")
    if claim.relation == "equal" and (number or claim.margin is None):
        raise ValueError('relation = "equal" compares two rows or two metrics and needs a margin')


def verdict_from(claim: Claim, path: Path) -> Verdict:
    """Compute the verdict from a results file; "not run" while rows are missing."""
    results = read_results(path)
    rows = [*claim.better, *claim.worse]
    known = list(dict.fromkeys(str(one["row"]) for one in results))
    for row in rows:
        if row not in known:
            return Verdict("not run", f"row {row} of its study has not been run yet")
        reason = failed_to_learn(results, row)
        if reason:
            return Verdict("not run", reason)
    made = list(_comparisons(claim, results))
    own = [one for one in results if one["row"] in rows]
    where = "; ".join(sorted({str(one["hardware"]) for one in own if "hardware" in one}))
    when = max((str(one["date"]) for one in own if "date" in one), default="")
    comparisons = "; ".join(text for text, _ in made)
    hows = "; ".join(dict.fromkeys(found.how for _, found in made))
    judged = [found for _, found in made]
    evidence = f"{comparisons}; {hows}. {claim.reason}".strip()
    return Verdict(all_of(judged), evidence, min(one.n for one in judged), where, when)


def _comparisons(claim: Claim, results: Sequence[Result]) -> Iterator[tuple[str, Judgment]]:
    """Every comparison of the claim, in words, with its judgment."""
    if claim.together:
        yield from _means(claim, results)
        return
    for row in claim.better:
        ours = _numbers(claim, results, row, claim.metric)
        if claim.other_metric:
            for metric in claim.other_metric:
                theirs = _numbers(claim, results, row, metric)
                yield _pair(f"{row}: {claim.metric}", metric, "", ours, theirs, _judge(claim))
        elif not claim.worse:
            found = judge_number(ours, above=claim.above, below=claim.below)
            yield f"{row} {_mean(ours):.4g} ({claim.metric})", found
        for worse in claim.worse:
            theirs = _numbers(claim, results, worse, claim.metric)
            if claim.relation == "ratio":
                shared = {seed: ours[seed] / theirs[seed] for seed in ours if theirs.get(seed)}
                found = judge_number(shared, above=claim.above, below=claim.below)
                yield f"{row} ÷ {worse} {found.difference + _bound(claim):.4g} ({claim.metric})", found
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
    p = "" if found.p != found.p else f", p = {found.p:.2g}" if found.p >= LEAST_P else f", p < {LEAST_P:g}"
    return f"{one} {_mean(ours):.4g}, {other} {_mean(theirs):.4g}{metric}: {found.difference:+.3g}{p}", found


def _bound(claim: Claim) -> float:
    return claim.above if claim.above is not None else float(claim.below or 0.0)


def _numbers(claim: Claim, results: Sequence[Result], row: str, metric: str) -> dict[int, float]:
    found = by_seed(results, row, metric)
    if not found:
        rows = ", ".join(dict.fromkeys(str(one["row"]) for one in results if metric in one)) or "(none)"
        raise DataError(f"{claim.id}: {claim.results} has no {metric} for row {row!r}; rows that have it: {rows}")
    return found


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)
