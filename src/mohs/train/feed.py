"""The feed: which examples make up each batch of each epoch, and their inputs, augmented, on the device.

The order of an epoch and the random numbers of its augmentation depend on the seed and the epoch alone: a resumed run
takes the same batches, and W processes take the same global batch as one, every process each W-th example of it. A last
batch smaller than the others is used as it is, unless it is so small that a process would see hardly anything of it.
Data that fit live on the device; others are read a batch ahead by a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mohs.data.examples import Examples
from mohs.train.device_cache import fits, on_device

NUMBERS = 1 << 22  # random numbers that may wait for their batch
TAIL = 8  # examples: a last batch of fewer is left out, on one process as on several


class Augment(Protocol):
    """Random numbers for n inputs, and what is done with them."""

    def draw(self, n: int, generator: torch.Generator, shape: tuple[int, ...]) -> tuple[Tensor, ...]: ...
    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Draw:
    """This process's part of a batch: ids (b,), the augmentation's random numbers, and its share of the whole.

    share: its examples times the processes over the batch's, so that the mean of the processes' losses is the batch's mean.
    """

    ids: Tensor
    drawn: tuple[Tensor, ...] = ()
    share: float = 1.0
    read: Tensor | None = None


class Feed:
    """Batches of these examples; `rank` and `ranks` say which of how many processes this is."""

    def __init__(
        self, examples: Examples, *, batch: int, seed: int, device: torch.device, augment: Augment | None = None, **processes: int
    ) -> None:
        self.rank, self.ranks = processes.get("rank", 0), processes.get("ranks", 1)
        self.examples, self.batch, self.seed, self.device, self.augment = examples, batch, seed, device, augment
        self.resident = isinstance(examples.inputs, Tensor) and fits(examples.inputs, device)
        self.inputs: Any = on_device(examples.inputs, device) if self.resident else examples.inputs  # type: ignore[arg-type]
        self.labels = examples.labels.to(device)

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return len(self._cuts())

    def epoch(self, epoch: int) -> Iterator[Draw]:
        """The batches of this epoch (the first is 0)."""
        order = torch.randperm(len(self.examples), generator=seeded(self.seed, epoch)).to(self.device)
        draws = self._draws(order, seeded(self.seed + 1, epoch, device=self.device))
        return draws if self.resident else self._ahead(draws)

    def load(self, draw: Draw) -> Tensor:
        """The inputs of a batch (b, ...), augmented, on the device."""
        x = self.inputs[draw.ids] if self.resident else self._read(draw.ids) if draw.read is None else draw.read
        x = x.to(self.device, non_blocking=True)
        return x if self.augment is None else self.augment.apply(x, *draw.drawn)

    def _cuts(self) -> list[tuple[int, int]]:
        total = len(self.examples)
        cuts = [(start, min(start + self.batch, total)) for start in range(0, total, self.batch)]
        least = max(min(TAIL, self.batch // 2), 2 * self.ranks if self.ranks > TAIL // 2 else 0)
        short = len(cuts) > 1 and cuts[-1][1] - cuts[-1][0] < least
        return cuts[:-1] if short else cuts

    def _draws(self, order: Tensor, generator: torch.Generator) -> Iterator[Draw]:
        """The batches, with random numbers drawn for as many of them at once as leaves these few."""
        cuts, one = self._cuts(), self._numbers(1, seeded(0, 0, device=self.device))
        together = max(1, NUMBERS // max(1, self.batch * sum(numbers.numel() for numbers in one)))
        for first in range(0, len(cuts), together):
            group = cuts[first : first + together]
            begin, total = group[0][0], group[-1][1] - group[0][0]
            drawn = self._numbers(total, generator)
            for start, end in group:
                yield self._part(order[start:end], tuple(numbers[start - begin : end - begin] for numbers in drawn))

    def _numbers(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The augmentation's random numbers for n examples."""
        return () if self.augment is None else self.augment.draw(n, generator, self.examples.shape)

    def _part(self, ids: Tensor, drawn: tuple[Tensor, ...]) -> Draw:
        """This process's part of a batch."""
        if self.ranks == 1:
            return Draw(ids, drawn)
        mine = slice(self.rank, None, self.ranks)
        part = ids[mine]
        if not len(part):  # a tiny data set: this process must take part, with nothing to say
            return Draw(ids[:1], tuple(numbers[:1] for numbers in drawn), 0.0)
        return Draw(part, tuple(numbers[mine] for numbers in drawn), len(part) * self.ranks / len(ids))

    def _read(self, ids: Tensor) -> Tensor:
        x: Tensor = self.inputs[ids.cpu()]
        return x.pin_memory() if self.device.type == "cuda" else x

    def _ahead(self, draws: Iterator[Draw]) -> Iterator[Draw]:
        """The same draws with their inputs read, the next ones while the last are being used."""
        with ThreadPoolExecutor(1) as reader:
            waiting = None
            for draw in draws:
                following = (draw, reader.submit(self._read, draw.ids))
                if waiting is not None:
                    yield Draw(waiting[0].ids, waiting[0].drawn, waiting[0].share, waiting[1].result())
                waiting = following
            if waiting is not None:
                yield Draw(waiting[0].ids, waiting[0].drawn, waiting[0].share, waiting[1].result())


def seeded(seed: int, epoch: int, *, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for one epoch, the same wherever the run was resumed."""
    return torch.Generator(device).manual_seed((seed * 1_000_003 + epoch) % 2**63)
