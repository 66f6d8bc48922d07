"""The ball of an attack, L∞ or L2: steepest directions, random points, and projection onto ball and box.

L∞: sign(g), |δ_i| ≤ ε          L2: g/‖g‖₂, ‖δ‖₂ ≤ ε          pixels stay in 0..1
"""

from __future__ import annotations

import torch
from torch import Tensor

NORMS = ("linf", "l2")
BOX = (0.0, 1.0)


def direction(gradient: Tensor, norm: str) -> Tensor:
    """The steepest direction of length 1 in this norm; 0 where the gradient is 0."""
    if norm == "linf":
        return gradient.sign()
    largest = gradient.flatten(1).abs().amax(1)  # so that squares of a tiny gradient do not underflow
    gradient = gradient / wide(largest.masked_fill(largest == 0, 1.0), gradient)
    length = gradient.flatten(1).norm(dim=1)
    return gradient / wide(length.masked_fill(length == 0, 1.0), gradient)


def noise(x: Tensor, eps: float, norm: str, generator: torch.Generator) -> Tensor:
    """A uniform random point of the ball."""
    if norm == "linf":
        return (2 * torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype) - 1) * eps
    drawn = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    radius = torch.rand(len(x), generator=generator, device=x.device, dtype=x.dtype) ** (1 / x[0].numel())
    return direction(drawn, norm) * wide(radius, x) * eps


def within(tried: Tensor, x: Tensor, eps: float, norm: str) -> Tensor:
    """Project onto the ball around x, then onto the box; x is in the box, so the result stays in the ball."""
    change = tried.detach() - x
    if norm == "linf":
        change = change.clamp(-eps, eps)
    else:
        length = change.flatten(1).norm(dim=1).clamp_min(1e-30)
        change = change * wide((eps / length).clamp(max=1.0), change)
    return (x + change).clamp(*BOX)


def wide(values: Tensor, like: Tensor) -> Tensor:
    """values (n,) shaped to multiply like (n, ...)."""
    return values.view(-1, *[1] * (like.dim() - 1))
