"""L-Softmax: the margin of SphereFace with the weights' lengths left in.

    z_y = ‖w_y‖ ‖x‖ ψ(θ_y),  z_k = w_k · x                    ψ: as in SphereFace, cos(mθ) made decreasing on [0, π]

m = 1 is a linear layer without bias. Blended as SphereFace is: z_y = (1 − strength) w_y · x + strength ‖w_y‖ ‖x‖ ψ(θ_y).
Published: m = 2 to 4, with λ falling from 100 to 0 (`lsoftmax_strength`), strength = 1/(1 + λ). m = 2 here; 3 and 4
need the schedule: without it they do not even fit scikit-learn's digits.
Liu et al., "Large-margin softmax loss for convolutional neural networks" (ICML 2016), eqs. 4 to 6.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.angle import angle, products
from mohs.heads._margin_head import MultiplicativeMarginHead, margin_labels, replace_target, target_of
from mohs.heads.sphereface import psi, vector_length


def lsoftmax(features: Tensor, weight: Tensor, labels: Tensor | None = None, *, margin: int = 2, strength: float = 1.0) -> Tensor:
    """features (N, D), weight (K, D), labels (N,) -> logits (N, K), without labels no margin; margin is m."""
    logits = products(features, weight)  # (N, K)
    if labels is None:
        return logits
    labels = margin_labels(logits, labels, strength)
    own = weight[labels]  # (N, D)
    target = vector_length(own) * vector_length(features) * psi(angle(features, own), margin=margin)
    return replace_target(logits, labels, torch.lerp(target_of(logits, labels), target.to(logits.dtype), strength))


def lsoftmax_strength(step: int) -> float:
    """The published annealing, λ = 100 · 0.99^step, as the strength 1/(1 + λ): from 1/101 to 1."""
    return 1 / (1 + 100 * 0.99**step)


@module_of(lsoftmax)
class LSoftmaxHead(MultiplicativeMarginHead):
    """L-Softmax as a Module to replace the last `nn.Linear`; `strength` may be set at any time."""

    formula = "‖w_y‖ ‖x‖ ψ(θ_y),  ψ ≈ cos(mθ)"
    purpose = "a plain linear layer with an angular margin"
