"""Measures of predictions on the test set: calibration, margins, energy, recall, classes with many and few examples."""

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
from mohs.studies.measures.test_outputs import outputs_of, test_of
from mohs.train.trained import Trained


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Calibration: ece, nll and brier."""

    bins: int = 15
    binning: str = "width"

    def __post_init__(self) -> None:
        check_between("bins", self.bins, 1)
        check_choice("binning", self.binning, BINNINGS)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        logits = outputs_of(trained, test).logits.double()
        probs = logits.softmax(1)
        return {
            "ece": ece(probs, test.labels, self.bins, binning=self.binning),
            "nll": float(cross_entropy(logits, test.labels)),  # from logits: a probability may round to 0
            "brier": brier(probs, test.labels),
        }


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Test-set means: mean_margin (log-odds of the label), mean_gap (to the largest other logit), mean_norm, mean_avh."""

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        out = outputs_of(trained, test)
        columns = {
            "mean_margin": margin(out.logits, test.labels),
            "mean_gap": gap(out.logits, test.labels),
            "mean_norm": norm(out.features),
            "mean_avh": avh(out.features, out.weight, test.labels),
        }
        return {name: float(values.double().mean()) for name, values in columns.items()}


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Recall per class: least_recall, and lost_classes, the number of classes with a recall of at most `lost`."""

    lost: float = 0.05

    def __post_init__(self) -> None:
        check_between("lost", self.lost, 0, 1, ends="[)")

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        right = outputs_of(trained, test).logits.argmax(1) == test.labels
        there = torch.bincount(test.labels, minlength=len(data.classes))
        recall = (torch.bincount(test.labels, right.double(), minlength=len(data.classes)) / there)[there > 0]
        return {"least_recall": float(recall.min()), "lost_classes": float((recall <= self.lost).sum())}


@dataclass(frozen=True, kw_only=True)
class Energy:
    """mean_energy: the mean of minus the log-sum-exp of the logits (kind "free"), or of minus the largest (kind "max_logit")."""

    kind: str = "free"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("free", "max_logit"))

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        return {"mean_energy": float(energy(outputs_of(trained, test_of(data)).logits, kind=self.kind).double().mean())}


@dataclass(frozen=True, kw_only=True)
class Imbalance:
    """Accuracy by class frequency: many (more than `many` training examples), medium, few (fewer than `few`), balanced."""

    many: int = 100
    few: int = 20

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        counts = torch.bincount(data.train.labels, minlength=len(data.classes))
        found = by_shots(outputs_of(trained, test).logits.argmax(1), test.labels, counts, many=self.many, few=self.few)
        return {name: getattr(found, name) for name in ("many", "medium", "few", "balanced")}


@dataclass(frozen=True, kw_only=True)
class Uncertain:
    """AUROC of high AVH, small norm and low confidence for the test points that are ambiguous even to the Bayes classifier, with
    a posterior between `low` and 1 − `low`: auroc_avh, auroc_norm, auroc_confidence. For the data set `sphere` only."""

    low: float = 0.25

    def __post_init__(self) -> None:
        check_between("low", self.low, 0, 0.5, ends="()")

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        if data.classes != CLASSES or not isinstance(test.inputs, torch.Tensor) or test.shape != (3,):
            raise DataError(f"{test.name}: the posterior is known for the data set `sphere` only")
        out, p = outputs_of(trained, test), posterior(test.inputs)
        unsure = (p > self.low) & (p < 1 - self.low)
        signs = {
            "avh": avh(out.features, out.weight, test.labels),
            "norm": -norm(out.features),
            "confidence": -margin(out.logits, test.labels),
        }
        return {f"auroc_{name}": auroc(values[unsure], values[~unsure]) for name, values in signs.items()}
