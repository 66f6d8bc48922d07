"""What an examination asks for and what it gives, whatever kind of data it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mohs._core.validation import check_between

Array = np.ndarray[Any, Any]
Tell = Callable[[str], None]
Watch = Callable[[dict[str, Any]], None]
STEPS = ("data", "first look", "emphasis", "training", "scores", "verdict", "report")


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What the user left open or asked for; loss "auto" is chosen by the noise that is found.

    run: a finished run whose network is to judge, in place of training one.
    """

    model: str | Mapping[str, Any] = "auto"
    loss: str = "auto"
    epochs: int | None = None
    batch: int | None = None
    folds: int = 5
    seed: int = 0
    device: str = "auto"
    run: str | Path | None = None
    tell: Tell = field(default=lambda text: None, compare=False, repr=False)
    watch: Watch = field(default=lambda event: None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 1), ("folds", 2)):
            if getattr(self, name) is not None:
                check_between(name, getattr(self, name), least)

    def step(self, name: str, text: str) -> None:
        """Tell that this step begins, and what there is to say of it."""
        self.tell(f"{STEPS.index(name) + 1}/{len(STEPS)} {name}: {text}")
