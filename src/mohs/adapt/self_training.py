"""Self-training for domain adaptation: train on labeled source data, then on pseudo-labels of unlabeled target data.

Round 0 trains on the source. Each later round predicts the whole target with the last network, selects pseudo-labels
(`selection`), and continues training from the last weights on the source and the selected examples, for `run.epochs` epochs or as
set by `again`. Only the weights pass from round to round: optimizer, schedule and the losses' own state are reset.

    FOLDER/adapt.json, rounds.jsonl                 the settings; one line per round
    FOLDER/round-0/, round-1/selected.safetensors   the runs; what a round trains on, written before it trains
    FOLDER/target.parquet                           the last network's predictions of the target, and when each was selected

A round that selects nothing is not trained and keeps the previous network. Repeating the call resumes an interrupted one and
ends, on a CPU, with the same weights; with more rounds it continues. The first of several processes selects for all.
Zou et al. (ECCV 2018; ICCV 2019); Chen et al., "Angular visual hardness" (ICML 2020), section 5.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.state import PartialState
from torch import Tensor
from torch.nn.functional import one_hot

from mohs._core.distributed import from_first
from mohs._core.errors import DataError
from mohs._core.folders import claimed
from mohs._core.specs import as_spec
from mohs._core.validation import check_type
from mohs._core.watch import UNWATCHED, Watch
from mohs.adapt.rounds import (
    Line,
    Portion,
    best_round,
    checked_portion,
    choice_line,
    describe_round,
    load_choice,
    load_only,
    only_in,
    outcome_line,
    portion_at,
    read_lines,
    save_choice,
    write_lines,
    write_target,
)
from mohs.adapt.selection import SOFT, create_selection
from mohs.adapt.thresholds import Predictions, Selected
from mohs.data.domains import aligned
from mohs.data.examples import Data, Examples, joined
from mohs.evaluate.outputs import accuracy, predict
from mohs.losses import LOSSES
from mohs.train.accelerator import use_device
from mohs.train.directory import RunDirectory
from mohs.train.loop import train
from mohs.train.resolve import prepare_data
from mohs.train.run import Run, Spec
from mohs.train.trained import Trained, load_run

PORTION = (0.20, 0.05, 0.50)  # start, step, most: as in the authors' code
Tell = Callable[[str], None]
SILENT: Tell = lambda text: None


@dataclass(eq=False, repr=False)
class Adapted:
    """A finished adaptation.

    Attributes:
        folder: Its folder.
        rounds: One dictionary per round: statistics of the selected examples, and accuracies where labels are known.
        trained: The last round's network.
    """

    folder: Path
    rounds: list[Line]
    trained: Trained

    def __repr__(self) -> str:
        last = self.rounds[-1]
        names = ("target_accuracy", "source_accuracy")
        facts = "".join(f", {name}={last[name]:.4f}" for name in names if last.get(name) is not None)
        return f"Adapted({str(self.folder)!r}, rounds={len(self.rounds) - 1}{facts})"

    def take(self, by: str = "last") -> Trained:
        """The network of the best round by "last", "source_accuracy", "target_entropy" or "target_avc"."""
        return self.network_of(best_round(self.rounds, by))

    def network_of(self, number: int) -> Trained:
        """The network after round 0, 1, ..."""
        return load_run(self.folder / self.rounds[number]["run"])

    def selected(self, number: int) -> Selected:
        """The selection of round 1, 2, ...: rows of the target and their pseudo-labels."""
        return load_choice(self.folder / f"round-{number}" / "selected.safetensors")[0]

    def only_here(self, number: int) -> tuple[Tensor, Tensor]:
        """Rows and labels that round 1, 2, ... selected but CBST would not (for CBST itself: CBST with AVH)."""
        chosen, only = self.selected(number), load_only(self.folder / f"round-{number}" / "selected.safetensors")
        return only, chosen.labels[torch.isin(chosen.places, only)]


@dataclass(frozen=True, eq=False)
class Task:
    """Shared by all rounds: source (with its validation set), target, its test set if any, and the settings."""

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
    out: str | Path,
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
    """Adapt a network from a labeled source domain to an unlabeled target domain by self-training.

    Args:
        source: Labeled examples.
        target: Examples of the new domain; their labels are used for reporting only.
        run: Settings of the training on the source.
        out: Folder of the adaptation; the same call resumes in it.
        selection: How pseudo-labels are selected (`SELECTIONS`).
        rounds: Number of rounds after the training on the source.
        portion: Share of the target that is selected: a number, or (start, step, most) over the rounds.
        again: Settings of `run` that change after round 0, as {"epochs": 2, "optimizer": "sgd:lr=0.01"}.
        test: Labeled examples of the target domain to report the accuracy on.
        first: A finished run to use as round 0.
        device: "auto", "cpu", "cuda", or one GPU such as "cuda:1".
        watch: Called with a dictionary after every step and epoch.
        tell: Called with one sentence per round.

    Returns:
        The folder, one line per round, and the last network.

    Example:
        >>> done = mohs.adapt(mnist.train, usps.train, run=mohs.Run(model="cnn"), out="adapted")  # doctest: +SKIP
    """
    check_settings(run, selection, rounds)
    if test is not None and (test.labels < 0).any():
        raise DataError(f"{test.name}: all test examples must have labels")
    use_device(device)
    later = dataclasses.replace(run, noise=None, long_tail=None, validation=0.0, **(again or {}))
    task = Task(
        prepare_data(run, Data(source)),
        aligned(target, source.classes, like=source.name),
        None if test is None else aligned(test, source.classes, like=source.name),
        dataclasses.replace(run, noise=None, long_tail=None, validation=0.0),
        later,
        as_spec(selection),
        checked_portion(portion),
        Path(out),
        device,
        watch,
    )
    return _adapt(task, described(task, run, source, first), rounds, first, tell)


def _adapt(task: Task, about: dict[str, Any], rounds: int, first: Trained | None, tell: Tell) -> Adapted:
    with ExitStack() as stack:
        if PartialState().is_main_process:
            stack.enter_context(claimed(task.folder, "adapt.json", about, kind="adaptation"))
        filed: list[Line] = from_first(read_lines(task.folder / "rounds.jsonl"))
        done = first or train(task.run, task.source, out=task.folder / "round-0", device=task.device, watch=task.watch)
        lines: list[Line] = []
        outputs, run = None, str(done.folder.resolve()) if first else "round-0"
        for number in range(rounds + 1):
            line: Line = {"round": number}
            if number and number >= len(filed) and outputs is None:  # resumed: the next line compares with these
                outputs = predict_target(done, task.target)
            if number:
                chosen, chosen_line = from_first(choose(task, number, done, outputs) if PartialState().is_main_process else None)
                done, run = (retrain(task, number, done, chosen), f"round-{number}") if len(chosen) else (done, run)
                line |= chosen_line
            if number < len(filed):
                lines.append(filed[number])
                outputs = None
                continue
            before, outputs = outputs, predict_target(done, task.target)
            lines.append(from_first({**line, "run": run, **outcome_line(outputs, task.target, before), **accuracies(task, done)}))
            if PartialState().is_main_process:
                write_lines(lines, task.folder / "rounds.jsonl")
            tell(describe_round(lines[-1]))
        if PartialState().is_main_process:
            write_target(task.target, outputs or predict_target(done, task.target), task.folder, rounds)
        return Adapted(task.folder, lines, done)


def choose(task: Task, number: int, last: Trained, outputs: Predictions | None) -> tuple[Selected, Line]:
    """The training examples of this round, and its line: saved before training, and loaded when resuming."""
    file = task.folder / f"round-{number}" / "selected.safetensors"
    if file.exists():
        return load_choice(file)
    outputs, portion = outputs or predict_target(last, task.target), portion_at(task.portion, number)
    chosen = create_selection(task.selection)(outputs, portion, seed=task.run.seed + number)
    rival = create_selection("cbst_avh" if task.selection["name"] == "cbst" else "cbst")(outputs, portion)
    line = {"portion": round(portion, 6), **choice_line(outputs, chosen, rival, task.target)}
    save_choice(chosen, only_in(chosen, rival), line, file)
    return chosen, line


def retrain(task: Task, number: int, last: Trained, chosen: Selected) -> Trained:
    """Continue training from the last weights, on the source and the selected examples."""
    source = task.source.train
    target = dataclasses.replace(task.target.take(chosen.places), labels=chosen.labels, keys=None, paths=None, truth=None)
    data = Data(joined([dataclasses.replace(source, keys=None, paths=None, truth=None), target]), task.source.val)
    soft = None
    if chosen.soft is not None:
        soft = torch.cat([one_hot(source.labels, len(source.classes)).float(), chosen.soft])
    watch: Watch = lambda event: task.watch({**event, "round": number})
    folder, start = task.folder / f"round-{number}", last.network.state_dict()
    return train(task.later, data, out=folder, device=task.device, watch=watch, start=start, soft=soft)


def predict_target(trained: Trained, examples: Examples) -> Predictions:
    """The network's predictions, in full precision regardless of the precision of training."""
    network = trained.network.to(PartialState().device)
    out = predict(network, examples)
    return Predictions(out.logits, out.features, out.weight)


def accuracies(task: Task, done: Trained) -> Line:
    """Accuracy on the source's validation set and on the target's test set, if there are any."""
    parts = {"source": task.source.val, "test": task.test}
    return {f"{name}_accuracy": accuracy(done.network, part) for name, part in parts.items() if part is not None}


def check_settings(run: Run, selection: Spec, rounds: int) -> None:
    """Validate the settings before any training."""
    create_selection(selection)
    name, loss = as_spec(selection)["name"], as_spec(run.loss)["name"]
    check_type("rounds", rounds, int)
    if rounds < 1:
        raise ValueError(f"rounds must be an integer of at least 1, got {rounds!r}")
    if name in SOFT and loss in LOSSES and (not hasattr(LOSSES[loss], "curve") or run.class_weight is not None):
        what = "with class weights" if hasattr(LOSSES[loss], "curve") else "which does not support them"
        raise ValueError(f"{name} trains with soft labels, but the loss is {loss}, {what}: use cross_entropy, or cbst")


def described(task: Task, run: Run, source: Examples, first: Trained | None) -> dict[str, Any]:
    """The contents of adapt.json; its hash identifies the adaptation."""
    parts = {"source": source, "target": task.target} | ({} if task.test is None else {"test": task.test})
    settings = {
        "run": run.plain(),
        "again": {key: value for key, value in task.later.plain().items() if value != task.run.plain()[key]},
        "selection": task.selection,
        "portion": list(task.portion),
        "data": {name: {"name": one.name, "fingerprint": one.fingerprint()} for name, one in parts.items()},
        "first": None if first is None else RunDirectory(first.folder).about["hash"],
    }
    text = json.dumps(settings, sort_keys=True, default=str)
    return {"hash": hashlib.sha256(text.encode()).hexdigest()[:8], **settings}
