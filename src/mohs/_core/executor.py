"""Where independent pieces of work run: in this process, shared among the processes of torchrun, or on a Ray cluster.

A piece of work is a function of one item that returns its result or, if that is large, leaves it in a file on a path that all
machines share, and returns a summary. It must give the same result wherever and however often it runs, and check first whether
the file exists: then an interrupted job resumes, and losing a machine costs only its unfinished pieces.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from mohs._core.device import choose_device
from mohs._core.distributed import gathered, ranks
from mohs._core.errors import FolderInUse

AHEAD = 4  # maximum number of submitted pieces per processor or GPU of the Ray cluster; further ones wait
PATIENCE = 120.0  # seconds to wait for a folder that is still locked by a process of a lost machine
Item = TypeVar("Item")
Result = TypeVar("Result")
Load = Callable[[], Callable[[Item], Result]]


class Executor(Protocol):
    """Runs a function on items and yields the results, in the order of the items."""

    def has_gpu(self, device: str) -> bool:
        """Whether work on this device ("auto", "cpu", "cuda") will find a GPU."""
        ...

    def map(self, work: Callable[[Item], Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        """The results, in the order of the items; gpu: whether each piece needs a GPU."""
        ...

    def map_loaded(self, load: Load[Item, Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        """The same for work that is expensive to prepare: `load` creates it, once per process."""
        ...


class Local:
    """In this process, one item after another."""

    def has_gpu(self, device: str) -> bool:
        return choose_device(device).type == "cuda"

    def map(self, work: Callable[[Item], Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        return map(work, items)

    def map_loaded(self, load: Load[Item, Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        return self.map(load(), items, gpu=gpu)


class Torchrun(Local):
    """In the processes that torchrun started, or in this one alone: rank r of W takes items r, r + W, r + 2W, ..."""

    def map(self, work: Callable[[Item], Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        rank, number = ranks()
        if number == 1:
            yield from super().map(work, items)
            return
        everyone: list[list[Any]] = gathered([work(item) for item in items[rank::number]])
        for i in range(len(items)):
            yield everyone[i % number][i // number]


class RayTasks:
    """On the Ray cluster that this process is connected to: a task for each item, run again if its machine is lost.

    Work that must be loaded runs in actors of Ray Data, one for each GPU or processor. Tasks and actors run in the folder of
    this process, so relative paths mean the same there.
    """

    def has_gpu(self, device: str) -> bool:
        return device != "cpu" and self._resources().get("GPU", 0) > 0

    def map(self, work: Callable[[Item], Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        import ray

        task: Any = ray.remote(_run).options(num_cpus=1, num_gpus=1 if gpu else 0, max_retries=-1)
        held, here = ray.put(work), os.getcwd()  # the work is sent once, not with every item
        most = AHEAD * max(1, int(self._resources().get("GPU" if gpu else "CPU", 1)))
        running: deque[Any] = deque()
        left = iter(items)
        while True:
            running.extend(task.remote(held, item, here) for item in islice(left, most - len(running)))
            if not running:
                return
            try:
                result = ray.get(running.popleft())
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from None
            yield result

    def map_loaded(self, load: Load[Item, Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        import ray.data

        if not items:
            return
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        most = min(len(items), max(1, int(self._resources().get("GPU" if gpu else "CPU", 1))))
        numbers = ray.data.from_items([{"number": i} for i in range(len(items))], override_num_blocks=len(items))
        done = numbers.map_batches(
            _Actor,
            fn_constructor_args=(load, list(items), os.getcwd()),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(min_size=1, initial_size=most, max_size=most, max_tasks_in_flight_per_actor=2),
            num_cpus=0 if gpu else 1,
            num_gpus=1 if gpu else 0,
        )
        early: dict[int, Result] = {}  # results that arrived before those of earlier items
        at = 0
        for row in done.iter_rows():
            outcome: _Outcome = row["outcome"]
            if outcome.error is not None:
                raise outcome.error
            early[outcome.number] = outcome.result
            while at in early:
                yield early.pop(at)
                at += 1

    def _resources(self) -> dict[str, float]:
        import ray

        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return found


@dataclass(frozen=True)
class _Outcome:
    """The outcome of an item: its result, or the error."""

    number: int
    result: Any
    error: Exception | None = None


class _Actor:
    """Work that is loaded once and then given items by number; an error is a result, so that it arrives as it was raised."""

    def __init__(self, load: Load[Item, Result], items: Sequence[Item], folder: str) -> None:
        os.chdir(folder)
        self.load, self.items = load, items
        self.work: Callable[[Any], Any] | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[_Outcome]]:
        (number,) = map(int, batch["number"])
        try:
            self.work = self.work or self.load()
            outcome = _Outcome(number, _run(self.work, self.items[number], os.getcwd()))
        except Exception as error:
            outcome = _Outcome(number, None, error)
        return {"outcome": [outcome]}


def _run(work: Callable[[Item], Result], item: Item, folder: str) -> Result:
    """Work on the item in this folder, as a task."""
    os.chdir(folder)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return work(item)
        except FolderInUse:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


@contextmanager
def executor_on(where: str, *, local: Executor | None = None) -> Iterator[Executor]:
    """The executor that `--on` names.

    Args:
        where: "local"; "ray", a cluster that is started on this machine; or "ray:ADDRESS", one that is running.
        local: What "local" means; default: this process.
    """
    name, _, address = where.partition(":")
    if name not in ("local", "ray") or (name == "local" and address):
        raise ValueError(f"on must be local, ray or ray:ADDRESS, got {where!r}")
    if name == "local":
        yield Local() if local is None else local
        return
    try:
        import ray
    except ImportError:
        raise ValueError("on ray needs Ray: pip install 'mohs[ray]'") from None
    connected = ray.is_initialized()
    if not connected:
        kept = {name: value for name, value in os.environ.items() if name.startswith("MOHS_")}
        how = {"address": address, "runtime_env": {"env_vars": kept}} if address else {"include_dashboard": False}
        ray.init(log_to_driver=False, **how)
    try:
        yield RayTasks()
    finally:
        if not connected:
            ray.shutdown()
