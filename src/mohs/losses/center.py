"""Center loss: pulls every feature vector to the center of its class; the centers are learned.

    L = 1/(2N) Σᵢ ‖xᵢ − c_yᵢ‖²          ∂L/∂xᵢ = (xᵢ − c_yᵢ)/N,   ∂L/∂c_j = Σ_{yᵢ=j} (c_j − xᵢ)/N

The centers are a parameter, so their step is (learning rate) × (weight λ of this term in the objective) × ∂L/∂c: the
authors move c_j by α Σ_{yᵢ=j} (c_j − xᵢ)/(1 + n_j), free of λ. Give the centers their own parameter group, without
momentum or weight decay, and the learning rate α/λ times N/(1 + n_j), about α K/λ for large batches of K equal classes.
An empty batch has loss 0.
Wen et al., "A discriminative feature learning approach for deep face recognition" (ECCV 2016), eqs. 2 to 4; the mean
over the batch instead of its sum.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import torch
from torch import Tensor, nn

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_whole
from mohs.losses._drop_in import RegularizerModule
from mohs.margin import checked_labels, full_precision


def center_loss(features: Tensor, labels: Tensor, centers: Tensor) -> Tensor:
    """features (N, D), labels (N,), centers (K, D) -> scalar, in float32 at least."""
    if features.dim() != 2 or not features.is_floating_point():
        raise ValueError(f"features must be floating point of shape (N, D), got {features.dtype} {tuple(features.shape)}")
    if centers.dim() != 2 or centers.shape[1] != features.shape[1]:
        raise ValueError(
            f"centers must have shape (K, {features.shape[1]}) for features of shape {tuple(features.shape)}, "
            f"got {tuple(centers.shape)}"
        )
    own = centers[checked_labels(features.new_empty(()).expand(len(features), len(centers)), labels)]  # (N, D)
    dtype = full_precision(torch.promote_types(features.dtype, centers.dtype))
    return (features.to(dtype) - own.to(dtype)).square().sum() / (2 * max(1, len(features)))


@module_of(center_loss)
class CenterLoss(RegularizerModule):
    """Center loss as a Module with its `centers` (K, D), drawn from a standard normal distribution by `seed`."""

    formula = "½ ‖x − c_y‖²"
    purpose = "with any loss: compact classes in feature space"
    takes = ("features", "labels")
    num_classes: int = field(kw_only=False)
    in_features: int = field(kw_only=False)
    seed: int = 0

    def setup(self) -> None:
        check_whole("num_classes", self.num_classes, 2)
        check_whole("in_features", self.in_features, 1)
        generator = torch.Generator().manual_seed(self.seed)
        self.centers = nn.Parameter(torch.randn(self.num_classes, self.in_features, generator=generator))

    def arguments(self) -> dict[str, Any]:
        return {"centers": self.centers}
