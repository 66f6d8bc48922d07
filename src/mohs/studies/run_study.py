"""Running studies: train the runs that are missing, measure what has not been measured, and continue after a run diverges.

A study that was interrupted resumes when it is run again. On a GPU several runs train at once. If one of them diverges, the
group is split in halves until it is found; the other runs resume from their checkpoints. A run that diverged is recorded with
its error and tried again next time. Any other error (a full disk, a folder in use) stops the study. Rows that take their labels
from another row's network, or select a setting, train after their prerequisites.

`run_studies` first trains, on a GPU, the runs of all recipes together: runs that recipes share are trained once, and runs of
one kind (data, network, length) fill the GPU even if each study has only a few of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohs._core.device import choose_device
from mohs._core.errors import Diverged, RunError
from mohs._core.executor import executor_on
from mohs._core.watch import UNWATCHED, Watch
from mohs.studies.collect import AFTER, BEFORE, Result, collect, from_folder
from mohs.studies.plan import PlannedRun, RunIndex, distinct, plan, run_key
from mohs.studies.recipe import Choice, Recipe
from mohs.studies.relabel import MissingLabels, check_labels, data_of, with_labels_of
from mohs.studies.run_measures import measure_run, missing_measures
from mohs.studies.run_system import run_system
from mohs.train.build import build
from mohs.train.directory import RunDirectory
from mohs.train.estimate import estimate
from mohs.train.loop import RUNS
from mohs.train.many import TOGETHER, train_many
from mohs.train.resolve import prepare_data, resolve
from mohs.train.run import Run
from mohs.train.run_data import opened, with_test
from mohs.train.trained import Trained

KIND = ("data", "embed", "model", "epochs", "batch")
POOL = "pool"  # the run index of runs that several studies share


class NoChoice(RunError):  # noqa: N818  (what is missing)
    """Training diverged with every value of a setting that a row selects."""


def run_study(
    recipe: Recipe,
    *,
    runs: str | Path = RUNS,
    device: str = "auto",
    jobs: int = TOGETHER,
    watch: Watch = UNWATCHED,
    on: str = "local",
) -> list[Result]:
    """Train and measure every run of a recipe; runs that are finished are only read.

    Args:
        recipe: From `mohs.read_recipe`.
        runs: Folder that holds the run folders.
        device: "auto", "cpu" or "cuda".
        jobs: Number of runs that train at once on a GPU.
        watch: Called with every step and epoch, and after each run with
            {"ended", "of", "study", "row", "seed", "error", "seconds"}. On Ray only the latter.
        on: Where runs are trained: "local", "ray" or "ray:ADDRESS"; on a cluster, `runs` must be a path that all machines share.

    Returns:
        One result per row and seed, with its numbers or the error that stopped it. `mohs.write_study_page` judges and files them.
    """
    runs = Path(runs)
    _check_jobs(jobs)
    if recipe.study.system is not None:
        return run_system(recipe, runs=runs, device=device, watch=watch)
    planned = plan(recipe)
    todo, rows = distinct(planned), {one.key for one in planned}
    check_select(recipe, todo)
    index, ended = RunIndex(runs, recipe.study.id), 0
    with executor_on(on) as executor:
        gpu = executor.has_gpu(device)
        work = StudyWork(recipe, index, frozenset(rows), device, watch if on == "local" else UNWATCHED)
        for depth in sorted({one.depth for one in todo}):  # a wave after its prerequisites
            waiting = list(groups([one for one in todo if one.depth == depth], jobs if gpu else 1))
            for group, outcomes in zip(waiting, executor.map(work, waiting, gpu=gpu), strict=True):
                for one, outcome in zip(group, outcomes, strict=True):
                    index.add(one.key, **outcome.entry)  # under the run as planned: collecting does not open the data
                    ended += 1
                    event: dict[str, Any] = {"ended": ended, "of": len(todo), "study": recipe.study.id, "row": one.row.label}
                    watch({**event, "seed": one.run.seed, "error": outcome.error or "", "seconds": outcome.seconds})
    return collect(recipe, runs=runs)


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended: its folder, or the error that stopped it, and the seconds since its group began."""

    folder: Path | None
    error: str | None
    seconds: float

    @property
    def entry(self) -> dict[str, Any]:
        """The outcome as `RunIndex.add` takes it."""
        return {"error": self.error} if self.folder is None else {"folder": self.folder}


@dataclass(frozen=True)
class StudyWork:
    """Trains and measures a group of runs, wherever it is called; rows: keys of the runs that are not trials."""

    recipe: Recipe
    index: RunIndex
    rows: frozenset[str]
    device: str
    watch: Watch

    def __call__(self, group: Sequence[PlannedRun]) -> list[RunOutcome]:
        began, outcomes = time.perf_counter(), []
        for one, made in attempts(group, self.index, device=self.device, watch=self.watch):
            if isinstance(made, Trained) and one.key in self.rows:
                measure_missing(made, self.recipe, runs=self.index.runs, device=self.device)
                check_metric(self.recipe, made.folder)
            folder, error = (made.folder, None) if isinstance(made, Trained) else (None, str(made))
            outcomes.append(RunOutcome(folder, error, time.perf_counter() - began))
        return outcomes


def run_studies(
    recipes: Sequence[Recipe],
    *,
    runs: str | Path = RUNS,
    device: str = "auto",
    jobs: int = TOGETHER,
    watch: Watch = UNWATCHED,
    on: str = "local",
) -> Iterator[list[Result]]:
    """Run several recipes and yield the results of each, in order; arguments as for `run_study`."""
    pooled = [recipe for recipe in recipes if recipe.study.system is None]
    with executor_on(on):  # one connection for all
        if len(pooled) > 1 and on == "local" and on_gpu(device):
            train_pooled(pooled, runs=Path(runs), device=device, jobs=jobs, watch=watch)
        for recipe in recipes:
            yield run_study(recipe, runs=runs, device=device, jobs=jobs, watch=watch, on=on)


def train_pooled(
    recipes: Sequence[Recipe], *, runs: Path = RUNS, device: str = "auto", jobs: int = TOGETHER, watch: Watch = UNWATCHED
) -> int:
    """Train the runs of these recipes that have no prerequisites, and return their number; failures are left to the studies.

    `watch` is called with every step and epoch, and after each wave with the number of runs that have ended: {"trained", "of"}.
    """
    _check_jobs(jobs)
    planned = [plan(recipe) for recipe in recipes]
    for recipe, own in zip(recipes, planned, strict=True):
        check_select(recipe, distinct(own))
    todo = [one for one in distinct([one for own in planned for one in own]) if one.depth == 0]
    ended = 0
    for wave in waves(todo, jobs if on_gpu(device) else 1):
        ended += sum(1 for _ in attempts(wave, RunIndex(runs, POOL), device=device, watch=watch))
        watch({"trained": ended, "of": len(todo)})
    return ended


@dataclass(frozen=True)
class StudyEstimate:
    """What running a study would take; seconds: of training alone, one run after another, None if nothing is left to train."""

    study: str
    rows: int
    seeds: int
    runs: int
    to_train: int
    measures: list[str]
    seconds: float | None = None


def estimate_study(recipe: Recipe, *, runs: str | Path = RUNS, device: str = "auto") -> StudyEstimate:
    """Count the runs of a study and time a few steps of the first one that is not finished."""
    runs = Path(runs)
    entries = RunIndex(runs, recipe.study.id).read()
    done = {key for key, entry in entries.items() if "folder" in entry and RunDirectory(runs / entry["folder"]).done}
    every = [one for one in distinct(plan(recipe)) if not (one.trials and one.seed == 0)]  # these are one of their trials
    left = [one for one in every if one.key not in done]
    seconds = None
    if left and recipe.study.system is None:
        run = with_test(left[0].settings)
        run, data, _ = resolve(run, opened(run), device=device)
        seconds = estimate(build(run, data, device=device)).seconds * len(left)
    counts = {"rows": len(recipe.rows), "seeds": recipe.study.seeds, "runs": len(every), "to_train": len(left)}
    return StudyEstimate(recipe.study.id, **counts, measures=[one.name for one in recipe.measures], seconds=seconds)


def groups(todo: Sequence[PlannedRun], size: int) -> Iterator[list[PlannedRun]]:
    """The runs in groups of at most `size`, each after its prerequisites."""
    for depth in sorted({one.depth for one in todo}):
        wave = [one for one in todo if one.depth == depth]
        for start in range(0, len(wave), size):
            yield wave[start : start + size]


def waves(todo: Sequence[PlannedRun], size: int) -> Iterator[list[PlannedRun]]:
    """The runs in groups of at most `size` with the same data, network and length; groups of one kind are about equally large."""
    kinds: dict[str, list[PlannedRun]] = {}
    for one in todo:
        kinds.setdefault(repr([getattr(one.settings, name) for name in KIND]), []).append(one)
    for kind in kinds.values():
        count = -(-len(kind) // size)
        even = -(-len(kind) // count)
        for start in range(0, len(kind), even):
            yield kind[start : start + even]


def attempts(
    group: Sequence[PlannedRun], index: RunIndex, *, device: str, watch: Watch
) -> Iterator[tuple[PlannedRun, Trained | RunError]]:
    """Train the group; yields each run, in order, with its trained network or its error."""
    where, failure = "cuda" if on_gpu(device) else "cpu", None
    made: Sequence[Trained] = ()
    try:
        runs = [as_trained(one, index, device=where) for one in group]
        once = {run_key(run): run for run in runs}  # rows may have selected the same value
        done = train_many(
            list(once.values()),
            lambda run: data_of(run, runs=index.runs, device=where),
            folder=index.runs,
            device=device,
            together=len(group),
            watch=watch,
        )
        by_key = dict(zip(once, done, strict=True))
        made = [by_key[run_key(run)] for run in runs]
    except (Diverged, MissingLabels, NoChoice) as error:
        failure = error.with_traceback(None)  # a traceback would keep all jobs of the group, and their memory
    if failure is None:
        yield from zip(group, made, strict=True)
    elif len(group) == 1:
        yield group[0], failure
    else:
        for part in (group[: len(group) // 2], group[len(group) // 2 :]):
            yield from attempts(part, index, device=device, watch=watch)


def as_trained(one: PlannedRun, index: RunIndex, *, device: str) -> Run:
    """The run as it is trained: with its test set, its selected setting and the folder its labels come from.

    Raises NoChoice if every value diverged, and MissingLabels if the run that gives the labels failed or never predicts some
    class.
    """
    run = with_test(one.settings)
    if one.row.choose is not None and one.trials:
        return one.row.choose.apply(run, best_value(one.row.choose, index.folders(trial.key for trial in one.trials)))
    if one.source is None:
        return run
    (folder,) = index.folders([one.source.key])
    if folder is None:
        raise MissingLabels(f"its labels come from {one.row.relabel_from}, which failed")
    run = with_labels_of(run, folder)
    check_labels(data_of(run, runs=index.runs, device=device), of=str(one.row.relabel_from))
    return run


def best_value(choice: Choice, folders: Sequence[Path | None]) -> float:
    """The value whose run has the best validation accuracy; folders: in the order of the values, None for a diverged run."""
    found = [-1.0 if folder is None else float(RunDirectory(folder).metrics()[-1]["val_accuracy"]) for folder in folders]
    if max(found) < 0:
        raise NoChoice(f"training diverged with every {choice.key} of {', '.join(map(str, choice.values))}")
    return choice.values[found.index(max(found))]


def measure_missing(trained: Trained, recipe: Recipe, *, runs: Path, device: str) -> None:
    """Run the measures that the run's folder does not hold yet, on the data the run was trained on."""
    if missing_measures(trained.folder, recipe.measures):
        where = "cuda" if on_gpu(device) else "cpu"
        trained.network.to(where)
        measure_run(trained, prepare_data(trained.run, data_of(trained.run, runs=runs, device=where)), recipe.measures)


def check_select(recipe: Recipe, planned: Sequence[PlannedRun]) -> None:
    """Validate, before any training, that rows which select an epoch or a setting on held-out examples have a validation set."""
    for one in (one for one in planned if recipe.study.select == "best_val" or one.trials):
        first = one
        while first.source is not None:  # whose validation set it shares
            first = first.source
        if first.settings.validation == 0 and opened(with_test(first.settings)).val is None:
            what = "choose" if one.trials else 'select = "best_val"'
            raise ValueError(f"{recipe.path}: {what}, but row {one.row.label!r} has no validation set")


def check_metric(recipe: Recipe, folder: Path) -> None:
    """Validate, after the first run instead of the last, that runs provide the study's metric."""
    found = from_folder(folder, recipe)
    if recipe.complete and recipe.study.metric not in found:
        known = ", ".join(name for name in found if name not in (*BEFORE, *AFTER))
        raise ValueError(f"{recipe.path}: no run provides the metric {recipe.study.metric!r}; available: {known}")


def on_gpu(device: str) -> bool:
    """Whether training will use a GPU."""
    return choose_device(device).type == "cuda"


def _check_jobs(jobs: int) -> None:
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
