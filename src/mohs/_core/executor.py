"""Where independent pieces of work run: in this process, or shared among the processes that torchrun started.

A piece of work is a function of one item that leaves its result in a file and returns a summary. It must give the same result
wherever and however often it runs, and look first whether the result is there: then an interrupted job resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from mohs._core.distributed import gathered, ranks

Item, Result = TypeVar("Item"), TypeVar("Result")


class Executor(Protocol):
    """Runs a function on items and yields the results, in the order of the items."""

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]: ...


class Local:
    """In this process, one item after another; rank r of W processes takes items r, r + W, r + 2W, ..."""

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        rank, number = ranks()
        if number == 1:
            yield from map(work, items)
            return
        everyone: list[list[Any]] = gathered([work(item) for item in items[rank::number]])
        for i in range(len(items)):
            yield everyone[i % number][i // number]
