"""Every curve ℓ(m) with its slope dℓ/dm, in few operations: what the CPU takes instead of autograd over the curve.

The formulas are those of the loss files, and the slope is minus the emphasis w(p) that their docstrings state. A curve without
an entry here is differentiated by autograd. `tests/losses/test_slopes.py` compares each with the curve and its derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mohs.margin import softplus

Pair = Callable[[Tensor], tuple[Tensor, Tensor]]


def with_slope(curve: Callable[..., Any]) -> Pair | None:
    """The curve with its slope, for a curve of a loss file: a function, or a `partial` with its keywords; else None."""
    name, given = known_curve(curve)
    pair = SLOPES.get(name)
    return partial(pair, **given) if pair is not None and given else pair


def known_curve(curve: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """The name and keywords of a curve of a loss file; an empty name for any other."""
    given: dict[str, Any] = {}
    if isinstance(curve, partial):
        given, curve = curve.keywords, curve.func
    return (curve.__name__, given) if getattr(curve, "__module__", "").startswith("mohs.losses.") else ("", {})


def cross_entropy(m: Tensor) -> tuple[Tensor, Tensor]:
    """−log p and −(1 − p)."""
    x = -m
    return softplus(x), x.sigmoid_().neg_()


def mae(m: Tensor) -> tuple[Tensor, Tensor]:
    """2(1 − p) and −2p(1 − p)."""
    value = (-m).sigmoid_().mul_(2.0)
    return value, torch.sigmoid(m).mul_(value).neg_()


def gce(m: Tensor, *, q: float = 0.7) -> tuple[Tensor, Tensor]:
    """(1 − p^q)/q and −p^q (1 − p)."""
    if q == 0:
        return cross_entropy(m)
    x = -m
    log_power = softplus(x).mul_(-q)
    return log_power.expm1().div_(-q), log_power.exp_().mul_(x.sigmoid_()).neg_()


def truncated_gce(m: Tensor, *, q: float = 0.7, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
    """GCE, constant where p < threshold."""
    edge = math.log(threshold) - math.log1p(-threshold)
    value, slope = gce(m.clamp(min=edge), q=q)
    return value, slope.masked_fill_(m < edge, 0.0)


def focal(m: Tensor, *, gamma: float = 2.0) -> tuple[Tensor, Tensor]:
    """−(1 − p)^γ log p and −(1 − p)^γ (1 − p − γ p log p)."""
    largest = torch.finfo(m.dtype).max / 4
    x = (-m).clamp_(-largest, largest)
    ce, rest = softplus(x), torch.sigmoid(x)
    factor = softplus(x.neg_()).mul_(-gamma).exp_()
    slope = x.sigmoid_().mul_(ce).mul_(gamma).add_(rest).mul_(factor).neg_()
    return factor.mul_(ce), slope


def symmetric(m: Tensor, *, alpha: float = 0.1, beta: float = 1.0, floor: float = 1e-4) -> tuple[Tensor, Tensor]:
    """−α log p + βA (1 − p) and −(1 − p)(α + βA p)."""
    height = -beta * math.log(floor)
    x = -m
    ce, rest = softplus(x), x.sigmoid_()
    return ce.mul_(alpha).add_(rest, alpha=height), torch.sigmoid(m).mul_(height).add_(alpha).mul_(rest).neg_()


def encouraging(
    m: Tensor, *, log_end: float = 0.75, start: float = 0.0, bonus: float = 1.0, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """−log p + bonus · b and −(1 − p) + bonus · db/dm, b = log(1 − p), db/dm = −p up to LE or 1 − ε."""
    m = m.clamp(max=torch.finfo(m.dtype).max ** 0.5)
    x = -m
    ce, p, rest = softplus(x), torch.sigmoid(m), x.sigmoid_()
    b, push = (ce + m).neg_(), -p  # log(1 − p) = log p − m
    if log_end < 1:
        straight, width = p > log_end, 1 - log_end
        b = torch.where(straight, (p - log_end).mul_(-1 / width).add_(math.log1p(-log_end)), b)
        push = torch.where(straight, (push * rest).mul_(1 / width), push)
    if eps > 1 - log_end:
        flat = b < math.log(eps)
        if log_end < 1:
            flat &= ~straight
        b, push = b.masked_fill_(flat, math.log(eps)), push.masked_fill_(flat, 0.0)
    if start > 0:
        off = p < start
        b, push = b.sub_(math.log1p(-start)).masked_fill_(off, 0.0), push.masked_fill_(off, 0.0)
    if bonus != 1:
        b, push = b.mul_(bonus), push.mul_(bonus)
    return ce.add_(b), push.sub_(rest)


def half_gradient(m: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """−log p/(2(1 − p) + ε), the denominator held constant, and its slope."""
    if eps > 0:
        x = -m
        ce, rest = softplus(x), x.sigmoid_()
        below = (2 * rest).add_(eps)
        return ce.div_(below), rest.div_(below).neg_()
    x = m.clamp(max=60.0).neg_()
    return softplus(x).div_(x.sigmoid_().mul_(2.0)), torch.where(m.isnan(), m, -0.5)


def gradient_rescaling(
    m: Tensor, *, beta: float = 8.0, lam: float = 0.5, transform: str = "exp", eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """The half gradient times g(β p^λ (1 − p)), which is held constant."""
    weight = torch.sigmoid(m).pow_(lam).mul_(beta).mul_(torch.sigmoid(-m))
    weight = weight.exp_() if transform == "exp" else weight
    value, slope = half_gradient(m, eps=eps)
    return value.mul_(weight), slope.mul_(weight)


SLOPES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    curve.__name__: curve for curve in (cross_entropy, mae, gce, truncated_gce, focal, symmetric, encouraging, gradient_rescaling)
}
