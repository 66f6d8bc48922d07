"""SphereFace (A-Softmax): the labeled class's angle is multiplied, so it must be m times smaller to win.

    z_y = ‖x‖ ψ(θ_y),  z_k = ‖x‖ cos θ_k                      θ_k: angle between features x and class k's weights
    ψ(θ) = (−1)^k cos(mθ) − 2k,  k = ⌊mθ/π⌋                   decreases continuously from 1 at 0 to 1 − 2m at π

m = 1 is softmax with unit weights and no bias. The full margin is hard to learn from scratch, so the two are
blended: z_y = ‖x‖ ((1 − strength) cos θ_y + strength ψ(θ_y)); the paper's λ is strength = 1/(1 + λ).
Published: m = 4 with λ falling from 1500 to 5 (`sphereface_strength`), so that the margin's share is at most 1/6;
m = 2 here, which trains without a schedule.
Liu et al., "SphereFace: deep hypersphere embedding for face recognition" (CVPR 2017), eq. 7.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.angle import angle, products, unit
from mohs.heads._margin_head import MultiplicativeMarginHead, margin_labels, replace_target, target_of
from mohs.margin import full_precision


def sphereface(
    features: Tensor, weight: Tensor, labels: Tensor | None = None, *, margin: int = 2, strength: float = 1.0
) -> Tensor:
    """features (N, D), weight (K, D), labels (N,) -> logits (N, K), without labels no margin; margin is m."""
    logits = products(features, unit(weight))  # (N, K)
    if labels is None:
        return logits
    labels = margin_labels(logits, labels, strength)
    target = vector_length(features) * psi(angle(features, weight[labels]), margin=margin)  # (N,)
    return replace_target(logits, labels, torch.lerp(target_of(logits, labels), target.to(logits.dtype), strength))


def psi(theta: Tensor, *, margin: int) -> Tensor:
    """ψ(θ), elementwise: cos(mθ) made decreasing on [0, π]."""
    k = torch.floor(theta.detach() * (margin / math.pi))
    sign = 1 - 2 * torch.remainder(k, 2)
    return sign * torch.cos(margin * theta) - 2 * k


def vector_length(x: Tensor) -> Tensor:
    """x (N, D) -> ‖x‖ (N,), in float32 at least; the gradient at a zero vector is 0."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=full_precision(x.dtype))
    return length


def sphereface_strength(step: int) -> float:
    """The published annealing, λ = max(5, 1500/(1 + 0.1 step)), as the strength 1/(1 + λ): from 1/1501 to 1/6 at step 2990."""
    return 1 / (1 + max(5.0, 1500 / (1 + 0.1 * step)))


@module_of(sphereface)
class SphereFaceHead(MultiplicativeMarginHead):
    """SphereFace as a Module to replace the last `nn.Linear`; `strength` may be set at any time."""

    formula = "‖x‖ ψ(θ_y),  ψ ≈ cos(mθ)"
    purpose = "compact classes; keeps the length of the features"
