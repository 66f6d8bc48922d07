"""Is one of two trained networks, or one of several settings, better? Paired by example, or by seed on equal budgets.

    two runs      on the same held-out examples; n₁₀ only the first classifies correctly, n₀₁ only the second
                  difference (n₁₀ − n₀₁)/n with a percentile interval over resampled examples; McNemar's exact test
    settings      each trained with the same seeds on the same data; the others against the first by a paired t-test over the
                  seeds, p corrected for their number by Holm's method

A comparison of two runs is about these two networks; whether a setting is better takes several seeds.
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
from mohs._core.watch import UNWATCHED, Watch
from mohs.data.examples import Examples
from mohs.evaluate.mcnemar import RunsCompared, paired_by_example
from mohs.evaluate.outputs import predict
from mohs.evaluate.statistics import summary
from mohs.studies.collect import Result, by_seed
from mohs.studies.judge import collapsed
from mohs.studies.recipe import MOST_SEEDS, Recipe, Row, Study
from mohs.studies.run_study import run_study
from mohs.studies.study_page import verdicts
from mohs.train.directory import RunDirectory
from mohs.train.loop import RUNS
from mohs.train.many import TOGETHER
from mohs.train.resolve import prepare_data
from mohs.train.run import Run
from mohs.train.run_data import opened
from mohs.train.trained import Trained, load_run


@dataclass(frozen=True)
class SettingCompared:
    """One setting: values by seed, their mean, SD and interval, and the difference to the first setting with p and verdict.

    failed: the number of runs that collapsed (diverged, or did not learn), which the difference leaves out.
    """

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


def compare_runs(a: str | Path, b: str | Path, *, seed: int = 0) -> RunsCompared:
    """Compare two finished runs on the examples that both hold out: the test set or, without one, the validation set.

    Args:
        a: Folder of the first run.
        b: Folder of the second run.
        seed: Seed of the bootstrap over examples.

    Returns:
        Both accuracies, their difference with a 95 % interval, and McNemar's exact p.
    """
    sides = [load_run(Path(folder)) for folder in (a, b)]
    parts = [held_out(side) for side in sides]
    (examples, on), (others, _) = parts
    if examples.fingerprint() != others.fingerprint():
        raise DataError(
            f"{a} and {b} hold out different examples, or with different labels ({examples.name}, {others.name}), and cannot be "
            "compared; for training before and after a correction of labels: mohs apply AUDIT decisions.csv --retrain"
        )
    right = [(predict(side.network, examples).logits.argmax(1) == examples.labels).numpy() for side in sides]
    return paired_by_example(right[0], right[1], on=on, seed=seed)


def held_out(trained: Trained) -> tuple[Examples, str]:
    """The run's held-out examples, read again and checked to be unchanged."""
    found = opened(trained.run)
    was, now = RunDirectory(trained.folder).about["data"]["fingerprint"], found.fingerprint()
    if was != now:
        raise DataError(f"{trained.folder}: the data ({trained.run.data}) have changed since this run: its test set is gone")
    data = prepare_data(trained.run, found)
    if data.test is not None:
        return data.test, "test"
    if data.val is None:
        raise DataError(f"{trained.folder} holds out no examples to compare on")
    return data.val, "validation"


def compare_settings(
    settings: Mapping[str, Run],
    *,
    seeds: int = 5,
    metric: str = "test_accuracy",
    runs: str | Path = RUNS,
    device: str = "auto",
    jobs: int = TOGETHER,
    watch: Watch = UNWATCHED,
    on: str = "local",
) -> list[SettingCompared]:
    """Train several settings with the same seeds and compare each with the first.

    Args:
        settings: Runs by name; the first is the baseline.
        seeds: Number of seeds: 0..n−1 are added to each run's own seed.
        metric: The number to compare, such as "test_accuracy".
        runs: Folder that holds the run folders; finished runs are only read.
        device: "auto", "cpu" or "cuda".
        jobs: Number of runs that train at once on a GPU.
        watch: As for `mohs.run_study`.
        on: As for `mohs.run_study`.

    Returns:
        One entry per setting, with the verdict "better", "worse" or "draw" (p < 0.05, corrected by Holm's method).

    Example:
        >>> settings = {name: mohs.Run(data="digits", loss=name) for name in ("cross_entropy", "gce")}
        >>> mohs.compare_settings(settings, seeds=3)  # doctest: +SKIP
    """
    if len(settings) < 2:
        raise ValueError(f"a comparison needs at least two settings, got {', '.join(settings) or 'none'}")
    check_between("seeds", seeds, 1, MOST_SEEDS)
    recipe = recipe_of(settings, seeds=seeds, metric=metric)
    return compared(recipe, run_study(recipe, runs=runs, device=device, jobs=jobs, watch=watch, on=on))


def recipe_of(settings: Mapping[str, Run], *, seeds: int, metric: str = "test_accuracy") -> Recipe:
    """The comparison as a study: one row per setting, which should beat the first."""
    first = next(iter(settings))
    text = json.dumps({name: run.plain() for name, run in settings.items()}, sort_keys=True, default=str)
    study = Study(
        id=f"compare/{hashlib.sha256(text.encode()).hexdigest()[:8]}", paper="", what="a comparison", metric=metric, seeds=seeds
    )
    rows = [Row(label=name, run=run, against=None if name == first else first) for name, run in settings.items()]
    return Recipe(Path("compare"), study, rows)


def compared(recipe: Recipe, results: Sequence[Result]) -> list[SettingCompared]:
    """Summarize and judge the results of each setting."""
    judged, made = verdicts(recipe, results), []
    for row in recipe.rows:
        values = by_seed(results, row.label, recipe.study.metric)
        failed = sum(one["row"] == row.label and bool(collapsed(one)) for one in results)
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
