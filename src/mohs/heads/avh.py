"""The AVH head: logits are scaled angles, so that training minimizes the angle that Angular Visual Hardness measures.

    z_k = −s θ_k                                              θ_k: angle between the features and class k's weights

Cross-entropy on these is the AVH loss (`losses/avh.py`); the class with the smallest angle is predicted, and the
lengths of features and weights do not matter. With the K weights as far apart as possible, the loss still has the
lower bound log(1 + (K − 1) e^{−s arccos(−1/(K − 1))}): 0.27 for s = 2 and 0.002 for s = 5 at K = 10, 3e-4 for s = 8 at
K = 100. s of 5 to 20 is sensible; the paper says only that it is cross-validated.
Chen et al., "Angular visual hardness" (ICML 2020), eq. 5: its s(π − θ_k) are these logits, as the π cancels.
"""

from __future__ import annotations

from mohs._core.dataclass_module import module_of
from mohs.heads._margin_head import HeadModule, check_positive
from mohs.losses.avh import avh_logits


@module_of(avh_logits)
class AVHHead(HeadModule):
    """The AVH head as a Module to replace the last `nn.Linear`; labels are accepted and ignored."""

    formula = "−s θ"
    purpose = "trains the angle that AVH scores"
    scale: float = 10.0

    def setup(self) -> None:
        check_positive("scale", self.scale)
