"""Angular margin contrastive loss: examples of one class drawn together on the sphere, of two classes held apart.

    ℓ = θ²  for equal labels,  max(0, m − θ)²  for different ones        θ: angle of the pair, m: margin
    ‖∂θ²/∂x‖ = 2θ/‖x‖, orthogonal to x                                   the lengths of the features do not matter

Example k of the batch is paired with example k + n//2, n//2 pairs in all (an odd one out is left out), and the mean over
all pairs is taken; shuffled batches make that random pairing. The caller decides by which labels: the paper pairs by the
network's predictions, its plots by the given labels. Where the direction is undefined (different labels at θ = 0, any
at θ = π, zero vectors, which are at π/2 to everything) the gradient is 0. A batch with no pair has loss 0, gradient 0.
The Euclidean form is the same with the distance d in place of θ; `over="mean"` takes d² as a mean over the dimensions.
"AMC-Loss: angular margin contrastive loss for improved explainability in image classification" (CVPR Workshops 2020),
eqs. 1 (Euclidean) and 2; the mean over pairs as in the authors' code, where the text divides by the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mohs._core.validation import check_between, check_choice
from mohs.losses._drop_in import rebuildable, settings
from mohs.losses._numerics.pairs import contrast, halves, pair_angles


def amc(features: Tensor, labels: Tensor, *, margin: float = 0.5) -> Tensor:
    """features (N, D), labels (N,) to pair by -> scalar; margin is m, in radians."""
    check_between("margin", margin, 0, math.pi)
    pairs, same = halves(features, labels)
    return contrast(pair_angles(pairs), same, margin)


def euclidean_contrastive(features: Tensor, labels: Tensor, *, margin: float = 1.0, over: str = "sum") -> Tensor:
    """features (N, D), labels (N,) to pair by -> scalar; over: "sum" (eq. 1) or "mean" of the squares makes d²."""
    check_between("margin", margin, 0)
    check_choice("over", over, ("sum", "mean"))
    pairs, same = halves(features, labels)
    squares = (pairs[0] - pairs[1]).square()  # (n, D)
    squares = squares.sum(1) if over == "sum" else squares.mean(1)
    apart = squares > 0
    distance = torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)  # the root's slope at 0 is infinite
    return contrast(distance, same, margin)


@dataclass(eq=False, repr=False, kw_only=True)
class AMC(nn.Module):
    """Angular margin contrastive loss as a Module, called with features and the labels to pair by; 0 ≤ margin ≤ π."""

    formula: ClassVar[str] = "θ² for a pair of one class, max(0, m − θ)² of two"
    purpose: ClassVar[str] = "beside any loss: tighter classes on the sphere, sharper explanations"
    takes: ClassVar[tuple[str, ...]] = ("features", "pair_labels")
    margin: float = 0.5

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        check_between("margin", self.margin, 0, math.pi)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        return amc(features, labels, **settings(self))

    __repr__ = rebuildable


@dataclass(eq=False, repr=False, kw_only=True)
class EuclideanContrastive(nn.Module):
    """The Euclidean contrastive loss as a Module, called with features and the labels to pair by; margin ≥ 0."""

    formula: ClassVar[str] = "d² for a pair of one class, max(0, m − d)² of two"
    purpose: ClassVar[str] = "what AMC is measured against"
    takes: ClassVar[tuple[str, ...]] = ("features", "pair_labels")
    margin: float = 1.0
    over: str = "sum"

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        check_between("margin", self.margin, 0)
        check_choice("over", self.over, ("sum", "mean"))

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        return euclidean_contrastive(features, labels, **settings(self))

    __repr__ = rebuildable
