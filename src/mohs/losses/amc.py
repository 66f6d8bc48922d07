"""Angular margin contrastive loss: pulls examples of one class together on the sphere, and pushes classes apart.

    ℓ = θ²  for equal labels,  max(0, m − θ)²  for different ones        θ: angle of the pair, m: margin
    ‖∂θ²/∂x‖ = 2θ/‖x‖, orthogonal to x                                   the lengths of the features do not matter

Example k of the batch is paired with example k + N//2 (the last of an odd batch is dropped), and the loss is the mean over
the N//2 pairs; shuffled batches make the pairing random. The caller chooses the labels: the paper pairs by the network's
predictions, its plots by the given labels. Where the direction is undefined (different labels at θ = 0, any labels at
θ = π, zero vectors, whose angle to every vector is π/2) the gradient is 0. A batch without pairs has loss 0, gradient 0.
The Euclidean form uses the distance d instead of θ; `over="mean"` takes d² as a mean over the dimensions.
"AMC-Loss: angular margin contrastive loss for improved explainability in image classification" (CVPR Workshops 2020),
eqs. 1 (Euclidean) and 2; the mean over pairs as in the authors' code, where the text divides by the batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between, check_choice
from mohs.losses._drop_in import RegularizerModule
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
    distance = torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)  # the slope of the root at 0 is infinite
    return contrast(distance, same, margin)


@module_of(amc)
class AMC(RegularizerModule):
    """Angular margin contrastive loss as a Module, called with features and the labels to pair by; 0 ≤ margin ≤ π."""

    formula = "θ² for a pair of one class, max(0, m − θ)² of two"
    purpose = "with any loss: tighter classes on the sphere, sharper explanations"
    takes = ("features", "pair_labels")
    margin: float = 0.5

    def setup(self) -> None:
        check_between("margin", self.margin, 0, math.pi)


@module_of(euclidean_contrastive)
class EuclideanContrastive(RegularizerModule):
    """The Euclidean contrastive loss as a Module, called with features and the labels to pair by; margin ≥ 0."""

    formula = "d² for a pair of one class, max(0, m − d)² of two"
    purpose = "the Euclidean baseline of AMC"
    takes = ("features", "pair_labels")
    margin: float = 1.0
    over: str = "sum"

    def setup(self) -> None:
        check_between("margin", self.margin, 0)
        check_choice("over", self.over, ("sum", "mean"))
