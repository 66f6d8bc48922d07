"""Every curve ℓ(m) with its emphasis w = −dℓ/dm, in few operations: used on CPU instead of autograd over the curve.

The formulas are those of the loss files. A curve without an entry here is differentiated by autograd.
`tests/losses/test_emphases.py` compares each with the curve and its derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from mohs.margin import INF, softplus
from mohs.margin._quick import ZERO, Pair, times

FEW = 256  # rows
ONE = torch.ones((), device="cpu")  # y + c in half the time of small y: y.add(ONE, alpha=c); for c · y there is `times`


def with_emphasis(curve: Callable[..., Any]) -> Pair | None:
    """The curve with its emphasis, for a curve of a loss file: a function, or a `partial` with its keywords; else None."""
    name, given = known_curve(curve)
    pair = EMPHASES.get(name)
    return partial(pair, **given) if pair is not None and given else pair


def known_curve(curve: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """The name and keywords of a curve of a loss file; an empty name for any other."""
    given: dict[str, Any] = {}
    if isinstance(curve, partial):
        given, curve = curve.keywords, curve.func
    return (curve.__name__, given) if getattr(curve, "__module__", "").startswith("mohs.losses.") else ("", {})


def cross_entropy(m: Tensor) -> tuple[Tensor, Tensor]:
    """−log p and 1 − p."""
    x = -m
    return softplus(x), x.sigmoid_()


def mae(m: Tensor) -> tuple[Tensor, Tensor]:
    """2(1 − p) and 2p(1 − p)."""
    rest = (-m).sigmoid_()
    value = rest.add_(rest)
    return value, torch.sigmoid(m).mul_(value)


def gce(m: Tensor, *, q: float = 0.7) -> tuple[Tensor, Tensor]:
    """(1 − p^q)/q and p^q (1 − p)."""
    if q == 0:
        return cross_entropy(m)
    x = -m
    log_power = times(-q, softplus(x))
    return times(-1 / q, log_power.expm1()), log_power.exp_().mul_(x.sigmoid_())


def truncated_gce(m: Tensor, *, q: float = 0.7, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
    """GCE, constant where p < threshold."""
    near = m.clamp(min=_log_odds(threshold))
    value, emphasis = gce(near, q=q)
    return value, emphasis.masked_fill_(m < near, 0.0)


def focal(m: Tensor, *, gamma: float = 2.0) -> tuple[Tensor, Tensor]:
    """−(1 − p)^γ log p and (1 − p)^γ (1 − p − γ p log p)."""
    x = (-m).clamp_(max=torch.finfo(m.dtype).max / 4)  # +inf, if the label is masked, would make 0 · inf
    ce, rest = softplus(x), x.sigmoid_()
    factor = rest.pow(gamma)
    emphasis = rest.addcmul_(torch.sigmoid(m), ce, value=gamma).mul_(factor)
    return ce.mul_(factor), emphasis


def symmetric(m: Tensor, *, alpha: float = 0.1, beta: float = 1.0, floor: float = 1e-4) -> tuple[Tensor, Tensor]:
    """−α log p + βA (1 − p) and (1 − p)(α + βA p)."""
    height = -beta * math.log(floor)
    x = -m
    value = times(alpha, softplus(x))
    rest = x.sigmoid_()
    return value.add_(rest, alpha=height), times(alpha, rest).addcmul_(torch.sigmoid(m), rest, value=height)


def encouraging(
    m: Tensor, *, log_end: float = 0.75, start: float = 0.0, bonus: float = 1.0, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """−log p + bonus · b(p) and 1 − p + bonus · p · (the remaining share of the bonus: 1 up to LE)."""
    x = -m
    ce, rest, p = softplus(x), x.sigmoid_(), torch.sigmoid(m)
    reward = softplus(m)  # −log(1 − p)
    less = reward.clamp(max=_most_reward(log_end, eps, m.dtype))  # −b
    if log_end < 1 and eps <= 1 - log_end:
        near, slope = rest.clamp(max=1 - log_end), bonus / (1 - log_end)
        value = ce.sub_(less, alpha=bonus)  # up to LE; beyond it, along the tangent:
        return value.add_(near, alpha=slope).sub_(ONE, alpha=bonus), rest.addcmul_(p, near, value=slope)
    constant = less < reward
    if log_end < 1:  # b is constant from 1 − ε to LE, and jumps there
        straight = p - log_end
        less = less.masked_fill_(straight > 0, -math.log1p(-log_end)).add_(straight.clamp_(min=0.0), alpha=1 / (1 - log_end))
        pull = p.mul_(rest.clamp(max=1 - log_end)).div_(1 - log_end).masked_fill_(constant & (straight == 0), 0.0)
    else:
        pull = p.masked_fill_(constant, 0.0)
    if start > 0:
        off = m < _log_odds(start)
        less, pull = less.add_(math.log1p(-start)).masked_fill_(off, 0.0), pull.masked_fill_(off, 0.0)
    return ce.sub_(less, alpha=bonus), rest.add_(pull, alpha=bonus)


@lru_cache
def _most_reward(log_end: float, eps: float, dtype: torch.dtype) -> float:
    """−log(1 − p) at the largest margin at which b = log(1 − p)."""
    edge = min(_log_odds(log_end), _log_odds(1 - eps), torch.finfo(dtype).max ** 0.5)
    return edge + math.log1p(math.exp(-edge)) if edge > 0 else math.log1p(math.exp(edge))


def gradient_rescaling(
    m: Tensor,
    *,
    beta: float = 8.0,
    lam: float = 0.5,
    transform: str = "exp",
    normalize: str = "mean",
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """−w log p/(2(1 − p) + ε) and w (1 − p)/(2(1 − p) + ε), w = g(β p^λ (1 − p)), divided by its mean for "sum"."""
    x = -m
    ce, rest = softplus(x), torch.sigmoid(x)
    p = torch.sigmoid(m)
    weight = torch.addcmul(ZERO, p.sqrt_() if lam == 0.5 else p.pow_(lam), rest, value=beta)
    scale = 0.5  # the quotients below are by 2(1 − p)
    if normalize == "sum" and transform == "exp":
        few = m.numel() <= FEW and m.dim() == 2  # then the softmax is as fast over rows, and flattening takes as long as it
        weight = torch.softmax(weight, 0) if few else torch.softmax(weight.flatten(), 0).view_as(m)
        scale = m.numel() / 2
    elif normalize == "sum":
        weight = weight.div_(weight.mean().clamp_(min=torch.finfo(m.dtype).tiny / m.numel()))
    elif transform == "exp":
        weight = weight.exp_()
    if eps > 0:
        weight = torch.addcdiv(ZERO, weight, torch.add(rest, ONE, alpha=eps / 2), value=scale)
        return ce.mul_(weight), rest.mul_(weight)
    near, weight = x.clamp_(min=-60.0), times(scale, weight)  # beyond it −log p = 1 − p in float64: the quotient is ½
    return softplus(near).div_(near.sigmoid_()).mul_(weight), weight


def _log_odds(p: float) -> float:
    """The margin of a probability from 0 to 1."""
    return math.log(p) - math.log1p(-p) if 0 < p < 1 else math.copysign(INF, p - 0.5)


EMPHASES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    curve.__name__: curve for curve in (cross_entropy, mae, gce, truncated_gce, focal, symmetric, encouraging, gradient_rescaling)
}
