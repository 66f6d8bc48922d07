"""Learning-rate schedules: the factor of the peak learning rate at a time of the run, and Adam's β₁ if it changes too.

    step           factor^(number of times `at` that have passed)
    cosine         ½ (1 + cos πt), t from 0 at the end of the warm-up to 1 at the end
    one_cycle      linearly up over the first fifth, then linearly down to 0
    gaussian_ramp  up(t) · down(t);   β₁ = .9 down(t) + .5 (1 − down(t))          up, down: `mohs.losses.weight_schedule`

Each is called with the time in epochs (3.5: half-way through the fourth) and the number of epochs of the run. Times below 1 are
shares of the run, times of at least 1 are epochs; with shares a schedule keeps its shape when a run is shortened.

Choi, Som & Turaga, "AMC-Loss" (CVPRW 2020), Section 3.2, for the ramp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from mohs._core.validation import check_between
from mohs.losses.weight_schedule import gaussian_down, gaussian_up


class LRSchedule(Protocol):
    """The factor at a time of a run, and β₁: None to keep the optimizer's own."""

    formula: ClassVar[str]
    purpose: ClassVar[str]

    def __call__(self, epoch: float, epochs: float) -> float: ...
    def beta1(self, epoch: float, epochs: float) -> float | None: ...


def in_epochs(time: float, epochs: float) -> float:
    """A time in epochs; below 1 it is a share of the run."""
    return time * epochs if time < 1 else time


def warmed(epoch: float, warmup: float) -> float:
    """Linear from 0 to 1 over the warm-up, which may be empty."""
    return min(1.0, epoch / warmup) if warmup > 0 else 1.0


def fixed_beta1(schedule: object, epoch: float, epochs: float) -> float | None:
    """β₁ of a schedule that does not change it."""
    return None


@dataclass(frozen=True, kw_only=True)
class constant:  # noqa: N801  (schedules are called like functions)
    """The peak throughout, after an optional warm-up."""

    formula: ClassVar[str] = "1"
    purpose: ClassVar[str] = "short trials, and optimizers that need no decay"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        check_between("warmup", self.warmup, 0)

    def __call__(self, epoch: float, epochs: float) -> float:
        return warmed(epoch, in_epochs(self.warmup, epochs))

    beta1 = fixed_beta1


@dataclass(frozen=True, kw_only=True)
class step:  # noqa: N801
    """Multiplied by `factor` at each of the times `at`."""

    formula: ClassVar[str] = "factor^(times passed)"
    purpose: ClassVar[str] = "the usual choice on CIFAR and ImageNet"
    at: Sequence[float] = (0.5, 0.75)
    factor: float = 0.1
    warmup: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple(self.at) if isinstance(self.at, list | tuple) else (self.at,))
        for time in self.at:
            check_between("at", time, 0, ends="(]")
        if len({time < 1 for time in self.at}) > 1:
            raise ValueError(f"at must hold only shares of the run (below 1) or only epochs (1 or more), got {list(self.at)}")
        check_between("factor", self.factor, 0)
        check_between("warmup", self.warmup, 0)

    def __call__(self, epoch: float, epochs: float) -> float:
        passed = sum(epoch >= in_epochs(time, epochs) for time in self.at)
        return self.factor**passed * warmed(epoch, in_epochs(self.warmup, epochs))

    beta1 = fixed_beta1


@dataclass(frozen=True, kw_only=True)
class cosine:  # noqa: N801
    """Half a cosine from the peak to `last`, after an optional warm-up."""

    formula: ClassVar[str] = "½ (1 + cos πt)"
    purpose: ClassVar[str] = "the default: nothing to tune but the length of the run"
    warmup: float = 0.0
    last: float = 0.0

    def __post_init__(self) -> None:
        check_between("warmup", self.warmup, 0)
        check_between("last", self.last, 0, 1)

    def __call__(self, epoch: float, epochs: float) -> float:
        warmup = in_epochs(self.warmup, epochs)
        if epoch < warmup:
            return epoch / warmup
        t = min(1.0, (epoch - warmup) / max(epochs - warmup, 1e-9))
        return self.last + (1 - self.last) * (1 + math.cos(math.pi * t)) / 2

    beta1 = fixed_beta1


@dataclass(frozen=True, kw_only=True)
class one_cycle:  # noqa: N801
    """Linearly up until `rise`, then linearly down to 0."""

    formula: ClassVar[str] = "t/rise, then (1 − t)/(1 − rise)"
    purpose: ClassVar[str] = "the best accuracy in few epochs, with a high peak"
    rise: float = 0.2

    def __post_init__(self) -> None:
        check_between("rise", self.rise, 0)

    def __call__(self, epoch: float, epochs: float) -> float:
        rise = in_epochs(self.rise, epochs)
        return epoch / rise if epoch < rise else max(0.0, (epochs - epoch) / max(epochs - rise, 1e-9))

    beta1 = fixed_beta1


@dataclass(frozen=True, kw_only=True)
class gaussian_ramp:  # noqa: N801
    """The AMC paper's: a Gaussian rise over `up`, a Gaussian fall over the last `down`; meant for Adam, whose β₁ it lowers."""

    formula: ClassVar[str] = "exp(−5(1 − t/up)²) · exp(−12.5((t − T + down)/down)²)"
    purpose: ClassVar[str] = "AMC's recipe, with adam:lr=0.003"
    up: float = 80 / 300
    down: float = 50 / 300

    def __post_init__(self) -> None:
        check_between("up", self.up, 0, ends="(]")
        check_between("down", self.down, 0, ends="(]")

    def fall(self, epoch: float, epochs: float) -> float:
        return gaussian_down(epoch, epochs=max(in_epochs(self.down, epochs), 1e-9), total=epochs)  # a run may have 0 epochs

    def __call__(self, epoch: float, epochs: float) -> float:
        return gaussian_up(epoch, epochs=in_epochs(self.up, epochs)) * self.fall(epoch, epochs)

    def beta1(self, epoch: float, epochs: float) -> float | None:
        down = self.fall(epoch, epochs)
        return 0.9 * down + 0.5 * (1 - down)


LR_SCHEDULES: dict[str, type[LRSchedule]] = {
    "constant": constant,
    "step": step,
    "cosine": cosine,
    "one_cycle": one_cycle,
    "gaussian_ramp": gaussian_ramp,
}
