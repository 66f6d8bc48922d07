"""The runs that a study needs: every row with every seed, which of these runs are the same, and which are finished.

`RunIndex` maps planned runs to their folders: `runs/studies/<id>.json` holds, by the key of the planned run, the folder it was
trained in or the error that stopped it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mohs._core.checksums import damaged, keep_checksums, read_json
from mohs._core.files import written_whole
from mohs.studies.recipe import Recipe, Row
from mohs.studies.systems.system import System
from mohs.train.resolve import check_run
from mohs.train.run import Run


@dataclass(frozen=True)
class PlannedRun:
    """A row with one seed.

    source: the planned run whose network gives the labels, for rows with `relabel_from`. trials: the runs that select a
    setting, one per value, for rows with `choose`.
    """

    row: Row
    seed: int
    run: Run | System
    source: PlannedRun | None = None
    trials: Sequence[PlannedRun] = ()

    @property
    def settings(self) -> Run:
        """The run, where `mohs train` trains it."""
        if isinstance(self.run, System):
            raise TypeError(f"{self.row.label}: {type(self.run).__name__} is not a run of `mohs train`")
        return self.run

    @cached_property
    def key(self) -> str:
        """Identifies the run in the study's index; equal runs have equal keys."""
        return run_key(self.run, [one.key for one in self.prerequisites])

    @property
    def prerequisites(self) -> list[PlannedRun]:
        """The runs that have to be trained before this one."""
        return [*([] if self.source is None else [self.source]), *self.trials]

    @property
    def depth(self) -> int:
        """Length of the longest chain of prerequisites."""
        return max((1 + one.depth for one in self.prerequisites), default=0)


@dataclass(frozen=True)
class RunIndex:
    """The folders of a study's runs, in `runs/studies/<id>.json`: {key of the planned run: {"folder": ...} or {"error": ...}}."""

    runs: Path
    study: str

    @property
    def file(self) -> Path:
        return self.runs / "studies" / f"{self.study.replace('/', '-')}.json"

    def read(self) -> dict[str, dict[str, str]]:
        """All entries."""
        again = "remove this file and run the study again; finished runs are kept"
        lost = "which folder holds which run is unknown"
        entries: dict[str, dict[str, str]] = read_json(self.file, lost=lost, repair=again) if self.file.exists() else {}
        for entry in entries.values():
            if not isinstance(entry, dict) or not all(isinstance(text, str) for text in entry.values()):
                raise damaged(self.file, f"it lists {entry!r} as a run", lost=lost, repair=again)
        return entries

    def folders(self, keys: Iterable[str]) -> list[Path | None]:
        """The folders of these runs; None for a run that failed or has not been trained."""
        entries = self.read()
        return [self.runs / entries[key]["folder"] if "folder" in entries.get(key, {}) else None for key in keys]

    def add(self, key: str, *, folder: Path | None = None, error: str = "") -> None:
        """Record the run's folder, or the error that stopped it."""
        entry = {"error": error} if folder is None else {"folder": folder.name}
        keep_checksums(self.file.parent)
        with written_whole(self.file) as part:
            part.write_text(json.dumps({**self.read(), key: entry}, indent=1) + "\n")


def run_key(run: Run | System, prerequisites: Sequence[str] = ()) -> str:
    """A short hash of a run and the keys of its prerequisites."""
    plain: Any = [run.plain(), *prerequisites] if prerequisites else run.plain()
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:12]


def plan(recipe: Recipe) -> list[PlannedRun]:
    """Every row with its own seed plus 0..n−1, all rows of a seed together; validates that everything the rows name exists."""
    trials = {row.label: trials_of(row) for row in recipe.rows}
    for row in recipe.rows:
        for each in (row.run, *(trial.run for trial in trials[row.label])):
            if isinstance(each, Run):
                check_run(each, where=f"{recipe.path}, row {row.label!r}")
    made: list[PlannedRun] = []
    for seed in range(recipe.study.seeds):
        own: dict[str, PlannedRun] = {}
        for row in recipe.rows:
            source = None if row.relabel_from is None else own[row.relabel_from]
            run: Run | System = dataclasses.replace(row.run, seed=row.run.seed + seed)
            if source is not None and isinstance(run, Run):
                run = on_given_data(run)
            own[row.label] = PlannedRun(row, seed, run, source, trials[row.label])
        made += own.values()
    return made


def trials_of(row: Row) -> list[PlannedRun]:
    """The row with its first seed and each value of `choose`."""
    if row.choose is None or isinstance(row.run, System):
        return []
    return [PlannedRun(row, 0, row.choose.apply(row.run, value)) for value in row.choose.values]


def on_given_data(run: Run) -> Run:
    """The run on data that another run prepared: noise, long tail and validation split have been applied there."""
    return dataclasses.replace(run, noise=None, long_tail=None, validation=0.0)


def distinct(planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs without duplicates, trials included: equal rows are trained once."""
    made: dict[str, PlannedRun] = {}
    for one in planned:
        for each in (*one.trials, one):
            made.setdefault(each.key, each)
    return list(made.values())
