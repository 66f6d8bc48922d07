"""Measures of domain adaptation: by self-training, and by aligning the domains."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohs._core.specs import as_spec
from mohs._core.validation import check_between, check_choice, check_whole
from mohs.adapt.alignment import WEIGHTS, align
from mohs.adapt.rounds import checked_portion
from mohs.adapt.selection import create_selection
from mohs.adapt.self_training import PORTION, adapt
from mohs.data.examples import Data
from mohs.evaluate.outputs import predict
from mohs.studies.measures.test_outputs import test_of
from mohs.train.trained import Trained

CHOSEN = ("selected", "true", "avc", "confidence", "norm", "only_here")


@dataclass(frozen=True, kw_only=True)
class SelfTraining:
    """Self-training on a target domain: accuracy on its test set, accuracy_round_<r> after each round, and first_<number>,
    last_<number> of the examples selected in the first and last round (number, share correct, mean AVC, confidence, norm).

    For runs whose data are a pair, such as "mnist->usps". epochs, lr: of each round; other settings are those of the run.
    """

    selection: str
    rounds: int = 5
    portion: Sequence[float] = PORTION
    epochs: int = 4
    lr: float = 0.03

    def __post_init__(self) -> None:
        create_selection(self.selection)
        checked_portion(self.portion)
        for name in ("rounds", "epochs"):
            check_whole(name, getattr(self, name))
        check_between("lr", self.lr, 0, ends="()")

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        from mohs.train.run_data import pair_of

        source, target = pair_of(trained.run)
        optimizer = {**as_spec(trained.run.optimizer), "lr": self.lr}
        device = next(trained.network.parameters()).device.type
        with tempfile.TemporaryDirectory() as place:
            done = adapt(
                source.train, target.train, run=trained.run, out=Path(place) / "adapt", selection=self.selection,
                rounds=self.rounds, portion=self.portion, test=test_of(data), first=trained, device=device,
                again={"record": False, "epochs": self.epochs, "optimizer": optimizer},
            )  # fmt: skip
        return numbers_of(done.rounds)


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Adaptation to a target domain by "mmd", "dann" or "entropy" (`adapt/alignment.py`): accuracy on its test set.

    For runs whose data are a pair, such as "mnist->usps". epochs, lr: of the training that starts from the source network.
    """

    method: str
    epochs: int = 20
    lr: float = 0.03

    def __post_init__(self) -> None:
        check_choice("method", self.method, tuple(WEIGHTS))
        check_whole("epochs", self.epochs)
        check_between("lr", self.lr, 0, ends="()")

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        from mohs.train.run_data import pair_of

        source, target = pair_of(trained.run)
        network = align(
            trained.network, source.train, target.train, trained.run, method=self.method, epochs=self.epochs, lr=self.lr
        )
        test = test_of(data)
        return {"accuracy": float((predict(network, test).logits.argmax(1) == test.labels).double().mean())}


def numbers_of(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The numbers of these rounds; undefined ones (the share correct of an empty selection) are omitted."""
    made = {f"accuracy_round_{line['round']}": line["test_accuracy"] for line in rounds}
    chosen = {"first": rounds[1], "last": rounds[-1]}
    made |= {f"{when}_{name}": line.get(name) for when, line in chosen.items() for name in CHOSEN}
    made |= {"accuracy": rounds[-1]["test_accuracy"], "source_accuracy": rounds[-1].get("source_accuracy")}
    return {name: float(value) for name, value in made.items() if value is not None}
