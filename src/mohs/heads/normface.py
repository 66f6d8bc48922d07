"""NormFace: softmax on scaled cosines, so that neither the features' nor the weights' lengths count.

    z_k = s cos θ_k                                           θ_k: angle between the features and class k's weights

No margin and no labels. The largest p that K weights on the sphere allow is 1/(1 + (K − 1) e^{−s K/(K − 1)}), so a
small s cannot fit: s of 15 to 30 is usual, 20 here; CosFace and ArcFace publish 64, for many thousand classes.
Wang et al., "NormFace: L2 hypersphere embedding for face verification" (ACM MM 2017); the bound is its Proposition 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from mohs.angle import cosines
from mohs.heads._margin_head import become_head
from mohs.losses._drop_in import rebuildable


def normface(features: Tensor, weight: Tensor, *, scale: float = 20.0) -> Tensor:
    """features (N, D), weight (K, D) -> logits (N, K); scale is s."""
    return scale * cosines(features, weight)  # (N, K)


@dataclass(eq=False, repr=False)
class NormFaceHead(nn.Module):
    """NormFace as a Module, in place of the last `nn.Linear`; labels may be given and change nothing."""

    formula: ClassVar[str] = "s cos θ"
    purpose: ClassVar[str] = "directions only: the head that the margins below are added to"
    in_features: int
    num_classes: int
    scale: float = field(default=20.0, kw_only=True)

    def __post_init__(self) -> None:
        self.weight = become_head(self)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        return normface(features, self.weight, scale=self.scale)

    __repr__ = rebuildable
