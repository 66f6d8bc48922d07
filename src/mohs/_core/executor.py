"""Where independent pieces of work run: in this process, shared among the processes of torchrun, or on a Ray cluster.

A piece of work is a function of one item that leaves its result in a file on a path that all machines share, and returns a
summary. It must give the same result wherever and however often it runs, and look first whether the result is there: then a job
that was interrupted resumes, and a machine that is lost costs its unfinished pieces only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar

from mohs._core.device import choose_device
from mohs._core.distributed import gathered, ranks

AHEAD = 4  # pieces submitted to Ray per processor or GPU of the cluster, beyond which new ones wait
Item, Result = TypeVar("Item"), TypeVar("Result")


class Executor(Protocol):
    """Runs a function on items and yields the results, in the order of the items."""

    def has_gpu(self, device: str) -> bool:
        """Whether work on this device ("auto", "cpu", "cuda") will find a GPU."""
        ...

    def map(self, work: Callable[[Item], Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        """The results, in the order of the items; gpu: whether each piece needs a GPU."""
        ...


class Local:
    """In this process, one item after another; rank r of W processes takes items r, r + W, r + 2W, ..."""

    def has_gpu(self, device: str) -> bool:
        return choose_device(device).type == "cuda"

    def map(self, work: Callable[[Item], Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        rank, number = ranks()
        if number == 1:
            yield from map(work, items)
            return
        everyone: list[list[Any]] = gathered([work(item) for item in items[rank::number]])
        for i in range(len(items)):
            yield everyone[i % number][i // number]


class RayTasks:
    """On the Ray cluster that this process is connected to: a task for each item, run again if its machine is lost."""

    def has_gpu(self, device: str) -> bool:
        import ray

        return device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0

    def map(self, work: Callable[[Item], Result], items: Sequence[Item], *, gpu: bool = False) -> Iterator[Result]:
        import ray

        resources = ray.cluster_resources()
        task = ray.remote(_run).options(num_cpus=1, num_gpus=1 if gpu else 0, max_retries=-1)
        held = ray.put(work)  # once, not with every item
        most = AHEAD * max(1, int(resources.get("GPU" if gpu else "CPU", 1)))
        running: deque[Any] = deque()
        left = iter(items)
        while True:
            running.extend(task.remote(held, item) for item in islice(left, most - len(running)))
            if not running:
                return
            try:
                result = ray.get(running.popleft())
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from None
            yield result


def _run(work: Callable[[Item], Result], item: Item) -> Result:
    return work(item)


@contextmanager
def executor_on(where: str) -> Iterator[Executor]:
    """The executor that `--on` names: "local", "ray" for a cluster on this machine, or "ray:ADDRESS" for one that is running."""
    name, _, address = where.partition(":")
    if name == "local" and not address:
        yield Local()
        return
    if name != "ray":
        raise ValueError(f"--on must be local, ray or ray:ADDRESS, got {where!r}")
    try:
        import ray
    except ImportError:
        raise ValueError("--on ray needs Ray: pip install 'mohs[ray]'") from None
    connected = ray.is_initialized()
    if not connected:
        ray.init(address=address or None, log_to_driver=False, include_dashboard=None if address else False)
    try:
        yield RayTasks()
    finally:
        if not connected:
            ray.shutdown()
