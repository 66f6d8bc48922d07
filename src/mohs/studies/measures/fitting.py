"""Measures of training: the history, the fit to right and wrong training labels, and traced curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.validation import check_choice
from mohs.data.examples import Data
from mohs.evaluate.label_fit import best_and_final, label_fit
from mohs.studies.measures.test_outputs import outputs_of
from mohs.train.trace import TRACED, load_test_traces
from mohs.train.trained import Trained

PARTS = ("train", "test")
HISTORY = ("test_accuracy", "val_accuracy", "accuracy")


@dataclass(frozen=True, kw_only=True)
class History:
    """Accuracy over the epochs: best_ and last_ of test_accuracy, val_accuracy and accuracy; test_accuracy_epoch_<n>, n in `at`.

    The best test accuracy is selected on the test labels and therefore too high, as in the papers that report it.
    """

    at: Sequence[int] = ()

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        made: dict[str, float] = {"epochs": float(len(trained.history))}
        for key in HISTORY:
            if any(key in line for line in trained.history):
                found = best_and_final(trained.history, key=key)
                made |= {f"best_{key}": found.best, f"last_{key}": found.final}
        return made | {f"test_accuracy_epoch_{n}": trained.history[n - 1]["test_accuracy"] for n in _epochs(self.at, trained)}


@dataclass(frozen=True, kw_only=True)
class LabelFit:
    """Fit to the training labels: fit_clean and fit_noisy, the shares of right and of wrong labels that the network predicts;
    fit_truth, the share of examples with a wrong label for which it predicts the true one; fit_intact, the share of all examples
    for which it does. Needs noise, which keeps the truth."""

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        train = data.train
        if train.truth is None:
            raise DataError(f"{train.name}: the true labels are unknown; add noise to the run (a rate of 0 will do)")
        found = label_fit(outputs_of(trained, train).logits.argmax(1), train.labels, train.truth)
        return {"fit_clean": found.clean, "fit_noisy": found.noisy, "fit_truth": found.truth, "fit_intact": found.intact}


def check_traced(values: Sequence[str]) -> None:
    """Validate that a trace holds these values."""
    for name in values:
        if name not in TRACED:
            raise ValueError(f"values: unknown {name!r}; known: {', '.join(TRACED)}")


def trace_of(trained: Trained, on: str = "train") -> dict[str, Tensor]:
    """The run's trace, by value (epochs, N), of the training set as it was trained on or of the test set in evaluation mode."""
    if on == "test":
        found = load_test_traces(trained.folder)
        if not found:
            raise DataError(f"{trained.folder} has no trace of the test set: set trace_test = true in the recipe's [base]")
        return {name: torch.stack([found[epoch][name] for epoch in sorted(found)]) for name in found[min(found)]}
    if trained.trace is None:
        raise DataError(f"{trained.folder} has no trace: set trace = true in the recipe's [base]")
    return trained.trace


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Traced means: <value>_epoch_<n>, the mean over the training examples in epoch n; needs `trace = true`.

    on = "test": over the test examples after epoch n, in evaluation mode; needs `trace_test = true`. values: confidence, right,
    norm, avh. If the truth of the training examples is known, also <value>_clean_epoch_<n> and <value>_noisy_epoch_<n>.
    """

    at: Sequence[int]
    values: Sequence[str] = TRACED
    on: str = "train"

    def __post_init__(self) -> None:
        check_traced(self.values)
        check_choice("on", self.on, PARTS)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        trace = trace_of(trained, self.on)
        groups: dict[str, Any] = {"": slice(None)}
        if self.on == "train" and data.train.truth is not None:
            wrong = data.train.labels != data.train.truth
            groups |= {"_clean": ~wrong, "_noisy": wrong}
        made: dict[str, float] = {}
        for name in self.values:
            for n in _epochs(self.at, trained):
                now: Tensor = trace[name][n - 1].double()
                made |= {f"{name}{group}_epoch_{n}": float(now[rows].nanmean()) for group, rows in groups.items()}
        return made


def _epochs(at: Sequence[int], trained: Trained) -> list[int]:
    """The requested epochs that the run has: a trial is shorter than the study."""
    return [n for n in at if 1 <= n <= len(trained.history)]
