"""L-Softmax: the margin of SphereFace with the weights' lengths left in.

    z_y = ‖w_y‖ ‖x‖ ψ(θ_y),  z_k = w_k · x                    ψ: SphereFace's, cos(mθ) made to fall from 0 to π

m = 1 is a linear layer without bias. Blended as SphereFace is: z_y = (1 − strength) w_y · x + strength ‖w_y‖ ‖x‖ ψ(θ_y).
Published: m = 2 to 4, with λ falling from 100 to 0 (`lsoftmax_strength`), strength = 1/(1 + λ). m = 2 here; 3 and 4
need the schedule: without it they stop short of fitting even scikit-learn's digits.
Liu et al., "Large-margin softmax loss for convolutional neural networks" (ICML 2016), eqs. 4 to 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from mohs.angle import angle, products
from mohs.heads._margin_head import become_head, check_multiple, indices, needs_labels, of_target, with_target
from mohs.heads.sphereface import psi, vector_length
from mohs.losses._drop_in import rebuildable


def lsoftmax(features: Tensor, weight: Tensor, labels: Tensor | None = None, *, margin: int = 2, strength: float = 1.0) -> Tensor:
    """features (N, D), weight (K, D), labels (N,) -> logits (N, K), without a margin if without labels; margin is m."""
    logits = products(features, weight)  # (N, K)
    if labels is None:
        return logits
    labels = indices(logits, labels, strength)
    own = weight[labels]  # (N, D)
    target = vector_length(own) * vector_length(features) * psi(angle(features, own), margin=margin)
    return with_target(logits, labels, torch.lerp(of_target(logits, labels), target.to(logits.dtype), strength))


def lsoftmax_strength(step: int) -> float:
    """The published annealing, λ = 100 · .99^step, as the strength 1/(1 + λ): from 1/101 to 1."""
    return 1 / (1 + 100 * 0.99**step)


@dataclass(eq=False, repr=False)
class LSoftmaxHead(nn.Module):
    """L-Softmax as a Module, in place of the last `nn.Linear`; `strength` may be set at any time."""

    formula: ClassVar[str] = "‖w_y‖ ‖x‖ ψ(θ_y),  ψ ≈ cos(mθ)"
    purpose: ClassVar[str] = "a plain linear layer with an angular margin"
    in_features: int
    num_classes: int
    margin: int = field(default=2, kw_only=True)
    strength: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        self.weight = become_head(self)
        check_multiple("margin", self.margin)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        needs_labels(self, labels)
        return lsoftmax(features, self.weight, labels, margin=self.margin, strength=self.strength)

    __repr__ = rebuildable
