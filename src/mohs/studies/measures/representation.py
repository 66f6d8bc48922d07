"""Measures of the features: a linear probe, clustering, and retrieval and verification of unseen classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mohs._core.errors import DataError
from mohs._core.validation import check_between, check_choice
from mohs.data.examples import Data, Examples
from mohs.evaluate.cluster import class_angles, grouping, kmeans_grouping
from mohs.evaluate.probe import SAMPLINGS, probe
from mohs.evaluate.retrieval import retrieval, set_means
from mohs.evaluate.verification import FOLDS, make_pairs, verification
from mohs.studies.measures.test_outputs import outputs_of, test_of
from mohs.train.trained import Trained


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """Linear probe on the frozen features: probe_accuracy, probe_balanced; sampling "balanced" is cRT."""

    sampling: str = "as_is"
    epochs: int = 30
    lr: float = 0.1

    def __post_init__(self) -> None:
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_between("epochs", self.epochs, 1)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        device = next(trained.network.parameters()).device  # the probe trains there, too
        own, other = (outputs_of(trained, part).features.to(device) for part in (data.train, test))
        fields: dict[str, Any] = {"sampling": self.sampling, "epochs": self.epochs, "lr": self.lr}
        found = probe(own, data.train.labels, other, test.labels, classes=len(data.classes), seed=trained.run.seed, **fields)
        return {"probe_accuracy": found.accuracy, "probe_balanced": found.balanced_accuracy}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Clustering of the test set: homogeneity_ and completeness_ of predictions and of kmeans on the features; separation."""

    restarts: int = 10

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        out = outputs_of(trained, test)
        groups = {
            "predictions": grouping(out.logits.argmax(1), test.labels),
            "kmeans": kmeans_grouping(out.features, test.labels, restarts=self.restarts, seed=trained.run.seed),
        }
        made = {
            f"{part}_{name}": getattr(found, part) for name, found in groups.items() for part in ("homogeneity", "completeness")
        }
        return made | {"separation": class_angles(out.features, test.labels).separation}


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Retrieval of classes held out of training: map, cmc1, cmc5, with every example as a query for the others of its class.

    classes: the run's `open.holdout_classes` by default. set_size: queries are sets of this many examples, by their mean
    features.
    """

    classes: Sequence[Any] | None = None
    set_size: int = 1

    def __post_init__(self) -> None:
        check_between("set_size", self.set_size, 1)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        unseen = unseen_of(trained, self.classes)
        features, labels = outputs_of(trained, unseen).features, unseen.labels
        if self.set_size > 1:
            features, labels = set_means(features, labels, self.set_size)
        found = retrieval(features, labels, ranks=(1, 5))
        return {"map": found.mean_average_precision, "cmc1": found.cmc[1], "cmc5": found.cmc[5]}


@dataclass(frozen=True, kw_only=True)
class PairVerification:
    """Verification of pairs of classes held out of training: verification_accuracy, its error over the folds, and threshold.

    classes: the run's `open.holdout_classes` by default. The pairs are the same in every run.
    """

    classes: Sequence[Any] | None = None
    folds: int = FOLDS

    def __post_init__(self) -> None:
        check_between("folds", self.folds, 2)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        unseen = unseen_of(trained, self.classes)
        found = verification(outputs_of(trained, unseen).features, make_pairs(unseen.labels, folds=self.folds))
        made = {"accuracy": found.accuracy, "error": found.error, "threshold": found.threshold}
        return {f"verification_{name}": value for name, value in made.items()}


def unseen_of(trained: Trained, classes: Sequence[Any] | None) -> Examples:
    """The examples of classes held out of training."""
    from mohs.train.run_data import held_out

    classes = trained.run.open.get("holdout_classes") if classes is None else classes
    if not classes:
        raise DataError("no classes are held out of training: set open.holdout_classes in the recipe's [base]")
    return held_out(trained.run, classes)
