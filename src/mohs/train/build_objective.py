"""The objective of a run: its loss and regularizers, with the fields that depend on the data (number of classes, counts)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs._core.specs import as_spec, create_spec
from mohs.data.examples import Examples
from mohs.losses import LOSSES, REGULARIZERS
from mohs.losses.class_weights import class_counts, class_weights, deferred_weights
from mohs.losses.objective import Objective, create_objective
from mohs.losses.transition import pair_transition, symmetric_transition
from mohs.models.network import Network, head_weight
from mohs.models.twins import members
from mohs.train.run import Run

BY_DATA = {
    "counts": "class_counts",
    "num_classes": "num_classes",
    "in_features": "in_features",
    "num_examples": "num_examples",
    "transition": "transition",
    "epochs": "epochs",
}
TRANSITIONS = {"symmetric": symmetric_transition, "pair": pair_transition}  # noise that a run adds


def build_objective(run: Run, network: Network, train: Examples) -> Objective:
    """The run's loss and regularizers, with fields that depend on the data filled in."""
    known = {
        **facts_of(run, train),
        "num_examples": len(train) * len(members(network)),
        "in_features": head_weight(members(network)[0]).shape[1],
    }
    loss = filled(as_spec(run.loss), LOSSES, known)
    if run.class_weight is not None:
        loss["weight"] = weight_by_class(as_spec(run.class_weight), torch.tensor(known["class_counts"]), epoch=0)
    regularizers = [filled(as_spec(spec), REGULARIZERS, known) for spec in run.regularizers]
    return create_objective(loss, regularizers, pair_labels=run.pair_labels)


def build_loss(run: Run, train: Examples) -> Callable[..., Tensor]:
    """The run's loss alone, without class weights."""
    made: Callable[..., Tensor] = create_spec(LOSSES, "loss", filled(as_spec(run.loss), LOSSES, facts_of(run, train)))
    return made


def facts_of(run: Run, train: Examples) -> dict[str, Any]:
    """Facts about the run and its training set that fields of losses may depend on."""
    classes = len(train.classes)
    known: dict[str, Any] = {"class_counts": class_counts(train.labels, classes).tolist(), "num_classes": classes}
    known |= {"num_examples": len(train), "in_features": 1, "epochs": run.epochs}
    noise = {} if run.noise is None else as_spec(run.noise)
    if noise.get("name") in TRANSITIONS:
        known["transition"] = TRANSITIONS[noise["name"]](classes, noise["rate"]).tolist()
    return known


def filled(spec: Mapping[str, Any], table: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with its missing fields that depend on the data."""
    fields = {f.name for f in dataclasses.fields(table[spec["name"]])} if spec.get("name") in table else set()
    extra = {name: values[source] for name, source in BY_DATA.items() if name in fields and name not in spec and source in values}
    return {**spec, **extra}


def weight_by_class(spec: Mapping[str, Any], counts: Tensor, *, epoch: int) -> Tensor | None:
    """Class weights at this epoch: {name = "auto"}, {name = "deferred", start = 160}, or {name = "given", weights = {...}}."""
    made: Tensor | None = create_spec(CLASS_WEIGHTS, "class weight", spec)(counts, epoch)
    return made


@dataclass(frozen=True, kw_only=True)
class AutoWeights:
    """Class-balanced weights."""

    beta: float = 0.9999

    def __call__(self, counts: Tensor, epoch: int) -> Tensor | None:
        return class_weights(counts, "auto", beta=self.beta)


@dataclass(frozen=True, kw_only=True)
class DeferredWeights:
    """All 1 before the epoch `start`, class-balanced from then on."""

    start: int
    beta: float = 0.9999

    def __call__(self, counts: Tensor, epoch: int) -> Tensor | None:
        return deferred_weights(counts, epoch=epoch, start=self.start, beta=self.beta)


@dataclass(frozen=True, kw_only=True)
class GivenWeights:
    """Weights by class index."""

    weights: Mapping[str | int, float]

    def __call__(self, counts: Tensor, epoch: int) -> Tensor | None:
        for name in self.weights:
            if not str(name).isdecimal():
                raise ValueError(f"class_weight: weights are by class index (0, 1, ...), got {name!r}")
        return class_weights(counts, {int(name): value for name, value in self.weights.items()})


CLASS_WEIGHTS: dict[str, type[Any]] = {"auto": AutoWeights, "deferred": DeferredWeights, "given": GivenWeights}
