"""Running a study of a system (`systems/`): train runs of one kind together, and store the numbers of each.

Runs of one kind are finished, and stored, together; an interrupted study resumes with those that are missing. A run's folder has
the files of every run (`train/directory.py`): run.json, metrics.jsonl with one line, and DONE; the network is not kept.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from mohs._core.folders import claimed
from mohs._core.watch import UNWATCHED, Watch
from mohs.studies.collect import Result, collect
from mohs.studies.plan import PlannedRun, RunIndex, distinct, plan
from mohs.studies.recipe import Recipe
from mohs.studies.systems.system import Numbers, System
from mohs.train.directory import RunDirectory, environment


def run_system(recipe: Recipe, *, runs: Path, device: str = "auto", watch: Watch = UNWATCHED) -> list[Result]:
    """Train every run of the recipe that is not finished; arguments and result as for `run_study`."""
    index, todo = RunIndex(runs, recipe.study.id), distinct(plan(recipe))
    folders = index.folders(one.key for one in todo)
    left = [one for one, folder in zip(todo, folders, strict=True) if folder is None or not RunDirectory(folder).done]
    ended = len(todo) - len(left)
    for own in kinds(left):
        settings, began = [one.run for one in own if isinstance(one.run, System)], time.perf_counter()
        for one, numbers in zip(own, type(settings[0]).train(settings, device=device), strict=True):
            index.add(one.key, folder=stored(one, numbers, runs=runs, system=str(recipe.study.system)))
            ended += 1
            event = {"ended": ended, "of": len(todo), "study": recipe.study.id, "row": one.row.label, "seed": one.seed}
            watch({**event, "error": "", "seconds": time.perf_counter() - began})
    return collect(recipe, runs=runs)


def kinds(left: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """The runs in groups that are trained together."""
    made: dict[Hashable, list[PlannedRun]] = {}
    for one in left:
        if isinstance(one.run, System):
            made.setdefault(one.run.kind, []).append(one)
    return list(made.values())


def stored(one: PlannedRun, numbers: Numbers, *, runs: Path, system: str) -> Path:
    """Write the folder of a run with its numbers."""
    folder = runs / f"{system}-s{one.run.seed}-{one.key}"
    about = {"hash": one.key, "run": one.run.plain(), "date": datetime.now(UTC).date().isoformat(), **environment()}
    with claimed(folder, "run.json", about, kind="run"):
        RunDirectory(folder).finish([{"epoch": numbers.get("epochs", 1), **numbers}])
    return folder
