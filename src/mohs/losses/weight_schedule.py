"""Weights that change with the epoch t = 0, 1, ...: a term of the objective may start late, ramp up, or ramp down.

    gaussian_up(t)   = exp(−5 (1 − t/U)²) for t < U, else 1
    gaussian_down(t) = exp(−12.5 ((t − (T − D))/D)²) for t ≥ T − D, else 1

U, D and T are the epochs of the ramp up, of the ramp down and in total. The ramp down is the paper's scale-free form; the
authors' code has another divisor and agrees with it for D = 50 only. As in that code, a ramped weight is 0 in the first
epoch. Choi, Som & Turaga, "AMC-Loss" (CVPRW 2020), Section 3.2. A schedule is called with the epoch; its repr is the call
that rebuilds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[float], float]


def gaussian_up(epoch: float, *, epochs: float) -> float:
    """From e⁻⁵ at epoch 0 to 1 at `epochs`."""
    return math.exp(-5 * (1 - epoch / epochs) ** 2) if epoch < epochs else 1.0


def gaussian_down(epoch: float, *, epochs: float, total: float) -> float:
    """1 until the last `epochs` of the `total`, then down to e^−12.5."""
    return math.exp(-12.5 * ((epoch - (total - epochs)) / epochs) ** 2) if epoch >= total - epochs else 1.0


@dataclass(frozen=True, kw_only=True)
class constant:  # noqa: N801  (schedules are called like functions)
    """The same weight at every epoch."""

    value: float

    def __call__(self, epoch: float) -> float:
        return self.value


@dataclass(frozen=True, kw_only=True)
class deferred:  # noqa: N801
    """0 before the epoch `start`, `value` from then on."""

    start: float
    value: float

    def __call__(self, epoch: float) -> float:
        return self.value if epoch >= self.start else 0.0


@dataclass(frozen=True, kw_only=True)
class linear:  # noqa: N801
    """Linear from `first` at epoch 0 to `last` at `epochs`, then constant."""

    first: float = 0.0
    last: float
    epochs: float

    def __post_init__(self) -> None:
        check_epochs("epochs", self.epochs)

    def __call__(self, epoch: float) -> float:
        return self.first + (self.last - self.first) * min(epoch / self.epochs, 1.0)


@dataclass(frozen=True, kw_only=True)
class ramp_up:  # noqa: N801
    """`peak` times gaussian_up; 0 in the first epoch."""

    epochs: float
    peak: float = 1.0

    def __post_init__(self) -> None:
        check_epochs("epochs", self.epochs)

    def __call__(self, epoch: float) -> float:
        return self.peak * gaussian_up(epoch, epochs=self.epochs) if epoch > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class ramp_up_down:  # noqa: N801
    """`peak` times gaussian_up over `up` epochs and gaussian_down over the last `down` of `total`; 0 in the first epoch."""

    up: float
    down: float
    total: float
    peak: float = 1.0

    def __post_init__(self) -> None:
        for name in ("up", "down", "total"):
            check_epochs(name, getattr(self, name))
        if self.up + self.down > self.total:
            raise ValueError(f"up={self.up} and down={self.down} epochs do not fit into total={self.total}")

    def __call__(self, epoch: float) -> float:
        down = gaussian_down(epoch, epochs=self.down, total=self.total)
        return self.peak * gaussian_up(epoch, epochs=self.up) * down if epoch > 0 else 0.0


def check_epochs(name: str, value: float) -> None:
    """Validate that a number of epochs is positive."""
    if not value > 0:
        raise ValueError(f"{name} must be over 0 epochs, got {value}")


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": constant,
    "deferred": deferred,
    "linear": linear,
    "ramp_up": ramp_up,
    "ramp_up_down": ramp_up_down,
}
