"""ArcFace: the labeled class's angle must win by a margin.

    z_y = s cos(θ_y + m)            while θ_y < π − m         θ_k: angle between the features and class k's weights
          s (cos θ_y − m sin m)     beyond, where cos(θ + m) would rise again
    z_k = s cos θ_k

m = 0 is NormFace. The margin can grow during training: m · strength is added. The second branch, from the
authors' code, does not quite meet the first: it starts s (cos m + m sin m − 1) lower (0.12 s at m = 0.5). θ_y is computed
as an angle, not from a cosine, so its gradient needs no clamp: it is bounded, and 0 at θ_y = 0 and π.
Published: s = 64 and m = 0.5, for many thousand classes; s = 20 and m = 0.2 here (16 to 30 and 0.1 to 0.3 for 10 to 100).
Deng et al., "ArcFace: additive angular margin loss for deep face recognition" (CVPR 2019), eq. 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.angle import angle, cosines
from mohs.heads._margin_head import AdditiveMarginHead, margin_labels, replace_target


def arcface(
    features: Tensor,
    weight: Tensor,
    labels: Tensor | None = None,
    *,
    scale: float = 20.0,
    margin: float = 0.2,
    strength: float = 1.0,
) -> Tensor:
    """features (N, D), weight (K, D), labels (N,) -> logits (N, K), without labels no margin; scale is s, margin m."""
    cos = cosines(features, weight)  # (N, K)
    if labels is not None:
        labels = margin_labels(cos, labels, strength)
        target = margin_cosine(angle(features, weight[labels]), margin=strength * margin)
        cos = replace_target(cos, labels, target)
    return scale * cos


def margin_cosine(theta: Tensor, *, margin: float) -> Tensor:
    """cos(θ + m), elementwise, and its decreasing continuation beyond θ = π − m."""
    return torch.where(theta < math.pi - margin, torch.cos(theta + margin), torch.cos(theta) - margin * math.sin(margin))


@module_of(arcface)
class ArcFaceHead(AdditiveMarginHead):
    """ArcFace as a Module to replace the last `nn.Linear`; `strength` may be set at any time."""

    formula = "s cos(θ_y + m)"
    purpose = "compact classes: a margin in radians, the same at every angle"
    largest_margin = math.pi
