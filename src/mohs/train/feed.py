"""The feed: the examples of each batch of each epoch, and their augmented inputs on the device.

The order of an epoch and the random numbers of its augmentation depend on the seed and the epoch alone: a resumed run
takes the same batches, and W processes take the same global batch as one: rank r takes examples r, r + W, r + 2W, ...
The last, smaller batch is used, unless it is too small to be shared by the processes. Data that fit are kept on the device;
others are read one batch ahead by a thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs.data.examples import Examples
from mohs.train.augment import Sequential
from mohs.train.device_cache import fits, on_device
from mohs.train.warp import as_floats

NUMBERS = 1 << 22  # maximum number of random numbers drawn at once
TAIL = 8  # a last batch with fewer examples is dropped, with any number of processes


@dataclass(frozen=True, eq=False)
class Draw:
    """This process's part of a batch.

    Attributes:
        ids: Rows (b,) of the training set.
        drawn: Random numbers of the augmentation, of each network in turn if networks have their own views.
        share: Weight of this process's mean loss: its examples · processes / batch size, so that the mean over processes
            is the mean over the batch.
        read: Inputs that were read ahead, if data are not kept on the device.
    """

    ids: Tensor
    drawn: tuple[Tensor, ...] = ()
    share: float = 1.0
    read: Tensor | None = None


class Feed:
    """Batches of these examples, for process `rank` of `ranks`; networks: the number of networks with their own views."""

    def __init__(
        self,
        examples: Examples,
        *,
        batch: int,
        seed: int,
        device: torch.device,
        augment: Sequential | None = None,
        second: Sequential | None = None,
        networks: int = 1,
        **processes: int,
    ) -> None:
        self.rank, self.ranks = processes.get("rank", 0), processes.get("ranks", 1)
        self.examples, self.batch, self.seed, self.device = examples, batch, seed, device
        self.augment, self.second, self.networks = augment, second, networks
        self.resident = isinstance(examples.inputs, Tensor) and fits(examples.inputs, device)
        self.inputs: Any = on_device(examples.inputs, device) if self.resident else examples.inputs  # type: ignore[arg-type]
        self.labels = examples.labels.to(device)

    def __len__(self) -> int:
        """Number of batches per epoch."""
        return len(self._cuts())

    def epoch(self, epoch: int) -> Iterator[Draw]:
        """The batches of this epoch (the first is 0)."""
        order = torch.randperm(len(self.examples), generator=seeded(self.seed, epoch)).to(self.device)
        draws = self._draws(order, seeded(self.seed + 1, epoch, device=self.device))
        return draws if self.resident else self._ahead(draws)

    def endless(self) -> Iterator[Draw]:
        """The batches of one epoch after another."""
        return itertools.chain.from_iterable(map(self.epoch, itertools.count()))

    def load(self, draw: Draw) -> Tensor:
        """The inputs of a batch (b, ...), augmented, on the device; (b, networks, ...) if networks have their own views."""
        x = self._inputs(draw)
        return self._each([x if self.augment is None else self.augment.apply(x, *drawn) for drawn in self._drawn(draw)])

    def second_view(self, draw: Draw) -> Tensor | None:
        """The inputs of a batch under the second augmentation, shaped as by `load`, floating point; None without one."""
        if self.second is None:
            return None
        x, first = self._inputs(draw), 0 if self.augment is None else self.augment.draws
        return as_floats(self._each([self.second.apply(x, *drawn[first:]) for drawn in self._drawn(draw)]))

    def _inputs(self, draw: Draw) -> Tensor:
        """The inputs of a batch without augmentation, on the device."""
        x = self.inputs[draw.ids] if self.resident else self._read(draw.ids) if draw.read is None else draw.read
        return x.to(self.device, non_blocking=True)

    @property
    def mixes(self) -> bool:
        """Whether the augmentation mixes inputs, and with them their labels."""
        return self.augment is not None and self.augment.mixes

    def mix_targets(self, targets: Tensor, draw: Draw) -> Tensor:
        """Soft labels of a batch (b, ..., K), mixed as `load` mixes its inputs; (b, networks, K) if networks have their own
        views.
        """
        if self.augment is None:
            return targets
        own = targets.unbind(1) if self.networks > 1 else [targets]
        return self._each([self.augment.mix_targets(one, *drawn) for one, drawn in zip(own, self._drawn(draw), strict=True)])

    def _drawn(self, draw: Draw) -> list[tuple[Tensor, ...]]:
        """The random numbers of each network that has its own views."""
        count = len(draw.drawn) // self.networks
        return [draw.drawn[i * count : (i + 1) * count] for i in range(self.networks)]

    def _each(self, made: list[Tensor]) -> Tensor:
        """Stack one tensor per network."""
        return made[0] if self.networks == 1 else torch.stack(made, 1)

    def _cuts(self) -> list[tuple[int, int]]:
        total = len(self.examples)
        cuts = [(start, min(start + self.batch, total)) for start in range(0, total, self.batch)]
        least = max(min(TAIL, self.batch // 2), 2 * self.ranks if self.ranks > TAIL // 2 else 0)
        short = len(cuts) > 1 and cuts[-1][1] - cuts[-1][0] < least
        return cuts[:-1] if short else cuts

    def _draws(self, order: Tensor, generator: torch.Generator) -> Iterator[Draw]:
        """The batches, with random numbers drawn for many batches at once."""
        cuts, one = self._cuts(), self._numbers(1, seeded(0, 0, device=self.device))
        together = max(1, NUMBERS // max(1, self.batch * sum(numbers.numel() for numbers in one)))
        for first in range(0, len(cuts), together):
            group = cuts[first : first + together]
            begin, total = group[0][0], group[-1][1] - group[0][0]
            drawn = self._numbers(total, generator)
            for start, end in group:
                yield self._part(order[start:end], tuple(numbers[start - begin : end - begin] for numbers in drawn))

    def _numbers(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The random numbers of both augmentations for n examples, for each network."""
        given = [augment for augment in (self.augment, self.second) if augment is not None] * self.networks
        return tuple(numbers for augment in given for numbers in augment.draw(n, generator, self.examples.shape))

    def _part(self, ids: Tensor, drawn: tuple[Tensor, ...]) -> Draw:
        """This process's part of a batch."""
        if self.ranks == 1:
            return Draw(ids, drawn)
        mine = slice(self.rank, None, self.ranks)
        part = ids[mine]
        if not len(part):  # a tiny data set: this process takes part with weight 0
            return Draw(ids[:1], tuple(numbers[:1] for numbers in drawn), 0.0)
        return Draw(part, tuple(numbers[mine] for numbers in drawn), len(part) * self.ranks / len(ids))

    def _read(self, ids: Tensor) -> Tensor:
        x: Tensor = self.inputs[ids.cpu()]
        return x.pin_memory() if self.device.type == "cuda" else x

    def _ahead(self, draws: Iterator[Draw]) -> Iterator[Draw]:
        """The same draws with their inputs, read one batch ahead."""
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
    """The generator of one epoch, the same in a resumed run."""
    return torch.Generator(device).manual_seed((seed * 1_000_003 + epoch) % 2**63)
