"""A setting that a row does not fix but chooses: by accuracy on held-out training examples, with the first seed.

    choose = {key = "head.scale", values = [5, 10, 20]}

With the first seed the row is trained with every value; the one whose network does best on the validation set at the end (the
first of equals) is the row's with all seeds. Test labels choose nothing. A value with which training diverged is not chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohs._core.errors import RunError
from mohs.studies.inherit import merged
from mohs.train.directory import RunDirectory
from mohs.train.run import Run, run_from

BY = "val_accuracy"


class NoChoice(RunError):  # noqa: N818  (what is missing)
    """Training diverged with every value."""


@dataclass(frozen=True)
class Choice:
    """A field of the run, as recipes name it, and the numbers to choose from."""

    key: str
    values: Sequence[float]

    def __post_init__(self) -> None:
        numbers = isinstance(self.values, list | tuple) and all(type(value) in (int, float) for value in self.values)
        if not isinstance(self.key, str) or not numbers or len(self.values) < 2:
            raise ValueError(f'choose needs key, as "head.scale", and at least two numbers as values; got {self!r}')

    def settled(self, run: Run, value: float) -> Run:
        """The run with this value."""
        return run_from(merged(run.plain(), {self.key: value}), where=f"choose {self.key} = {value}")

    def value_of(self, run: Mapping[str, Any]) -> float:
        """The value that a run, as its folder describes it, was trained with."""
        name, _, part = self.key.partition(".")
        return float(run[name][part] if part else run[name])

    def best(self, folders: Sequence[Path | None]) -> float:
        """The value whose run, in the folders' order, does best on the validation set; None: a run that diverged."""
        found = [-1.0 if folder is None else float(RunDirectory(folder).metrics()[-1][BY]) for folder in folders]
        if max(found) < 0:
            raise NoChoice(f"training diverged with every {self.key} of {', '.join(map(str, self.values))}")
        return self.values[found.index(max(found))]
