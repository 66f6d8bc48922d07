"""Angles between vectors, accurate near 0 and π, with gradients that are finite everywhere.

    θ(a, b)  = 2 atan2(‖u − v‖, ‖u + v‖)      u, v: a and b at unit length; one pair per row
    θ_ik     = arccos(u_i · v_k)               every row with every class, the products taken in float64
    ∂θ/∂a    = −(v − cos θ · u)/(‖a‖ sin θ)    orthogonal to a, of length 1/‖a‖

arccos of a float32 cosine is off by up to 1e-3 rad near 0 and π, where the easy examples are. Both forms here are
accurate to 3e-7 for float32 vectors: the first has no cancellation; the second has digits to spare, needs only (N, K)
arrays and no selection of pairs (so no host synchronization), and is unaffected by TF32 and autocast. It gives 4e-8 for
angles under 4e-8, and on devices without float64 (MPS) it has float32's error.
The gradient is 0 where it is undefined: at coincident and opposite vectors, and at zero vectors, whose angle to every
vector is π/2. A NaN or infinite entry makes its row NaN. Half precision is raised to float32 here.
Kahan, "How futile are mindless assessments of roundoff in floating-point computation?" (2006), section 12, for the first form.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs.margin import check_tensors, full_precision

TINY = torch.finfo(torch.float32).tiny  # the smallest normal number: 1/TINY, the slope at such a vector, is still finite


def unit(x: Tensor) -> Tensor:
    """x (..., D) -> the same directions at length 1; a zero vector (all entries under 1.2e-38) stays zero."""
    check_vectors("x", x)
    x = x.to(full_precision(x.dtype))
    largest = x.detach().abs().amax(-1, keepdim=True)
    zero = largest < TINY
    x = x.masked_fill(zero, 0.0) / largest.masked_fill(zero, 1.0)  # entries up to 1: the squares can neither over- nor underflow
    return x / (x * x).sum(-1, keepdim=True).masked_fill(zero, 1.0).sqrt()  # (..., D)


def angle(a: Tensor, b: Tensor) -> Tensor:
    """The angle between each pair of vectors.

    Args:
        a: (..., D), floating point.
        b: (..., D); leading dimensions broadcast against those of `a`.

    Returns:
        θ (...), in radians from 0 to π, in float32 at least.
    """
    check_vectors("a", a)
    check_vectors("b", b)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"a and b must have the same last dimension, got {tuple(a.shape)} and {tuple(b.shape)}")
    u, v = unit(a), unit(b)
    zero = (u == 0).all(-1) | (v == 0).all(-1)  # (...)
    across, along = (_norm(w).masked_fill(zero, 1.0) for w in (u - v, u + v))
    return 2 * torch.atan2(across, along)  # (...)


def angles(features: Tensor, weight: Tensor) -> Tensor:
    """features (N, D), weight (K, D) -> θ (N, K), in radians from 0 to π."""
    dtype = common_dtype(features, weight)
    exact = torch.float32 if features.device.type == "mps" else torch.float64
    edge = 1 - 4 * torch.finfo(exact).eps  # beyond it a cosine is rounding error; the clamp's gradient there is 0
    return torch.arccos(cosines(features.to(exact), weight.to(exact)).clamp(-edge, edge)).to(dtype)  # (N, K)


def cosines(features: Tensor, weight: Tensor) -> Tensor:
    """features (N, D), weight (K, D) -> cos θ (N, K), at the cost of one matrix product: for heads that need no angle."""
    common_dtype(features, weight)
    return products(unit(features), unit(weight))  # (N, K)


def products(features: Tensor, weight: Tensor) -> Tensor:
    """features (N, D), weight (K, D) -> x · w_k (N, K), in float32 at least (under autocast as well)."""
    dtype = common_dtype(features, weight)
    with torch.autocast("cpu" if features.is_meta else features.device.type, enabled=False):  # "meta" has no autocast
        return features.to(dtype) @ weight.to(dtype).T  # (N, K)


def _norm(x: Tensor) -> Tensor:
    """Norm over the last dimension; its gradient is 0 where the norm is within the rounding error of unit vectors."""
    squares = (x * x).sum(-1)
    noise = squares <= (4 * torch.finfo(x.dtype).eps) ** 2
    return torch.where(noise, squares.detach().sqrt(), squares.masked_fill(noise, 1.0).sqrt())


def common_dtype(features: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype of results: float64 if either input is, else float32. Validates the shapes (N, D) and (K, D)."""
    check_vectors("features", features)
    check_vectors("weight", weight)
    if features.dim() != 2 or weight.dim() != 2 or features.shape[1] != weight.shape[1]:
        raise ValueError(
            "features must have shape (N, D) and weight (K, D) with the same D, "
            f"got features {tuple(features.shape)} and weight {tuple(weight.shape)}"
        )
    return full_precision(torch.promote_types(features.dtype, weight.dtype))


def check_vectors(name: str, x: Tensor) -> None:
    """Validate that x is floating point with a last dimension of at least 1."""
    check_tensors(**{name: x})
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {x.dtype}; convert it with .float()")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"{name} must hold vectors along its last dimension, got shape {tuple(x.shape)}")
