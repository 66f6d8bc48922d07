"""Self-training for a new domain: train on labeled source data, then on what the network believes of unlabeled target data.

Round 0 is the ordinary training on the source. Each later round asks the last network about the whole target, selects
(`select.py`), and goes on from the last weights on the source and the selected, for `run.epochs` epochs or as `again` says.
Only the network's weights pass from round to round: optimizer, schedule and the losses' own state begin anew.

    FOLDER/adapt.json, rounds.jsonl                 what was asked for; a line a round
    FOLDER/round-0/, round-1/selected.safetensors   the runs; what a round was given, written before it trains
    FOLDER/target.parquet                           what the last network says of each target example, and when it was selected

A round that selects nothing is not trained: its network is the one before. The same call again goes on where it was stopped and
ends, on a CPU, with the very same weights; with more rounds it goes on further. The first of several processes selects for all.
Zou et al. (ECCV 2018; ICCV 2019); Chen et al., "Angular visual hardness" (ICML 2020), section 5.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate.state import PartialState
from torch import Tensor
from torch.nn.functional import one_hot

from mohs._core.distributed import from_first
from mohs._core.errors import DataError
from mohs._core.folders import describe
from mohs._core.specs import as_spec
from mohs.adapt.rounds import (
    Line,
    Portion,
    best_round,
    checked_portion,
    choice_line,
    load_choice,
    load_only,
    only_in,
    outcome_line,
    portion_at,
    read_lines,
    save_choice,
    told,
    write_lines,
)
from mohs.adapt.selection import SOFT, create_selection
from mohs.adapt.target_table import write_target
from mohs.adapt.thresholds import Seen, Selected
from mohs.data.domains import aligned
from mohs.data.examples import Data, Examples, joined
from mohs.losses import LOSSES
from mohs.models.network import head_weight
from mohs.train.directory import RunDirectory, locked
from mohs.train.loop import UNWATCHED, Watch, train
from mohs.train.predict import accuracy, predict
from mohs.train.resolve import prepared
from mohs.train.run import Run, Spec
from mohs.train.start import choose_device
from mohs.train.trained import Trained, load_run

PORTION = (0.20, 0.05, 0.50)  # start, step a round, most: the authors' code
Tell = Callable[[str], None]
SILENT: Tell = lambda text: None


@dataclass(eq=False)
class Adapted:
    """A finished adaptation: its folder, a line a round, and the last round's network."""

    folder: Path
    rounds: list[Line] = field(repr=False)
    trained: Trained = field(repr=False)

    def take(self, by: str = "last") -> Trained:
        """The network of the round that a criterion which needs no target labels names."""
        return self.network_of(best_round(self.rounds, by))

    def network_of(self, number: int) -> Trained:
        """The network after round 0, 1, ..."""
        return load_run(self.folder / self.rounds[number]["run"])

    def selected(self, number: int) -> Selected:
        """What round 1, 2, ... was given: places in the target."""
        return load_choice(self.folder / f"round-{number}" / "selected.safetensors")[0]

    def only_here(self, number: int) -> tuple[Tensor, Tensor]:
        """Places and labels of what round 1, 2, ... selected and CBST (of CBST: CBST with AVH) would not have."""
        chosen, only = self.selected(number), load_only(self.folder / f"round-{number}" / "selected.safetensors")
        return only, chosen.labels[torch.isin(chosen.places, only)]


@dataclass(frozen=True, eq=False)
class Task:
    """What the rounds share: source (with its held-out part), target and where known its test set, and the settings."""

    source: Data
    target: Examples
    test: Examples | None
    run: Run
    later: Run
    selection: dict[str, Any]
    portion: tuple[float, float, float]
    folder: Path
    device: str
    watch: Watch


def adapt(
    source: Examples,
    target: Examples,
    *,
    run: Run,
    folder: Path,
    selection: Spec = "cbst_avh",
    rounds: int = 6,
    portion: Portion = PORTION,
    again: Mapping[str, Any] | None = None,
    test: Examples | None = None,
    first: Trained | None = None,
    device: str = "auto",
    watch: Watch = UNWATCHED,
    tell: Tell = SILENT,
) -> Adapted:
    """Adapt a network from the source to the target.

    again: settings of the run that differ after round 0, as {"epochs": 2, "optimizer": "sgd:lr=0.01"}. test: further examples
    of the target's domain, whose accuracy is filed. first: round 0, where it was trained before.
    """
    check_settings(run, selection, rounds)
    if test is not None and (test.labels < 0).any():
        raise DataError(f"{test.name}: the examples to test on must all have labels")
    choose_device(device)
    later = dataclasses.replace(run, noise=None, long_tail=None, validation=0.0, **(again or {}))
    task = Task(
        prepared(run, Data(source)),
        aligned(target, source.classes, like=source.name),
        None if test is None else aligned(test, source.classes, like=source.name),
        dataclasses.replace(run, noise=None, long_tail=None, validation=0.0),
        later,
        as_spec(selection),
        checked_portion(portion),
        Path(folder),
        device,
        watch,
    )
    return _adapt(task, described(task, run, source, first), rounds, first, tell)


def _adapt(task: Task, about: dict[str, Any], rounds: int, first: Trained | None, tell: Tell) -> Adapted:
    with ExitStack() as held:
        if PartialState().is_main_process:
            held.enter_context(locked(task.folder))
            describe(task.folder, about)
        filed: list[Line] = from_first(read_lines(task.folder / "rounds.jsonl"))
        done = first or train(task.run, task.source, out=task.folder / "round-0", device=task.device, watch=task.watch)
        lines: list[Line] = []
        seen, run = None, str(done.folder.resolve()) if first else "round-0"
        for number in range(rounds + 1):
            line: Line = {"round": number}
            if number and number >= len(filed) and seen is None:  # resumed: the outputs that the next line compares with
                seen = see(done, task.target)
            if number:
                chosen, said = from_first(choose(task, number, done, seen) if PartialState().is_main_process else None)
                done, run = (retrain(task, number, done, chosen), f"round-{number}") if len(chosen) else (done, run)
                line |= said
            if number < len(filed):
                lines.append(filed[number])
                seen = None
                continue
            before, seen = seen, see(done, task.target)
            lines.append(from_first({**line, "run": run, **outcome_line(seen, task.target, before), **accuracies(task, done)}))
            if PartialState().is_main_process:
                write_lines(lines, task.folder / "rounds.jsonl")
            tell(told(lines[-1]))
        if PartialState().is_main_process:
            write_target(task.target, seen or see(done, task.target), task.folder, rounds)
        return Adapted(task.folder, lines, done)


def choose(task: Task, number: int, last: Trained, seen: Seen | None) -> tuple[Selected, Line]:
    """What this round is to train on and what is to be said of it: kept before any training, and read where it is kept."""
    kept = task.folder / f"round-{number}" / "selected.safetensors"
    if kept.exists():
        return load_choice(kept)
    seen, portion = seen or see(last, task.target), portion_at(task.portion, number)
    chosen = create_selection(task.selection)(seen, portion, seed=task.run.seed + number)
    rival = create_selection("cbst_avh" if task.selection["name"] == "cbst" else "cbst")(seen, portion)
    line = {"portion": round(portion, 6), **choice_line(seen, chosen, rival, task.target)}
    save_choice(chosen, only_in(chosen, rival), line, kept)
    return chosen, line


def retrain(task: Task, number: int, last: Trained, chosen: Selected) -> Trained:
    """Go on from the last weights, on the source and the selected."""
    source = task.source.train
    target = dataclasses.replace(task.target.take(chosen.places), labels=chosen.labels, keys=None, paths=None, truth=None)
    data = Data(joined([dataclasses.replace(source, keys=None, paths=None, truth=None), target]), task.source.val)
    soft = None
    if chosen.soft is not None:
        soft = torch.cat([one_hot(source.labels, len(source.classes)).float(), chosen.soft])
    watch: Watch = lambda event: task.watch({**event, "round": number})
    folder, start = task.folder / f"round-{number}", last.network.state_dict()
    return train(task.later, data, out=folder, device=task.device, watch=watch, start=start, soft=soft)


def see(trained: Trained, examples: Examples) -> Seen:
    """What the network says of the examples, in full precision, whatever it was trained in."""
    network = trained.network.to(PartialState().device)
    logits, features = predict(network, examples)
    return Seen(logits, features, head_weight(network).detach().cpu())


def accuracies(task: Task, done: Trained) -> Line:
    """Accuracy on the held-out source and on the target's test set, where there are such."""
    parts = {"source": task.source.val, "test": task.test}
    return {f"{name}_accuracy": accuracy(done.network, part) for name, part in parts.items() if part is not None}


def check_settings(run: Run, selection: Spec, rounds: int) -> None:
    """Raise on what can be known to be wrong before any training."""
    create_selection(selection)
    name, loss = as_spec(selection)["name"], as_spec(run.loss)["name"]
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds must be a whole number of at least 1, got {rounds!r}")
    if name in SOFT and loss in LOSSES and (not hasattr(LOSSES[loss], "curve") or run.class_weight is not None):
        what = "with class weights" if hasattr(LOSSES[loss], "curve") else "which is no curve of the margin"
        raise ValueError(f"{name} trains with soft labels, but the loss is {loss}, {what}: take cross_entropy, or cbst")


def described(task: Task, run: Run, source: Examples, first: Trained | None) -> dict[str, Any]:
    """What adapt.json says."""
    parts = {"source": source, "target": task.target} | ({} if task.test is None else {"test": task.test})
    return {
        "run": run.plain(),
        "again": {key: value for key, value in task.later.plain().items() if value != task.run.plain()[key]},
        "selection": task.selection,
        "portion": list(task.portion),
        "data": {name: {"name": one.name, "fingerprint": one.fingerprint()} for name, one in parts.items()},
        "first": None if first is None else RunDirectory(first.folder).about["hash"],
    }
