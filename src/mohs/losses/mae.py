"""Mean absolute error between the predicted distribution and the one-hot label: robust to noise, slow to learn.

    ℓ(m) = 2σ(−m) = 2(1 − p) = Σ_k |p_k − [k = y]|
    w(p) = 2p(1 − p)                       emphasis: focus ½, close to 0 for unlikely labels

Ghosh, Kumar & Sastry, "Robust loss functions under label noise for deep neural networks" (AAAI 2017);
on this scale in Gradient Rescaling, eq. 3. Some implementations halve it.
"""

from __future__ import annotations

from dataclasses import field
from typing import Unpack

from torch import Tensor, sigmoid

from mohs._core.dataclass_module import module_of
from mohs.losses._curve_loss import curve_loss
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options


def mae(m: Tensor) -> Tensor:
    """The curve ℓ(m), elementwise."""
    return 2 * sigmoid(-m)


def mae_loss(logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    return curve_loss(mae, logits, labels, **options)


@module_of(mae_loss)
class MeanAbsoluteErrorLoss(LossModule):
    """Mean absolute error as a Module."""

    formula = "2(1 − p)"
    purpose = "heavy label noise with few classes; underfits with many"
    weight: Tensor | None = field(default_factory=lambda: None, kw_only=False)  # first, as in `nn.CrossEntropyLoss`

    @property
    def curve(self) -> Curve:
        return mae
