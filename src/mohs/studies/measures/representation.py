"""Measures of the features: a linear probe, clustering, and retrieval of unseen classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mohs._core.errors import DataError
from mohs._core.validation import check_between, check_choice
from mohs.data.examples import Data
from mohs.evaluate.cluster import class_angles, grouping, kmeans_grouping
from mohs.evaluate.probe import SAMPLINGS, probe
from mohs.evaluate.retrieval import retrieval
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

    classes: the run's `open.holdout_classes` by default.
    """

    classes: Sequence[Any] | None = None

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        from mohs.train.run_data import held_out

        classes = trained.run.open.get("holdout_classes") if self.classes is None else self.classes
        if not classes:
            raise DataError("retrieval needs classes held out of training: set open.holdout_classes in the recipe's [base]")
        unseen = held_out(trained.run, classes)
        found = retrieval(outputs_of(trained, unseen).features, unseen.labels, ranks=(1, 5))
        return {"map": found.mean_average_precision, "cmc1": found.cmc[1], "cmc5": found.cmc[5]}
