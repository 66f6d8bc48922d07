"""Measures of the course of training: when a traced mean was done, and how the test set fared by how much people agree on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.validation import check_between
from mohs.data.examples import Data
from mohs.hardness.agreement import CIFAR10H_EDGES, by_bins, human_agreement
from mohs.hardness.correlation import coefficients
from mohs.studies.measures.fitting import check_traced, trace_of
from mohs.studies.measures.human import votes_for, votes_path
from mohs.studies.measures.test_outputs import test_of
from mohs.train.test_trace import looks
from mohs.train.trained import Trained


@dataclass(frozen=True, kw_only=True)
class Course:
    """trend_<value>: Spearman's ρ of the epoch and the mean over the training examples, 1 where it rises throughout;
    done_<value>: the epoch by which the mean has made `share` of the way from its first to its last value, for good.

    Of what the run traced (`trace = true`): confidence, right, norm, avh. NaN for fewer than 3 epochs.
    """

    values: Sequence[str] = ("avh", "norm", "right")
    share: float = 0.95

    def __post_init__(self) -> None:
        check_between("share", self.share, 0, 1, ends="(]")
        check_traced(self.values)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        trace = trace_of(trained)
        means = {name: trace[name].double().nanmean(1).numpy() for name in self.values}
        made = {f"trend_{name}": rising(curve) for name, curve in means.items()}
        return made | {f"done_{name}": done_by(curve, self.share) for name, curve in means.items()}


@dataclass(frozen=True, kw_only=True)
class AgreementBins:
    """<value>_bin_<i>_epoch_<n>: the mean of avh, norm and right over the test examples of bin i of human agreement (the
    least agreement first) after n epochs; ordered_<value>: Spearman's ρ of bin and mean, averaged over all epochs: −1 where
    the value falls from bin to bin throughout. Needs `trace = true`; file: the votes, as for `human`."""

    at: Sequence[int] = ()
    file: str = "cifar10h.npz"
    edges: Sequence[float] = CIFAR10H_EDGES
    values: Sequence[str] = ("avh", "norm", "right")

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test, found = test_of(data), looks(trained.folder)
        if not found:
            raise DataError(f"{trained.folder} holds no looks at the test set: set trace_test = true in the recipe's [base]")
        agreement = human_agreement(votes_for(test, self.file), test.labels.numpy())
        made: dict[str, float] = {}
        orders: dict[str, list[float]] = {name: [] for name in self.values}
        for epochs, one in found.items():
            for name in self.values:
                means = self.means(one[name], agreement)
                orders[name].append(rising(np.asarray(means)))
                if epochs in self.at:
                    made |= {f"{name}_bin_{i}_epoch_{epochs}": mean for i, mean in enumerate(means, 1)}
        return made | {f"ordered_{name}": float(np.mean(values)) for name, values in orders.items()}

    def means(self, values: Tensor, agreement: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
        """The mean within each bin, the least agreement first."""
        return [one.mean_score for one in by_bins(values.double(), agreement, edges=self.edges, resamples=0)]

    @property
    def there(self) -> bool:
        """Whether the votes can be read."""
        return votes_path(self.file) is not None


def rising(curve: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Spearman's ρ of place and value: 1 rises throughout, −1 falls; NaN for fewer than 3 values or a flat curve."""
    known = np.flatnonzero(~np.isnan(curve))
    return math.nan if len(known) < 3 else coefficients([curve[known]], known.astype(float), "spearman")[0]


def done_by(curve: np.ndarray[tuple[int], np.dtype[np.float64]], share: float) -> float:
    """The epoch, from 1, from which on the curve has made this share of its way; NaN for a flat curve or a short one."""
    way = curve[-1] - curve[0]
    if len(curve) < 3 or not way:
        return math.nan
    short = np.flatnonzero((curve - curve[0]) / way < share)
    return float(short[-1] + 2) if len(short) else 1.0
