"""CosFace: the labeled class's cosine must win by a margin.

    z_y = s (cos θ_y − m),  z_k = s cos θ_k                   θ_k: angle between the features and class k's weights

m = 0 is NormFace. The margin can grow during training: m · strength is subtracted.
Published: s = 64 and m = 0.35 (or 0.40), for many thousand classes; s = 20 and m = 0.2 here, for 10 to 100.
Wang et al., "CosFace: large margin cosine loss for deep face recognition" (CVPR 2018), eq. 4.
"""

from __future__ import annotations

from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.angle import cosines
from mohs.heads._margin_head import AdditiveMarginHead, margin_labels, replace_target, target_of


def cosface(
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
        cos = replace_target(cos, labels, target_of(cos, labels) - strength * margin)
    return scale * cos


@module_of(cosface)
class CosFaceHead(AdditiveMarginHead):
    """CosFace as a Module to replace the last `nn.Linear`; `strength` may be set at any time."""

    formula = "s (cos θ_y − m)"
    purpose = "compact classes: the margin that is easiest to train"
    largest_margin = 2.0
