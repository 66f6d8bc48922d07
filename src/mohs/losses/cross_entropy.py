"""Cross-entropy: the baseline of all losses here.

    ℓ(m) = softplus(−m) = −log p           m: margin of the labeled class
    w(p) = 1 − p                           emphasis: falls from 1 to 0, focus 0

Equal to `F.cross_entropy` in value and gradient, label smoothing and class weights included; it needs less
memory and, for many classes, less time, and also takes `sample_weight`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Unpack

from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.losses._curve_loss import smoothed_curve_loss
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options
from mohs.margin import softplus


def cross_entropy(m: Tensor) -> Tensor:
    """The curve ℓ(m), elementwise."""
    return softplus(-m)


def cross_entropy_loss(logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"."""
    return smoothed_curve_loss(cross_entropy, logits, labels, **options)


@module_of(cross_entropy_loss)
class CrossEntropyLoss(LossModule):
    """Cross-entropy as a Module; fields as in `nn.CrossEntropyLoss`."""

    formula = "−log p"
    purpose = "the baseline: clean labels, balanced classes"
    smoothable = True
    weight: Tensor | None = field(default_factory=lambda: None, kw_only=False)  # first, as in `nn.CrossEntropyLoss`

    @property
    def curve(self) -> Curve:
        return cross_entropy
