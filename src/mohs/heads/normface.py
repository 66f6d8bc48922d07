"""NormFace: softmax on scaled cosines, independent of the lengths of features and weights.

    z_k = s cos θ_k                                           θ_k: angle between the features and class k's weights

No margin and no labels. The largest p that K weights on the sphere allow is 1/(1 + (K − 1) e^{−s K/(K − 1)}), so a
small s cannot fit: s of 15 to 30 is usual, 20 here; CosFace and ArcFace publish 64, for many thousand classes.
Wang et al., "NormFace: L2 hypersphere embedding for face verification" (ACM MM 2017); the bound is its Proposition 2.
"""

from __future__ import annotations

from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.angle import cosines
from mohs.heads._margin_head import HeadModule, check_positive


def normface(features: Tensor, weight: Tensor, *, scale: float = 20.0) -> Tensor:
    """features (N, D), weight (K, D) -> logits (N, K); scale is s."""
    return scale * cosines(features, weight)  # (N, K)


@module_of(normface)
class NormFaceHead(HeadModule):
    """NormFace as a Module to replace the last `nn.Linear`; labels are accepted and ignored."""

    formula = "s cos θ"
    purpose = "directions only: the head to which CosFace and ArcFace add a margin"
    scale: float = 20.0

    def setup(self) -> None:
        check_positive("scale", self.scale)
