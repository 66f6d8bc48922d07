"""Which of two trained networks, or of several settings, is better: paired by example, or by seed on equal budgets.

    two runs      on the same held-out examples; n₁₀ only the first has right, n₀₁ only the second
                  difference (n₁₀ − n₀₁)/n with a percentile interval over resampled examples; McNemar's exact test
    settings      each trained with the same seeds on the same data; the others against the first by a paired t-test over the
                  seeds, p corrected for their number by Holm's method

Two runs say something about these two networks only; whether a setting is better takes several seeds.
McNemar, "Note on the sampling error of the difference between correlated proportions" (Psychometrika 1947).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mohs._core.errors import DataError
from mohs._core.validation import check_between
from mohs.data.examples import Data, Examples
from mohs.evaluate.paired import RunsCompared, paired_by_example
from mohs.evaluate.statistics import summary
from mohs.studies.collect import Result, by_seed
from mohs.studies.recipe import Recipe, Row, Study
from mohs.studies.run_study import run_study
from mohs.studies.study_page import verdicts
from mohs.train.directory import RunDirectory
from mohs.train.loop import RUNS, UNWATCHED, Watch
from mohs.train.many import TOGETHER
from mohs.train.predict import predict
from mohs.train.resolve import prepared
from mohs.train.run import Run
from mohs.train.run_data import opened
from mohs.train.trained import Trained, load_run


@dataclass(frozen=True)
class SettingCompared:
    """One setting: mean, SD, interval and n over the seeds; difference to the first with its interval, p and verdict."""

    name: str
    values: dict[int, float]
    failed: int
    mean: float = math.nan
    sd: float = math.nan
    low: float = math.nan
    high: float = math.nan
    difference: float = math.nan
    difference_low: float = math.nan
    difference_high: float = math.nan
    p: float = math.nan
    verdict: str = ""

    @property
    def n(self) -> int:
        return len(self.values)


def compare_runs(a: Path, b: Path, *, seed: int = 0) -> RunsCompared:
    """Two finished runs on the examples that both hold out: the test set, or validation where the data have no other."""
    sides = [load_run(Path(folder)) for folder in (a, b)]
    parts = [held_out(side) for side in sides]
    (examples, on), (others, _) = parts
    if examples.fingerprint() != others.fingerprint():
        raise DataError(f"{a} and {b} hold out different examples ({examples.name}, {others.name}): they cannot be paired")
    right = [(predict(side.network, examples)[0].argmax(1) == examples.labels).numpy() for side in sides]
    return paired_by_example(right[0], right[1], on=on, seed=seed)


def held_out(trained: Trained) -> tuple[Examples, str]:
    """The examples to compare on, opened anew and checked to be those that the run knew."""
    found = opened(trained.run)
    was, now = RunDirectory(trained.folder).about["data"]["fingerprint"], fingerprint(found)
    if was != now:
        raise DataError(f"{trained.folder}: the data ({trained.run.data}) have changed since this run: its test set is not there")
    data = prepared(trained.run, found)
    if data.test is not None:
        return data.test, "test"
    if data.val is None:
        raise DataError(f"{trained.folder} holds out no examples: there is nothing to compare on")
    return data.val, "validation"


def fingerprint(data: Data) -> str:
    """Of all parts, as run.json has it."""
    return "-".join(part.fingerprint() for part in (data.train, data.val, data.test) if part is not None)


def compare_settings(
    settings: Mapping[str, Run],
    *,
    seeds: int = 5,
    metric: str = "test_accuracy",
    runs: Path = RUNS,
    device: str = "auto",
    jobs: int = TOGETHER,
    watch: Watch = UNWATCHED,
) -> list[SettingCompared]:
    """Train each of the named runs with seeds 0..n−1 added to its own; the first is what the others are compared with."""
    if len(settings) < 2:
        raise ValueError(f"at least two settings are needed for a comparison, got {', '.join(settings) or 'none'}")
    check_between("seeds", seeds, 1)
    recipe = recipe_of(settings, seeds=seeds, metric=metric)
    return compared(recipe, run_study(recipe, runs=runs, device=device, jobs=jobs, watch=watch))


def recipe_of(settings: Mapping[str, Run], *, seeds: int, metric: str = "test_accuracy") -> Recipe:
    """The comparison as a study of its own: a row a setting, the first one what the others are to beat."""
    first = next(iter(settings))
    text = json.dumps({name: run.plain() for name, run in settings.items()}, sort_keys=True, default=str)
    study = Study(
        id=f"compare/{hashlib.sha256(text.encode()).hexdigest()[:8]}", paper="", what="a comparison", metric=metric, seeds=seeds
    )
    rows = [Row(label=name, run=run, against=None if name == first else first) for name, run in settings.items()]
    return Recipe(Path("compare"), study, rows)


def compared(recipe: Recipe, results: Sequence[Result]) -> list[SettingCompared]:
    """What the results say of each setting."""
    judged, made = verdicts(recipe, results), []
    for row in recipe.rows:
        values = by_seed(results, row.label, recipe.study.metric)
        failed = sum(one["row"] == row.label and bool(one.get("error")) for one in results)
        one = SettingCompared(row.label, values, failed)
        if values:
            found = summary(list(values.values()))
            one = dataclasses.replace(one, mean=found.mean, sd=found.sd, low=found.low, high=found.high)
        if row.label in judged:
            to = judged[row.label]
            one = dataclasses.replace(one, difference=to.difference, difference_low=to.low, difference_high=to.high)
            one = dataclasses.replace(one, p=to.p, verdict=_word(to.verdict))
        made.append(one)
    return made


def _word(verdict: str) -> str:
    return {"holds": "better", "fails": "worse", "draw": "draw"}[verdict]
