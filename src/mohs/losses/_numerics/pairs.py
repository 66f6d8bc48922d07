"""Pairs of examples: the two halves of a batch, their angles, and the contrastive term of each pair.

    θ = 2 atan2(‖u − v‖, ‖u + v‖)            u, v: the two vectors at unit length
    ∂θ/∂a = −(v − cos θ · u)/(‖a‖ sin θ)     orthogonal to a; and the same for b with u and v exchanged

Values, accuracy and the zero gradient at coincident, opposite and zero vectors are those of `mohs.angle.angle`, in half
the time: for a hundred rows the overhead of an operation exceeds its arithmetic, so there are few operations. Tracing,
`torch.func`, second and forward-mode derivatives take `angle` itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu

from mohs.angle import TINY, angle
from mohs.margin import INTEGERS, full_precision
from mohs.margin._choose import eager, needs_plain, plain_gradient


def halves(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """features (N, D), labels (N,) -> pairs (2, N//2, D) in float32 at least, and whether the two labels agree (N//2,)."""
    if features.dim() != 2 or not features.is_floating_point():
        raise ValueError(f"features must be floating point of shape (N, D), got {features.dtype} {tuple(features.shape)}")
    if labels.shape != features.shape[:1] or labels.dtype not in INTEGERS:
        raise ValueError(
            f"labels must be integers of shape {tuple(features.shape[:1])} for features of shape {tuple(features.shape)}, "
            f"got {labels.dtype} {tuple(labels.shape)}; predictions are logits.argmax(1)"
        )
    n = len(labels) // 2
    if len(labels) % 2:  # no slice otherwise: its backward pass would copy
        features, labels = features[:-1], labels[:-1]
    first, second = labels.reshape(2, n)
    return features.reshape(2, n, features.shape[1]).to(full_precision(features.dtype)), first == second


def contrast(distance: Tensor, same: Tensor, margin: float) -> Tensor:
    """The mean over pairs of d² for equal labels and max(0, margin − d)² for different ones; 0 without pairs."""
    terms = torch.where(same, distance, relu(margin - distance)).square()  # (n,)
    return terms.mean() if len(terms) else terms.sum()


def pair_angles(pairs: Tensor) -> Tensor:
    """pairs (2, n, D) -> θ (n,), in radians from 0 to π and in float32 at least."""
    if eager(pairs):
        return _PairAngle.apply(pairs.to(full_precision(pairs.dtype)))  # type: ignore[no-any-return]
    return plain_pair_angles(pairs)


def plain_pair_angles(pairs: Tensor) -> Tensor:
    """`pair_angles` by ordinary differentiable operations."""
    return angle(pairs[0], pairs[1])


class _PairAngle(torch.autograd.Function):
    """pairs (2, n, D) -> θ (n,); lengths are infinite in a pair with a zero vector."""

    @staticmethod
    def forward(ctx: Any, pairs: Tensor) -> Tensor:
        exact = torch.float32 if pairs.device.type == "mps" else torch.float64  # whose squares neither over- nor underflow
        length = torch.linalg.vector_norm(pairs, dim=-1, keepdim=True, dtype=exact).to(pairs.dtype)  # (2, n, 1)
        void = (length < TINY).any(0)  # (n, 1): one of the two is zero, so the angle is undefined
        length.masked_fill_(void, torch.inf)
        units = pairs / length  # (2, n, D)
        across, along = (torch.linalg.vector_norm(w, dim=-1, keepdim=True) for w in (units[0] - units[1], units[0] + units[1]))
        theta: Tensor = torch.atan2(across + void, along + void).mul_(2)  # for a void pair 2 atan2(1, 1) = π/2
        ctx.save_for_backward(pairs)
        ctx.saved = theta, units, length
        return theta.squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (pairs,) = ctx.saved_tensors
        if needs_plain(grads[0]):
            return plain_gradient(plain_pair_angles, pairs, grads[0])
        theta, units, length = ctx.saved
        sin = theta.sin()
        sin = sin.masked_fill(sin <= 4 * torch.finfo(sin.dtype).eps, torch.inf)  # at 0 and π the direction is undefined
        grad: Tensor = (units * theta.cos() - units.flip(0)) * (grads[0].unsqueeze(-1) / (sin * length))  # (2, n, D)
        return grad
