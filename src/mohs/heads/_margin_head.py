"""Shared parts of the heads: the Module, the class weights, and the one step from plain logits to logits with a margin.

    logit_y = plain_y − (the margin's penalty)          logit_k = plain_k for the other classes

`head(features, labels)` applies the margin to the labeled class: for training, and for the loss on held-out data. These
logits depend on the labels. `head.logits(features)` gives the plain ones in either mode: for prediction, evaluation, and
the record of each example's training. `head(features)` is the same in evaluation mode and an error in training mode, where
forgetting the labels would train without a margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mohs._core.dataclass_module import DataclassModule
from mohs._core.validation import check_between, check_whole
from mohs.margin import checked_labels


def replace_target(logits: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """logits (N, K) -> the same with target (N,) at the labeled class."""
    return logits.scatter(1, labels.unsqueeze(1), target.unsqueeze(1).to(logits.dtype))  # (N, K)


def target_of(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (N, K) -> the labeled class's (N,)."""
    return logits.gather(1, labels.unsqueeze(1)).squeeze(1)


def margin_labels(logits: Tensor, labels: Tensor, strength: float) -> Tensor:
    """Validated labels for indexing; an ignored row (-100) gets class 0's margin, and the loss ignores that row."""
    check_between("strength", strength, 0, 1)
    return checked_labels(logits, labels)


@dataclass(eq=False, repr=False)
class HeadModule(DataclassModule):
    """The base of every head: class weights (K, D) initialized as in `nn.Linear`, and logits (N, K) of features (N, D)."""

    in_features: int
    num_classes: int

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        check_whole("in_features", self.in_features, 1)
        check_whole("num_classes", self.num_classes, 2)
        self.setup()
        self.weight = nn.Parameter(torch.empty(self.num_classes, self.in_features))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def arguments(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.kw_only}  # all but the sizes

    def logits(self, features: Tensor) -> Tensor:
        """features (N, D) -> the label-free logits (N, K), in training and in evaluation mode.

        Predict, evaluate and record with these: unlike `head(features, labels)`, they hold no margin.

        Example:
            logits = head(features, labels)
            loss(logits, labels).backward()
            recorder.update(ids, head.logits(features.detach()), labels)
        """
        return self.function(features, self.weight, **self.arguments())

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.logits(features)


class MarginHeadModule(HeadModule):
    """The base of every head with a margin for the labeled class."""

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        if labels is not None:
            return self.function(features, self.weight, labels, **self.arguments())
        if self.training:
            raise ValueError(
                f"{type(self).__name__} in training mode needs labels for its margin: call head(features, labels), "
                "or head.logits(features) for logits without the margin"
            )
        return self.logits(features)


@dataclass(eq=False, repr=False, kw_only=True)
class AdditiveMarginHead(MarginHeadModule):
    """The base of heads that add a margin to an angle or subtract it from a cosine, and scale the cosines."""

    largest_margin: ClassVar[float]
    scale: float = 20.0
    margin: float = 0.2
    strength: float = 1.0

    def setup(self) -> None:
        check_positive("scale", self.scale)
        check_between("margin", self.margin, 0, self.largest_margin)
        check_between("strength", self.strength, 0, 1)


@dataclass(eq=False, repr=False, kw_only=True)
class MultiplicativeMarginHead(MarginHeadModule):
    """The base of heads that multiply the angle by an integer."""

    margin: int = 2
    strength: float = 1.0

    def setup(self) -> None:
        check_multiplier("margin", self.margin)
        check_between("strength", self.strength, 0, 1)


def check_positive(name: str, value: float) -> None:
    """Raise, naming the argument and its value, unless 0 < value < ∞."""
    if not (isinstance(value, int | float) and 0 < value < float("inf")):
        raise ValueError(f"{name} must be above 0 and finite, got {value!r}")


def check_multiplier(name: str, value: object) -> None:
    """Raise, naming the argument and its value, unless it is a positive integer."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} multiplies the angle and must be an integer of at least 1 (no margin), got {value!r}")
