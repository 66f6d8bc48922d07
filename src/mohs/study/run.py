"""Running a study: train what is not trained yet, measure what is not measured yet, go on where a run diverges.

A study that was stopped goes on where it was. On a GPU several runs train at once; one that fails is found by halving its
group, while the others keep what they have and go on. What failed is noted and tried again the next time.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from mohs.errors import RunError
from mohs.study.collect import AFTER, BEFORE, Result, collect, from_folder
from mohs.study.data import opened, with_test
from mohs.study.measure import measure_run, missing
from mohs.study.notes import Notes
from mohs.study.plan import Planned, distinct, plan
from mohs.study.recipe import Recipe
from mohs.train.loop import RUNS, UNWATCHED, Watch
from mohs.train.many import TOGETHER, train_many
from mohs.train.settle import prepared
from mohs.train.trained import Trained


def run_study(
    recipe: Recipe, *, runs: Path = RUNS, device: str = "auto", jobs: int = TOGETHER, watch: Watch = UNWATCHED
) -> list[Result]:
    """Train and measure every run of the recipe, and return its results; jobs: how many train at once on a GPU.

    `watch` is told of every step and epoch, and of each run that ended: {"ended", "of", "row", "seed", "error", "seconds"}.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    todo = distinct(plan(recipe))
    planned = [dataclasses.replace(one, run=with_test(one.run)) for one in todo]
    keys = [one.key for one in todo]  # of the runs as planned: collecting knows no data
    check_select(recipe, planned)
    notes, at_once = Notes(runs, recipe.study.id), jobs if on_gpu(device) else 1
    ended = 0
    for start in range(0, len(planned), at_once):
        began, group = time.perf_counter(), planned[start : start + at_once]
        for i, (one, made) in enumerate(attempts(group, runs=runs, device=device, watch=watch)):
            if isinstance(made, Trained):
                measured(made, recipe, device)
                check_metric(recipe, made.folder)
                notes.add(keys[start + i], folder=made.folder)
            else:
                notes.add(keys[start + i], error=str(made))
            ended += 1
            told: dict[str, Any] = {"ended": ended, "of": len(planned), "row": one.row.label, "seed": one.run.seed}
            failed = str(made) if isinstance(made, RunError) else ""
            watch({**told, "error": failed, "seconds": time.perf_counter() - began})
    return collect(recipe, runs=runs)


def attempts(group: Sequence[Planned], *, runs: Path, device: str, watch: Watch) -> Iterator[tuple[Planned, Trained | RunError]]:
    """Each run of the group with what became of it, in order."""
    made: Sequence[Trained | RunError]
    try:
        made = train_many([one.run for one in group], opened, folder=runs, device=device, together=len(group), watch=watch)
    except RunError as error:
        if len(group) > 1:
            half = len(group) // 2
            for part in (group[:half], group[half:]):
                yield from attempts(part, runs=runs, device=device, watch=watch)
            return
        made = [error]
    yield from zip(group, made, strict=True)


def measured(trained: Trained, recipe: Recipe, device: str) -> None:
    """Measure what the run's folder does not hold yet, on the data as they were trained on."""
    if missing(trained.folder, recipe.measures):
        trained.network.to("cuda" if on_gpu(device) else "cpu")
        measure_run(trained, prepared(trained.run, opened(trained.run)), recipe.measures)


def check_select(recipe: Recipe, planned: Sequence[Planned]) -> None:
    """Raise, before any training, where the epoch is to be chosen by a validation set that there will not be."""
    for one in planned if recipe.study.select == "best_val" else ():
        if one.run.validation == 0 and opened(one.run).val is None:
            raise ValueError(f'{recipe.path}: select = "best_val", but row {one.row.label!r} has no validation set')


def check_metric(recipe: Recipe, folder: Path) -> None:
    """Raise after the first run, not after the last, where nothing gives the number that the study is about."""
    found = from_folder(folder, recipe)
    if recipe.whole and recipe.study.metric not in found:
        known = ", ".join(name for name in found if name not in (*BEFORE, *AFTER))
        raise ValueError(f"{recipe.path}: no run gives the metric {recipe.study.metric!r}; there are {known}")


def on_gpu(device: str) -> bool:
    """Whether training will be on a GPU."""
    return device != "cpu" and torch.cuda.is_available()
