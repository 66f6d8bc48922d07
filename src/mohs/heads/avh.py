"""The AVH head: logits are angles themselves, so that the loss pulls on the angle that Angular Visual Hardness measures.

    z_k = −s θ_k                                              θ_k: angle between the features and class k's weights

Cross-entropy on these is the AVH loss (`losses/avh.py`); the class with the smallest angle is predicted, and the
lengths of features and weights count for nothing. With the K weights as far apart as they can be, the loss still has
the floor log(1 + (K − 1) e^{−s arccos(−1/(K − 1))}): .27 for s = 2 and .002 for s = 5 at K = 10, 3e-4 for s = 8 at
K = 100. s of 5 to 20 is sensible; the paper only says cross-validated.
Chen et al., "Angular visual hardness" (ICML 2020), eq. 5: its s(π − θ_k) are these logits, as the π cancels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from mohs.heads._margin_head import become_head
from mohs.losses._drop_in import rebuildable
from mohs.losses.avh import avh_logits


@dataclass(eq=False, repr=False)
class AVHHead(nn.Module):
    """The AVH head as a Module, in place of the last `nn.Linear`; labels may be given and change nothing."""

    formula: ClassVar[str] = "−s θ"
    purpose: ClassVar[str] = "trains the angle that AVH scores"
    in_features: int
    num_classes: int
    scale: float = field(default=10.0, kw_only=True)

    def __post_init__(self) -> None:
        self.weight = become_head(self)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        return avh_logits(features, self.weight, scale=self.scale)

    __repr__ = rebuildable
