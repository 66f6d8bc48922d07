"""Measures over the epochs: trends of traced means, and the test set by human agreement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from mohs._core.validation import check_between, check_choice
from mohs.data.examples import Data
from mohs.hardness.agreement import CIFAR10H_EDGES, by_bins, human_agreement
from mohs.hardness.correlation import coefficients
from mohs.studies.measures.fitting import PARTS, check_traced, trace_of
from mohs.studies.measures.human import votes_for, votes_path
from mohs.studies.measures.test_outputs import test_of
from mohs.train.trained import Trained


@dataclass(frozen=True, kw_only=True)
class Course:
    """Trends of traced means: trend_<value>, Spearman's ρ of the epoch and the mean over the training examples;
    done_<value>, the first epoch at which the mean has covered `share` of the change from its first to its last value.

    Needs `trace = true`; on = "test": over the test examples in evaluation mode, which needs `trace_test = true`. values:
    confidence, right, norm, avh. NaN for fewer than 3 epochs.
    """

    values: Sequence[str] = ("avh", "norm", "right")
    share: float = 0.95
    on: str = "train"

    def __post_init__(self) -> None:
        check_between("share", self.share, 0, 1, ends="(]")
        check_traced(self.values)
        check_choice("on", self.on, PARTS)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        trace = trace_of(trained, self.on)
        means = {name: trace[name].double().nanmean(1).numpy() for name in self.values}
        made = {f"trend_{name}": rising(curve) for name, curve in means.items()}
        return made | {f"done_{name}": done_by(curve, self.share) for name, curve in means.items()}


@dataclass(frozen=True, kw_only=True)
class AgreementBins:
    """The test set by bins of human agreement: <value>_bin_<i>_epoch_<n>, the mean of avh, norm and right in bin i (lowest
    agreement first) after n epochs; ordered_<value>, Spearman's ρ of bin and mean, averaged over all epochs. Needs
    `trace_test = true`; file: the votes, as for `human`."""

    at: Sequence[int] = ()
    file: str = "cifar10h.npz"
    edges: Sequence[float] = CIFAR10H_EDGES
    values: Sequence[str] = ("avh", "norm", "right")

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test, trace = test_of(data), trace_of(trained, "test")
        agreement = human_agreement(votes_for(test, self.file), test.labels.numpy())
        made: dict[str, float] = {}
        orders: dict[str, list[float]] = {name: [] for name in self.values}
        for epochs in range(1, len(trained.history) + 1):
            for name in self.values:
                means = self.means(trace[name][epochs - 1], agreement)
                orders[name].append(rising(np.asarray(means)))
                if epochs in self.at:
                    made |= {f"{name}_bin_{i}_epoch_{epochs}": mean for i, mean in enumerate(means, 1)}
        return made | {f"ordered_{name}": float(np.mean(values)) for name, values in orders.items()}

    def means(self, values: Tensor, agreement: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
        """The mean within each bin, lowest agreement first."""
        return [one.mean_score for one in by_bins(values.double(), agreement, edges=self.edges, resamples=0)]

    @property
    def available(self) -> bool:
        """Whether the file of votes exists."""
        return votes_path(self.file) is not None


def rising(curve: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Spearman's ρ of index and value: 1 if the curve rises throughout, −1 if it falls; NaN for a constant or under 3 values."""
    known = np.flatnonzero(~np.isnan(curve))
    return math.nan if len(known) < 3 else coefficients([curve[known]], known.astype(float), "spearman")[0]


def done_by(curve: np.ndarray[tuple[int], np.dtype[np.float64]], share: float) -> float:
    """The first epoch, counted from 1, at which the curve has covered this share of its change; NaN if constant or short."""
    way = curve[-1] - curve[0]
    if len(curve) < 3 or not way:
        return math.nan
    short = np.flatnonzero((curve - curve[0]) / way < share)
    return float(short[-1] + 2) if len(short) else 1.0
