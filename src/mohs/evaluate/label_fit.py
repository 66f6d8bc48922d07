"""Shares of right and of wrong training labels that a model has fitted, and the best and last values of a history.

    clean   share of examples with a right label that are predicted as labeled
    noisy   share of examples with a wrong label that are predicted as labeled: memorization
    truth   share of examples with a wrong label that are predicted as the true class
    intact  share of all examples that are predicted as the true class

A model that learns well from noisy labels has clean and truth near 1 and noisy near 0. Predict in evaluation mode, without
augmentation. "Best" is selected on what the history measures: on test data it is optimistic; rank by the final value.
Wang et al., "Gradient Rescaling" (2019), Tables 3 and 11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mohs._core.errors import DataError
from mohs._core.validation import check_choice
from mohs.evaluate.validate_inputs import same_length


@dataclass(frozen=True)
class FittedLabels:
    """Shares from 0 to 1, NaN without such examples; wrong: the share of wrong labels."""

    clean: float
    noisy: float
    truth: float
    wrong: float

    @property
    def intact(self) -> float:
        """The share of all examples that are predicted as the true class."""
        return sum(part * share for part, share in ((self.clean, 1 - self.wrong), (self.truth, self.wrong)) if share)


@dataclass(frozen=True)
class BestFinal:
    """The best value, its index in the history, and the last value."""

    best: float
    best_at: int
    final: float


def label_fit(predicted: Any, labels: Any, truth: Any) -> FittedLabels:
    """predicted (N,), training labels (N,), true labels (N,) -> the shares fitted."""
    same_length(predicted=predicted, labels=labels, truth=truth)
    p, y, t = (torch.as_tensor(values).cpu() for values in (predicted, labels, truth))
    noisy = y != t
    return FittedLabels(_share(p == y, ~noisy), _share(p == y, noisy), _share(p == t, noisy), wrong=float(noisy.double().mean()))


def best_and_final(
    history: Sequence[float] | Sequence[Mapping[str, Any]], *, key: str = "accuracy", want: str = "high"
) -> BestFinal:
    """A list of numbers, or of mappings with `key`, in order of time -> best and final; want: which is better, "high" or "low".

    Steps without the key (not evaluated) are skipped but keep their indices; NaN is never the best.
    """
    check_choice("want", want, ("high", "low"))
    pairs: list[tuple[int, Any]] = [(at, step.get(key) if isinstance(step, Mapping) else step) for at, step in enumerate(history)]
    known = [(at, float(value)) for at, value in pairs if value is not None]
    if not known:
        keys = sorted({name for step in history if isinstance(step, Mapping) for name in step})
        raise DataError(f"history has no value of {key!r}" + (f"; its keys: {', '.join(keys)}" if keys else ": it is empty"))
    sound = [(at, value) for at, value in known if not math.isnan(value)] or known
    at, best = (max if want == "high" else min)(sound, key=lambda pair: pair[1])  # the first among equals
    return BestFinal(best, at, known[-1][1])


def _share(hits: torch.Tensor, among: torch.Tensor) -> float:
    return float(hits[among].double().mean()) if among.any() else math.nan
