"""What an examination asks for and what it gives, whatever kind of data it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from mohs.hardness.noise_rate import NoiseEstimate

Array = np.ndarray[Any, Any]
Tell = Callable[[str], None]
Watch = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user left open or asked for; loss "auto" is chosen by the noise that is found."""

    model: str | Mapping[str, Any] = "auto"
    loss: str = "auto"
    epochs: int | None = None
    batch: int = 128
    folds: int = 5
    seed: int = 0
    device: str = "auto"
    tell: Tell = field(default=lambda text: None, compare=False, repr=False)
    watch: Watch = field(default=lambda event: None, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class Examined:
    """The table with its verdict, the noise that was found, the loss that was chosen and why, and the course of training."""

    table: pa.Table
    estimate: NoiseEstimate
    chosen: str
    reason: str
    history: Sequence[Mapping[str, Any]] = ()
    dynamics: Mapping[str, Array] | None = None
    held_out: tuple[Array, Array] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
