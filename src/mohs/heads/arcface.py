"""ArcFace: the labeled class's angle must win by a margin.

    z_y = s cos(θ_y + m)            while θ_y < π − m         θ_k: angle between the features and class k's weights
          s (cos θ_y − m sin m)     beyond, where cos(θ + m) would rise again
    z_k = s cos θ_k

m = 0 is NormFace. The margin can grow during training: m · strength is what is added. The second branch, from the
authors' code, does not quite meet the first: it starts s (cos m + m sin m − 1) lower (.12 s at m = .5). θ_y is computed
as an angle, not from a cosine, so its gradient needs no clamp: it is bounded, and 0 at θ_y = 0 and π.
Published: s = 64 and m = .5, for many thousand classes; s = 20 and m = .2 here (16 to 30 and .1 to .3 for 10 to 100).
Deng et al., "ArcFace: additive angular margin loss for deep face recognition" (CVPR 2019), eq. 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from mohs._core.validation import check_between
from mohs.angle import angle, cosines
from mohs.heads._margin_head import become_head, indices, needs_labels, with_target
from mohs.losses._drop_in import rebuildable


def arcface(
    features: Tensor,
    weight: Tensor,
    labels: Tensor | None = None,
    *,
    scale: float = 20.0,
    margin: float = 0.2,
    strength: float = 1.0,
) -> Tensor:
    """features (N, D), weight (K, D), labels (N,) -> logits (N, K), without a margin if without labels; scale is s, margin m."""
    cos = cosines(features, weight)  # (N, K)
    if labels is not None:
        labels = indices(cos, labels, strength)
        target = widened_cosine(angle(features, weight[labels]), margin=strength * margin)
        cos = with_target(cos, labels, target)
    return scale * cos


def widened_cosine(theta: Tensor, *, margin: float) -> Tensor:
    """cos(θ + m), elementwise, and its falling continuation beyond θ = π − m."""
    return torch.where(theta < math.pi - margin, torch.cos(theta + margin), torch.cos(theta) - margin * math.sin(margin))


@dataclass(eq=False, repr=False)
class ArcFaceHead(nn.Module):
    """ArcFace as a Module, in place of the last `nn.Linear`; `strength` may be set at any time."""

    formula: ClassVar[str] = "s cos(θ_y + m)"
    purpose: ClassVar[str] = "compact classes: a margin in radians, the same at every angle"
    in_features: int
    num_classes: int
    scale: float = field(default=20.0, kw_only=True)
    margin: float = field(default=0.2, kw_only=True)
    strength: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        self.weight = become_head(self)
        check_between("margin", self.margin, 0, math.pi)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        needs_labels(self, labels)
        return arcface(features, self.weight, labels, scale=self.scale, margin=self.margin, strength=self.strength)

    __repr__ = rebuildable
