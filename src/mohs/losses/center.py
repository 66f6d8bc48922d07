"""Center loss: every feature vector is drawn to the center of its class, and the centers learn where that is.

    L = 1/(2N) Σᵢ ‖xᵢ − c_yᵢ‖²          ∂L/∂xᵢ = (xᵢ − c_yᵢ)/N,   ∂L/∂c_j = Σ_{yᵢ=j} (c_j − xᵢ)/N

The centers are a parameter, so their step is (learning rate) × (weight λ of this term in the objective) × ∂L/∂c: the
authors move c_j by α Σ_{yᵢ=j} (c_j − xᵢ)/(1 + n_j), free of λ. Give the centers their own parameter group, without
momentum or weight decay, and the learning rate α/λ times N/(1 + n_j), about α K/λ for large batches of K equal classes.
A batch with nobody in it has loss 0.
Wen et al., "A discriminative feature learning approach for deep face recognition" (ECCV 2016), eqs. 2 to 4; the mean
over the batch in place of its sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mohs._core.validation import check_between
from mohs.losses._drop_in import rebuildable
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


@dataclass(eq=False, repr=False)
class CenterLoss(nn.Module):
    """Center loss as a Module with its `centers` (K, D), drawn from a standard normal distribution by `seed`."""

    formula: ClassVar[str] = "½ ‖x − c_y‖²"
    purpose: ClassVar[str] = "beside any loss: compact classes in feature space"
    takes: ClassVar[tuple[str, ...]] = ("features", "labels")
    num_classes: int
    in_features: int
    seed: int = 0

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        check_between("num_classes", self.num_classes, 2)
        check_between("in_features", self.in_features, 1)
        generator = torch.Generator().manual_seed(self.seed)
        self.centers = nn.Parameter(torch.randn(self.num_classes, self.in_features, generator=generator))

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        return center_loss(features, labels, self.centers)

    __repr__ = rebuildable
