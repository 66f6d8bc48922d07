"""The plan of a study: every row with every seed as a run, and which of these runs are one and the same."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mohs._core.specs import as_spec, create_spec
from mohs.data.noise import NOISES
from mohs.heads import HEADS
from mohs.losses import LOSSES, REGULARIZERS
from mohs.models import MODELS, model_spec
from mohs.studies.recipe import Recipe, Row
from mohs.train.augment import AUGMENTATIONS
from mohs.train.learning_rate import LR_SCHEDULES
from mohs.train.optimizers import OPTIMIZERS
from mohs.train.run import Run


@dataclass(frozen=True)
class Planned:
    """A row with one seed; source: the planned run whose network gives the labels, where they are not the data's own;
    trials: those by which a setting is chosen, one a value."""

    row: Row
    seed: int
    run: Run
    source: Planned | None = None
    trials: Sequence[Planned] = ()

    @property
    def key(self) -> str:
        """The same for equal runs: what the study's notes file them by."""
        return run_key(self.run, [one.key for one in self.before])

    @property
    def before(self) -> list[Planned]:
        """What this one waits for."""
        return [*([] if self.source is None else [self.source]), *self.trials]

    @property
    def depth(self) -> int:
        """How many runs have to be trained, one after another, before this one can be."""
        return max((1 + one.depth for one in self.before), default=0)


def run_key(run: Run, before: Sequence[str] = ()) -> str:
    """A short text that is the same for equal runs that wait for equal others."""
    plain: Any = [run.plain(), *before] if before else run.plain()
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:12]


def plan(recipe: Recipe) -> list[Planned]:
    """Every row with seeds 0..n−1 added to its run's own, rows first; every piece named in them exists."""
    trials = {row.label: trials_of(row) for row in recipe.rows}
    for row in recipe.rows:
        for run in (row.run, *(trial.run for trial in trials[row.label])):
            check_run(run, where=f"{recipe.path}, row {row.label!r}")
    made: list[Planned] = []
    for seed in range(recipe.study.seeds):
        own: dict[str, Planned] = {}
        for row in recipe.rows:
            source = None if row.relabel_from is None else own[row.relabel_from]
            run = dataclasses.replace(row.run, seed=row.run.seed + seed)
            own[row.label] = Planned(row, seed, run if source is None else on_given_data(run), source, trials[row.label])
        made += own.values()
    return made


def trials_of(row: Row) -> list[Planned]:
    """The row with its first seed and every value that it may choose."""
    return [] if row.choose is None else [Planned(row, 0, row.choose.settled(row.run, value)) for value in row.choose.values]


def on_given_data(run: Run) -> Run:
    """The run as it is trained on another's data: noise, long tail and held-out part have been taken there already."""
    return dataclasses.replace(run, noise=None, long_tail=None, validation=0.0)


def distinct(planned: Sequence[Planned]) -> list[Planned]:
    """One of each run, trials included: rows that are equal are trained once."""
    made: dict[str, Planned] = {}
    for one in planned:
        for each in (*one.trials, one):
            made.setdefault(each.key, each)
    return list(made.values())


def check_run(run: Run, *, where: str) -> None:
    """Raise unless every piece that the run names exists and has the fields it is given, before anything is trained."""
    try:
        _check_fields(LOSSES, "loss", as_spec(run.loss))
        for spec in run.regularizers:
            _check_fields(REGULARIZERS, "regularizer", as_spec(spec), own=("weight",))
        if run.head is not None and as_spec(run.head).get("name") != "linear":
            _check_fields(HEADS, "head", as_spec(run.head))
        if model_spec(run.model)["name"] != "auto":
            create_spec(MODELS, "model", model_spec(run.model))
        create_spec(OPTIMIZERS, "optimizer", as_spec(run.optimizer))
        create_spec(LR_SCHEDULES, "learning-rate schedule", as_spec(run.schedule))
        for spec in run.augment or ():
            create_spec(AUGMENTATIONS, "augmentation", as_spec(spec))
        if run.noise is not None:
            create_spec(NOISES, "noise", as_spec(run.noise))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _check_fields(table: Mapping[str, Any], kind: str, spec: Mapping[str, Any], *, own: tuple[str, ...] = ()) -> None:
    """As `create_spec` checks, for pieces that take some of their fields from the data and cannot be made yet."""
    name = str(spec.get("name"))
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(table)}")
    known = [f.name for f in dataclasses.fields(table[name])]
    for key in spec:
        if key not in ("name", *own, *known):
            raise ValueError(f"{name} has no field {key!r}; its fields: {', '.join(known)}")
