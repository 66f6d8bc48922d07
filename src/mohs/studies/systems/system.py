"""A system: settings of a training that `mohs.train` does not cover, and a function that trains several of them at once.

A recipe names it with `[study] system = "graphs"`; its rows then hold the fields of that dataclass instead of those of a `Run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mohs._core.validation import check_fields
from mohs.losses import create_loss

Numbers = dict[str, float]  # numbers that a run reports: "epochs", "classes" (optional) and its metrics


@dataclass(frozen=True, kw_only=True)
class System:
    """Settings of one run; `loss` is a spec such as "encouraging:log_end=0.5"."""

    loss: str | Mapping[str, Any] = "cross_entropy"
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(type(self), {f.name: getattr(self, f.name) for f in dataclasses.fields(self)})
        self.create_loss()

    def create_loss(self) -> Any:
        """The loss, validated."""
        given = {"name": self.loss} if isinstance(self.loss, str) else dict(self.loss)
        if "name" not in given:
            raise ValueError(f"loss needs a name, got {self.loss!r}")
        return create_loss(given.pop("name"), **given)

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return dataclasses.asdict(self)

    @property
    def kind(self) -> Hashable:
        """Runs of the same kind are trained together: here those that differ in their seeds alone."""
        return repr(dataclasses.replace(self, seed=0))

    @classmethod
    def train(cls, runs: Sequence[Self], *, device: str) -> list[Numbers]:
        """Train runs of the same kind, side by side where that is faster, and return the numbers of each."""
        raise NotImplementedError
