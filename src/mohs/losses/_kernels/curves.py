"""Every curve ℓ(m) in Triton, with its slope dℓ/dm: the same formulas as the PyTorch curves of the loss files, by hand.

A curve is chosen by its number at compile time; its up to four parameters are ordinary numbers, so that a schedule does not
compile anew. `tests/losses/test_kernels.py` compares each with the PyTorch curve and its derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import triton
import triton.language as tl

from mohs.losses._numerics.emphases import known_curve


class Curve(NamedTuple):
    """Number and parameters of a curve of this file."""

    number: int
    parameters: tuple[float, ...]


def _encouraging(log_end: float = 0.75, start: float = 0.0, bonus: float = 1.0, eps: float = 1e-5) -> tuple[float, ...]:
    return log_end, start, bonus, math.log(eps) if eps > 0 else -math.inf


def _truncated(q: float = 0.7, threshold: float = 0.5) -> tuple[float, ...]:
    return q, math.log(threshold) - math.log1p(-threshold)


def _symmetric(alpha: float = 0.1, beta: float = 1.0, floor: float = 1e-4) -> tuple[float, ...]:
    return alpha, -beta * math.log(floor)


def _rescaling(beta: float = 8.0, lam: float = 0.5, transform: str = "exp", eps: float = 1e-6) -> tuple[float, ...]:
    return beta, lam, 0.0 if transform == "exp" else -1.0, eps


PARAMETERS: dict[str, Callable[..., tuple[float, ...]]] = {  # by the name of the PyTorch curve, in the order of the numbers
    "cross_entropy": lambda: (),
    "mae": lambda: (),
    "gce": lambda q=0.7: (q,),
    "truncated_gce": _truncated,
    "focal": lambda gamma=2.0: (gamma,),
    "symmetric": _symmetric,
    "encouraging": _encouraging,
    "gradient_rescaling": _rescaling,
}
NUMBERS = {name: number for number, name in enumerate(PARAMETERS)}
SELF_PACED = len(NUMBERS)  # λ is a scalar on the device


def curve_of(function: Callable[..., Any]) -> Curve | None:
    """The Triton curve of a PyTorch curve, which is a function or a `partial` with its keywords; None if there is none."""
    name, given = known_curve(function)
    return _curve(name, *given.items()) if name in NUMBERS else None


@lru_cache(256)
def _curve(name: str, *given: tuple[str, Any]) -> Curve:
    parameters = PARAMETERS[name](**dict(given))
    return Curve(NUMBERS[name], (*parameters, *[0.0] * (4 - len(parameters))))


@triton.jit
def exact_exp(x):
    """exp(x) to float32 rounding for any x: the hardware's exp2 with the product's rounding error put back."""
    high = x * 1.4426950408889634
    low = tl.fma(x, 1.4426950408889634, -high) + x * 1.925963033500e-08
    return tl.where(high < -160.0, 0.0, tl.exp2(high) * (1.0 + 0.6931471805599453 * low))


@triton.jit
def power(x, a):
    """x^a for normal numbers 0 < x ≤ 1 and a ≥ 0: exponent and mantissa are treated separately, so that no large logarithm is
    rounded.
    """
    bits = x.to(tl.int32, bitcast=True)
    exponent = ((bits >> 23) - 127).to(tl.float32)
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    whole = tl.floor(a * exponent + 0.5)
    return tl.exp2(tl.fma(a, exponent, -whole) + a * tl.log2(mantissa)) * tl.exp2(whole)


@triton.jit
def log1p(u):
    """log(1 + u) for u ≥ 0, exact for small u."""
    w = 1.0 + u
    return tl.where(w == 1.0, u, tl.log(w) * (u / tl.where(w == 1.0, 1.0, w - 1.0)))


@triton.jit
def expm1(x):
    """exp(x) − 1 for x ≤ 0, exact for small x."""
    w = exact_exp(x)
    inside = (w != 1.0) & (w > 1e-3)
    return tl.where(w == 1.0, x, tl.where(inside, (w - 1.0) * (x / tl.log(tl.where(inside, w, 2.0))), w - 1.0))


@triton.jit
def parts(m):
    """softplus(−m), softplus(m), p = σ(m) and 1 − p; NaN for NaN."""
    u = exact_exp(-tl.abs(m))
    near = log1p(u)
    less, more = 1.0 / (1.0 + u), u / (1.0 + u)
    p = tl.where(m >= 0, less, more)
    return tl.where(m >= 0, near, near - m), tl.where(m >= 0, near + m, near), p, tl.where(m >= 0, more, less)


@triton.jit
def two_sum(x, y):
    """x + y, and its rounding error."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


@triton.jit
def long_exp(x, y):
    """exp(x + y) of a sum that is not positive, as the sum of two float32, to about 1e-8; 0 below exp(−86).

    x + y = k log 2 + r with |r| ≤ ½ log 2, and exp r by its series.
    """
    total, rest = two_sum(x, y)
    gone = total <= -86.0
    total, rest = tl.where(gone, 0.0, total), tl.where(gone, 0.0, rest)
    k = tl.floor(total * 1.4426950408889634 + 0.5)
    r = total - k * 0.693145751953125  # log 2 in two parts, of which the first has few digits
    rest -= k * 1.4286067653302e-06
    series = 0.16666667 + r * (0.041666668 + r * (0.008333334 + r * (0.0013888889 + r * 1.984127e-04)))
    curved = r * r * (0.5 + r * series)
    more = r + curved
    high = 1.0 + more
    low = (more - (high - 1.0)) + (curved - (more - r)) + rest * high
    scale = tl.where(gone, 0.0, ((k.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True))
    return high * scale, low * scale


@triton.jit
def long_log(x):
    """log(x) of normal numbers as the sum of two float32, to about 1e-9; for others, log(x) and 0.

    x = 2^k f with f between √½ and √2, and log f = 2 artanh s of s = (f − 1)/(f + 1).
    """
    usual = (x >= 1.1754943508222875e-38) & (x < float("inf"))
    bits = tl.where(usual, x, 1.0).to(tl.int32, bitcast=True)
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    high = mantissa > 1.4142135
    f = tl.where(high, 0.5 * mantissa, mantissa)
    k = ((bits >> 23) - 127).to(tl.float32) + tl.where(high, 1.0, 0.0)
    below, rest = two_sum(f, 1.0)
    s = (f - 1.0) / below
    s_rest = (tl.fma(-s, below, f - 1.0) - s * rest) / below
    square = s * s
    series = 2.0 * s * square * (0.33333334 + square * (0.2 + square * (0.14285715 + square * 0.11111111)))
    whole, error = two_sum(k * 0.693145751953125, 2.0 * s)  # log 2 in two parts, of which the first has few digits
    error += 2.0 * s_rest + series + k * 1.4286067653302e-06
    return tl.where(usual, whole, tl.log(x)), tl.where(usual, error, 0.0)


@triton.jit
def long_margin(own, base, total, long_total):
    """The margin as the sum of two float32, to be subtracted from a number nearby without cancellation; total in float32 and in
    float64.
    """
    log_total, log_rest = long_log(total)
    log_rest += ((long_total - total) / long_total).to(tl.float32)
    apart, first = two_sum(own, -base)
    m, second = two_sum(apart, -log_total)
    rest = first + second - log_rest
    rest = tl.where(tl.abs(rest) < 1.0, rest, 0.0)  # only for finite numbers
    m = tl.where(own == float("inf"), float("nan"), m)
    m, rest = two_sum(m, rest)
    return m, tl.where(tl.abs(rest) < 1.0, rest, 0.0)


@triton.jit
def curve(m, a, b, c, d, CURVE: tl.constexpr, LONG: tl.constexpr = False):
    """ℓ(m) and dℓ/dm.

    LONG: for self-paced learning, take λ − ce before m is rounded to float32; not if λ is itself the loss of an example.
    """
    ce, rest, p, n = parts(m)
    if CURVE == 0:  # cross_entropy
        value, slope = ce, -n
    elif CURVE == 1:  # mae
        value, slope = 2.0 * n, -2.0 * p * n
    elif CURVE == 2:  # gce; a: q
        value, slope = gce(ce, n, a)
    elif CURVE == 3:  # truncated_gce; a: q, b: the margin of the threshold
        high = tl.where(m < b, b, m)
        cut_ce, _, _, cut_n = parts(high)
        value, slope = gce(cut_ce, cut_n, a)
        slope = tl.where(m < b, 0.0, slope)
    elif CURVE == 4:  # focal; a: γ
        weight = tl.where(n > 1e-37, power(tl.where(n > 1e-37, n, 1.0), a), exact_exp(-a * rest))
        weight = tl.where(a == 0.0, tl.where(m == m, 1.0, m), weight)
        value, slope = weight * ce, -weight * (a * p * ce + n)
    elif CURVE == 5:  # symmetric; a: α, b: βA
        value, slope = a * ce + b * n, -n * (a + b * p)
    elif CURVE == 6:  # encouraging; a: log_end, b: start, c: bonus, d: log ε
        bonus, push = tl.where(-rest < d, d, -rest), tl.where(-rest < d, 0.0, -p)
        straight = (a < 1.0) & (p > a)
        width = tl.where(a < 1.0, 1.0 - a, 1.0)
        bonus = tl.where(straight, tl.log(width) - (p - a) / width, bonus)
        push = tl.where(straight, -p * n / width, push)
        off = (b > 0.0) & (p < b)
        bonus = tl.where(off, 0.0, tl.where(b > 0.0, bonus - tl.log(1.0 - b), bonus))
        push = tl.where(off, 0.0, push)
        value, slope = ce + c * bonus, -n + c * push
    elif CURVE == 8:  # self-paced; a: λ, b: 0 for hard, 1 for linear weights 1 − ce/λ, c: for LONG, what m lacks
        floor = tl.where(a < 1.1754943508222875e-38, 1.1754943508222875e-38, a)
        below = floor - ce
        if LONG:
            below = tl.where(m >= 0, below, (floor + m) - rest) + n * c
        linear = tl.where(a == float("inf"), 1.0 - 0.0 * ce, below / floor)
        v = tl.where(b == 0.0, tl.where(ce < a, 1.0, 0.0), linear)
        v = tl.where(v < 0.0, 0.0, v)
        value, slope = v * ce, -v * n
    else:  # gradient_rescaling; a: β, b: λ, c: as in `rescaling_weight`, d: ε
        weight = rescaling_weight(ce, n, a, b, c)
        half, push = half_gradient(m, ce, n, d)
        value, slope = weight * half, weight * push
    return value, slope


@triton.jit
def rescaling_weight(ce, n, beta, lam, base):
    """exp(x − base) of x = β p^λ (1 − p); x itself for a negative base."""
    x = beta * tl.where(lam == 0.0, 1.0, exact_exp(-lam * ce)) * n
    return tl.where(base < 0.0, x, tl.exp(x - base))


@triton.jit
def gce(ce, n, q):
    """(1 − p^q)/q and its slope −p^q (1 − p); cross-entropy for q = 0."""
    value = tl.where(q == 0.0, ce, -expm1(-q * ce) / tl.where(q == 0.0, 1.0, q))
    return value, tl.where(q == 0.0, -n, -exact_exp(-q * ce) * n)


@triton.jit
def half_gradient(m, ce, n, eps):
    """softplus(−m)/(2(1 − p) + ε), the denominator held constant, and its slope: −½ until 1 − p nears ε."""
    near, _, _, far = parts(tl.where(m > 60.0, 60.0, m))
    value = tl.where(eps > 0.0, ce / (2.0 * n + eps), near / (2.0 * far))
    return value, tl.where(eps > 0.0, -n / (2.0 * n + eps), tl.where(m == m, -0.5, m))
