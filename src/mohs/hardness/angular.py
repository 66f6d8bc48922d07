"""Angular Visual Hardness and angular confidence of features against class weights, without an (N, K) array.

    AVH(x, y) = θ_y / Σ_k θ_k                  the sum over all classes, y included; lower = easier; 1/K for equal angles
    AVC(x)    = max_c (π − θ_c) / Σ_k (π − θ_k) angular confidence in the nearest class; higher = more confident

θ_k is the angle between x and w_k; lengths and biases do not matter. Angles are arccos of one plain product, in chunks
of rows; where that cosine is beyond ±0.999 the label's angle (for AVC the nearest class's) is computed by the paired form
instead, accurate to 3e-6 rad everywhere. A zero x gives 1/K, as do weights that all lie within 1e-3 rad of x
(for AVC: of −x), where a float32 cosine cannot distinguish the angles. A zero w_k is at π/2 to everything.
Results carry no gradient and, on a GPU, cause no host synchronization. A row with NaN or ∞ is NaN. On a GPU, AVH takes two
Triton kernels.
Chen et al., "Angular Visual Hardness" (ICML 2020), Definition 3 (eq. 1) and eq. 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from mohs.angle import angle, common_dtype, unit
from mohs.margin import checked_labels, readable
from mohs.margin._choose import takes

CHUNK_ENTRIES = 2**21  # 8 MB of float32 angles at a time, which fit in the CPU's caches
STEEP = 0.999  # beyond this cosine arccos loses digits
KERNEL_FEATURES = 8192  # most features that one program of the kernels holds
LENGTHS = (1e-12, 1e18)  # norms between these are exact in float32; other rows are normalized by the careful form


@torch.no_grad()
def avh(features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Angular visual hardness of each example.

    Args:
        features: (N, D), the inputs of the head.
        weight: Class weights (K, D).
        labels: (N,), class indices.

    Returns:
        AVH (N,), in float32 (float64 if either input is); lower is easier.
    """
    dtype = check_classes(features, weight)
    labels = checked_labels(features.new_empty(1, weight.shape[0]).expand(features.shape[0], -1), labels)
    if takes(features) and dtype == torch.float32 and features.shape[1] <= KERNEL_FEATURES:
        from mohs.hardness._angular_triton import fused_avh

        return fused_avh(features, unit(weight.to(dtype)), labels, rounding(weight.shape[0], dtype))
    scores = torch.empty(features.shape[0], dtype=dtype, device=features.device)
    for rows, cos in cosine_chunks(features, weight, dtype):
        index = labels[rows].unsqueeze(1)
        cos_own = cos.gather(1, index).squeeze(1)
        own = careful_angle(cos_own, features[rows], weight, labels[rows])
        total = cos.arccos_().sum(1) - cos_own.arccos() + own
        scores[rows] = share(own, total, weight.shape[0])
    return scores


@torch.no_grad()
def avc(features: Tensor, weight: Tensor) -> Tensor:
    """Angular confidence in the nearest class.

    Args:
        features: (N, D), the inputs of the head.
        weight: Class weights (K, D).

    Returns:
        AVC (N,); higher is more confident.
    """
    dtype = check_classes(features, weight)
    scores = torch.empty(features.shape[0], dtype=dtype, device=features.device)
    for rows, cos in cosine_chunks(features, weight, dtype):
        cos_near, nearest = cos.max(1)
        near = careful_angle(cos_near, features[rows], weight, nearest)
        total = weight.shape[0] * math.pi - cos.arccos_().sum(1) + cos_near.arccos() - near
        scores[rows] = share(math.pi - near, total, weight.shape[0])
    return scores


def cosine_chunks(features: Tensor, weight: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """Slices of rows with the cosines (n, K) of those rows to every class, in one reused buffer."""
    directions = unit(weight.to(dtype)).T  # (D, K)
    step = max(1, CHUNK_ENTRIES // weight.shape[0])
    buffer = torch.empty(min(step, features.shape[0]), weight.shape[0], dtype=dtype, device=features.device)
    for start in range(0, features.shape[0], step):
        x = features[start : start + step].to(dtype)
        length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        plain = (length > LENGTHS[0]) & (length < LENGTHS[1])
        if not (readable(plain) and plain.all()):  # on other devices the check would synchronize; the careful form is cheap
            x, length = unit(x), torch.ones_like(length)
        with torch.autocast(x.device.type, enabled=False):
            cos = torch.mm(x, directions, out=buffer[: x.shape[0]])
        yield slice(start, start + step), cos.div_(length).clamp_(-1, 1)


def careful_angle(cos: Tensor, features: Tensor, weight: Tensor, classes: Tensor) -> Tensor:
    """The angles (n,) of which these are the cosines, one class per row; the steep ones by the paired form."""
    theta, steep = cos.arccos(), cos.abs() > STEEP
    if not readable(cos):  # counting the steep ones would synchronize: take all
        return torch.where(steep, angle(features, weight[classes]).to(theta.dtype), theta)
    rows = steep.nonzero().squeeze(1)
    theta[rows] = angle(features[rows], weight[classes[rows]]).to(theta.dtype)
    return theta


def share(part: Tensor, total: Tensor, classes: int) -> Tensor:
    """part/total (n,); 1/K where the total is at most the rounding error of K arccosines at 1."""
    return torch.where(total < rounding(classes, total.dtype), 1 / classes, part / total)


def rounding(classes: int, dtype: torch.dtype) -> float:
    """The rounding error of K arccosines at 1, added up."""
    return 4 * classes * math.sqrt(torch.finfo(dtype).eps)


def check_classes(features: Tensor, weight: Tensor) -> torch.dtype:
    """The type of the result; raise unless features (N, D) and weight (K, D) fit together with K ≥ 2."""
    dtype = common_dtype(features, weight)
    if weight.shape[0] < 2:
        raise ValueError(f"weight must have a row for each of at least 2 classes, got shape {tuple(weight.shape)}")
    return dtype
