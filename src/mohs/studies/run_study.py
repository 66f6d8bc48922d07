"""Running a study: train what is not trained yet, measure what is not measured yet, go on where a run diverges.

A study that was stopped goes on where it was. On a GPU several runs train at once; one that diverges is found by halving its
group, while the others keep what they have and go on. What diverged is noted and tried again the next time; any other error
(a full disk, a folder in use) stops the study. Rows that take their labels from another's network, or choose a setting, are
trained after what they wait for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from mohs._core.errors import Diverged, RunError
from mohs.studies.choose import NoChoice
from mohs.studies.collect import AFTER, BEFORE, Result, collect, from_folder
from mohs.studies.notes import Notes
from mohs.studies.plan import Planned, distinct, plan, run_key
from mohs.studies.recipe import Recipe
from mohs.studies.relabel import NoLabels, check_labels, data_of, with_labels_of
from mohs.studies.run_measures import measure_run, missing
from mohs.train.loop import RUNS, UNWATCHED, Watch
from mohs.train.many import TOGETHER, train_many
from mohs.train.resolve import prepared
from mohs.train.run import Run
from mohs.train.run_data import opened, with_test
from mohs.train.trained import Trained

Made = Trained | RunError


def run_study(
    recipe: Recipe, *, runs: Path = RUNS, device: str = "auto", jobs: int = TOGETHER, watch: Watch = UNWATCHED
) -> list[Result]:
    """Train and measure every run of the recipe, and return its results; jobs: how many train at once on a GPU.

    `watch` is told of every step and epoch, and of each run that ended: {"ended", "of", "row", "seed", "error", "seconds"}.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    planned = plan(recipe)
    todo, rows = distinct(planned), {one.key for one in planned}
    check_select(recipe, todo)
    notes, ended = Notes(runs, recipe.study.id), 0
    for group in groups(todo, jobs if on_gpu(device) else 1):
        began = time.perf_counter()
        for one, made in attempts(group, notes, device=device, watch=watch):
            if isinstance(made, Trained):
                if one.key in rows:  # not a trial
                    measured(made, recipe, runs=runs, device=device)
                    check_metric(recipe, made.folder)
                notes.add(one.key, folder=made.folder)  # by the run as planned: collecting knows no data
            else:
                notes.add(one.key, error=str(made))
            ended += 1
            told: dict[str, Any] = {"ended": ended, "of": len(todo), "row": one.row.label, "seed": one.run.seed}
            failed = str(made) if isinstance(made, RunError) else ""
            watch({**told, "error": failed, "seconds": time.perf_counter() - began})
    return collect(recipe, runs=runs)


def groups(todo: Sequence[Planned], size: int) -> Iterator[list[Planned]]:
    """The runs in groups of at most so many, those that need another's network after the others."""
    for depth in sorted({one.depth for one in todo}):
        wave = [one for one in todo if one.depth == depth]
        for start in range(0, len(wave), size):
            yield wave[start : start + size]


def attempts(
    group: Sequence[Planned], notes: Notes, *, device: str, watch: Watch
) -> Iterator[tuple[Planned, Trained | RunError]]:
    """Each run of the group with what became of it, in order."""
    where, failure = "cuda" if on_gpu(device) else "cpu", None
    made: Sequence[Made] = ()
    try:
        runs = [as_trained(one, notes, device=where) for one in group]
        once = {run_key(run): run for run in runs}  # rows may have chosen the same
        done = train_many(
            list(once.values()),
            lambda run: data_of(run, runs=notes.runs, device=where),
            folder=notes.runs,
            device=device,
            together=len(group),
            watch=watch,
        )
        by_key = dict(zip(once, done, strict=True))
        made = [by_key[run_key(run)] for run in runs]
    except (Diverged, NoLabels, NoChoice) as error:
        failure = error.with_traceback(None)  # which would keep all jobs of the group, and their memory
    if failure is None:
        yield from zip(group, made, strict=True)
    elif len(group) == 1:
        yield group[0], failure
    else:
        for part in (group[: len(group) // 2], group[len(group) // 2 :]):
            yield from attempts(part, notes, device=device, watch=watch)


def as_trained(one: Planned, notes: Notes, *, device: str) -> Run:
    """The run with its data's test set said, what it chose, and the folder its labels come from; NoLabels, NoChoice where these
    give none to use."""
    run = with_test(one.run)
    if one.row.choose is not None and one.trials:
        return one.row.choose.settled(run, one.row.choose.best(notes.folders(trial.key for trial in one.trials)))
    if one.source is None:
        return run
    (folder,) = notes.folders([one.source.key])
    if folder is None:
        raise NoLabels(f"its labels were to come from {one.row.relabel_from}, which failed")
    run = with_labels_of(run, folder)
    check_labels(data_of(run, runs=notes.runs, device=device), of=str(one.row.relabel_from))
    return run


def measured(trained: Trained, recipe: Recipe, *, runs: Path, device: str) -> None:
    """Measure what the run's folder does not hold yet, on the data as they were trained on."""
    if missing(trained.folder, recipe.measures):
        where = "cuda" if on_gpu(device) else "cpu"
        trained.network.to(where)
        measure_run(trained, prepared(trained.run, data_of(trained.run, runs=runs, device=where)), recipe.measures)


def check_select(recipe: Recipe, planned: Sequence[Planned]) -> None:
    """Raise, before any training, where an epoch or a setting is to be chosen by a validation set that there will not be."""
    for one in (one for one in planned if recipe.study.select == "best_val" or one.trials):
        first = one
        while first.source is not None:  # whose held-out part it shares
            first = first.source
        if first.run.validation == 0 and opened(with_test(first.run)).val is None:
            what = "choose" if one.trials else 'select = "best_val"'
            raise ValueError(f"{recipe.path}: {what}, but row {one.row.label!r} has no validation set")


def check_metric(recipe: Recipe, folder: Path) -> None:
    """Raise after the first run, not after the last, where nothing gives the number that the study is about."""
    found = from_folder(folder, recipe)
    if recipe.whole and recipe.study.metric not in found:
        known = ", ".join(name for name in found if name not in (*BEFORE, *AFTER))
        raise ValueError(f"{recipe.path}: no run gives the metric {recipe.study.metric!r}; there are {known}")


def on_gpu(device: str) -> bool:
    """Whether training will be on a GPU."""
    return device != "cpu" and torch.cuda.is_available()
