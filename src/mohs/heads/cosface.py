"""CosFace: the labeled class's cosine must win by a margin.

    z_y = s (cos θ_y − m),  z_k = s cos θ_k                   θ_k: angle between the features and class k's weights

m = 0 is NormFace. The margin can grow during training: m · strength is what is taken off.
Published: s = 64 and m = .35 (or .40), for many thousand classes; s = 20 and m = .2 here, for 10 to 100.
Wang et al., "CosFace: large margin cosine loss for deep face recognition" (CVPR 2018), eq. 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from mohs._core.validation import check_between
from mohs.angle import cosines
from mohs.heads._margin_head import become_head, indices, needs_labels, of_target, with_target
from mohs.losses._drop_in import rebuildable


def cosface(
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
        cos = with_target(cos, labels, of_target(cos, labels) - strength * margin)
    return scale * cos


@dataclass(eq=False, repr=False)
class CosFaceHead(nn.Module):
    """CosFace as a Module, in place of the last `nn.Linear`; `strength` may be set at any time."""

    formula: ClassVar[str] = "s (cos θ_y − m)"
    purpose: ClassVar[str] = "compact classes: the margin that is easiest to train"
    in_features: int
    num_classes: int
    scale: float = field(default=20.0, kw_only=True)
    margin: float = field(default=0.2, kw_only=True)
    strength: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        self.weight = become_head(self)
        check_between("margin", self.margin, 0, 2)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        needs_labels(self, labels)
        return cosface(features, self.weight, labels, scale=self.scale, margin=self.margin, strength=self.strength)

    __repr__ = rebuildable
