"""AVH loss: cross-entropy on angles, so that an example is easy when it points where its class points.

    L = −log softmax_k(s (π − θ_k))_y = softplus(−m)          m: margin of the logits −s θ_k; the π cancels
    ∂L/∂θ_k = s ([k = y] − P_k)                               P: softmax of the logits

As printed, eq. 5 lacks the −log, and minimizing it would lower the label's probability: here it is added, and the
mean is taken instead of the sum. The scale s belongs to the head, so the Module is cross-entropy on the output of
`AVHHead`; `avh_loss` combines the two, given the class weights. Lower bounds by s: `heads/avh.py`.
Chen et al., "Angular visual hardness" (ICML 2020), eq. 5.
"""

from __future__ import annotations

from dataclasses import field

from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.angle import angles
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses.cross_entropy import cross_entropy, cross_entropy_loss
from mohs.margin import NO_LABEL


def avh_logits(features: Tensor, weight: Tensor, *, scale: float) -> Tensor:
    """features (N, D), weight (K, D) -> logits (N, K); scale is s."""
    return -scale * angles(features, weight)  # (N, K)


def avh_loss(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    scale: float,
    class_weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Cross-entropy on −scale · angle(features, class weights).

    Args:
        features: (N, D), the inputs of the head.
        weight: (K, D), the class weights of the head.
        labels: (N,), integer class indices.
        scale: The paper's s.
        class_weight: (K,), the option that other losses call `weight`.
        ignore_index, reduction, label_smoothing, sample_weight: As for every loss.

    Returns:
        A scalar, or (N,) for reduction="none".
    """
    return cross_entropy_loss(
        avh_logits(features, weight, scale=scale),
        labels,
        weight=class_weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
        sample_weight=sample_weight,
    )


@module_of(cross_entropy_loss)
class AVHLoss(LossModule):
    """AVH loss as a Module: cross-entropy on the logits of `AVHHead`; fields as in `nn.CrossEntropyLoss`."""

    formula = "−log p on the logits −s θ of the AVH head"
    purpose = "trains the angle that AVH scores; needs the AVH head"
    smoothable = True
    weight: Tensor | None = field(default_factory=lambda: None, kw_only=False)  # first, as in `nn.CrossEntropyLoss`

    @property
    def curve(self) -> Curve:
        return cross_entropy
