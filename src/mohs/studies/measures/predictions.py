"""Measures of what the network says of the test set: calibration, margins, energy, classes with many and few examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from mohs._core.errors import DataError
from mohs._core.validation import check_between, check_choice
from mohs.data.examples import Data
from mohs.data.readers.toy import CLASSES, posterior
from mohs.evaluate.calibration import BINNINGS, brier, ece
from mohs.evaluate.class_accuracy import by_shots
from mohs.evaluate.ood import auroc
from mohs.hardness.angular import avh
from mohs.hardness.snapshot import energy, gap, norm
from mohs.margin import margin
from mohs.studies.measures.test_outputs import said_of, test_of
from mohs.train.trained import Trained


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """ece, nll and brier: whether the network is right as often as it says."""

    bins: int = 15
    binning: str = "width"

    def __post_init__(self) -> None:
        check_between("bins", self.bins, 1)
        check_choice("binning", self.binning, BINNINGS)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        logits = said_of(trained, test).logits.double()
        probs = logits.softmax(1)
        return {
            "ece": ece(probs, test.labels, self.bins, binning=self.binning),
            "nll": float(cross_entropy(logits, test.labels)),  # from logits: a probability may round to 0
            "brier": brier(probs, test.labels),
        }


@dataclass(frozen=True, kw_only=True)
class Margins:
    """mean_margin (log-odds of the label), mean_gap (to the largest other logit), mean_norm of features, mean_avh."""

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        out = said_of(trained, test)
        columns = {
            "mean_margin": margin(out.logits, test.labels),
            "mean_gap": gap(out.logits, test.labels),
            "mean_norm": norm(out.features),
            "mean_avh": avh(out.features, out.weight, test.labels),
        }
        return {name: float(values.double().mean()) for name, values in columns.items()}


@dataclass(frozen=True, kw_only=True)
class Recall:
    """least_recall, and lost_classes: how many classes the network recognizes hardly ever, in at most a share of the cases."""

    lost: float = 0.05

    def __post_init__(self) -> None:
        check_between("lost", self.lost, 0, 1, ends="[)")

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        right = said_of(trained, test).logits.argmax(1) == test.labels
        there = torch.bincount(test.labels, minlength=len(data.classes))
        recall = (torch.bincount(test.labels, right.double(), minlength=len(data.classes)) / there)[there > 0]
        return {"least_recall": float(recall.min()), "lost_classes": float((recall <= self.lost).sum())}


@dataclass(frozen=True, kw_only=True)
class Energy:
    """mean_energy: minus the log-sum-exp of the logits."""

    kind: str = "free"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("free", "max_logit"))

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        return {"mean_energy": float(energy(said_of(trained, test_of(data)).logits, kind=self.kind).double().mean())}


@dataclass(frozen=True, kw_only=True)
class Imbalance:
    """many, medium, few: accuracy on classes with more than `many`, in between, fewer than `few` examples; balanced."""

    many: int = 100
    few: int = 20

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        counts = torch.bincount(data.train.labels, minlength=len(data.classes))
        found = by_shots(said_of(trained, test).logits.argmax(1), test.labels, counts, many=self.many, few=self.few)
        return {name: getattr(found, name) for name in ("many", "medium", "few", "balanced")}


@dataclass(frozen=True, kw_only=True)
class Uncertain:
    """auroc_avh, auroc_norm, auroc_confidence: whether high AVH, short features and low confidence in the label point to the
    test points of which even the best classifier is unsure: probability from `low` to 1 − `low`. Of the data `sphere` only."""

    low: float = 0.25

    def __post_init__(self) -> None:
        check_between("low", self.low, 0, 0.5, ends="()")

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        if data.classes != CLASSES or not isinstance(test.inputs, torch.Tensor) or test.shape != (3,):
            raise DataError(f"{test.name}: only of the points of `sphere` is it known how sure one can be")
        out, p = said_of(trained, test), posterior(test.inputs)
        unsure = (p > self.low) & (p < 1 - self.low)
        signs = {
            "avh": avh(out.features, out.weight, test.labels),
            "norm": -norm(out.features),
            "confidence": -margin(out.logits, test.labels),
        }
        return {f"auroc_{name}": auroc(values[unsure], values[~unsure]) for name, values in signs.items()}
