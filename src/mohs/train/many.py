"""Many small models at once: several runs side by side on one GPU, each a CUDA graph on its own stream.

A small network leaves most of a GPU idle; several that take turns fill it. Each run has its own data order, weights and
random numbers, so it ends as it would alone: bit for bit with deterministic cuDNN algorithms, otherwise up to GPU
non-determinism; networks with dropout share a random stream for their masks and agree in distribution only. Shared data are
copied to the device once. An interrupted run resumes after its last complete epoch, or with very short epochs from a
checkpoint of the last ten seconds. On a CPU the runs are trained one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from mohs._core.device import choose_device
from mohs._core.watch import UNWATCHED, Watch
from mohs.data.examples import Data
from mohs.train.directory import RunDirectory
from mohs.train.job import Job
from mohs.train.loop import RUNS, steps, train
from mohs.train.run import Run
from mohs.train.run_data import opened
from mohs.train.start import started
from mohs.train.trained import Trained, finish, load_run

TOGETHER = 8  # runs that share a GPU at a time
SAVE_EVERY = 10.0  # seconds between checkpoints, if epochs are shorter


def train_many(
    runs: Sequence[Run],
    data: Data | Callable[[Run], Data] | None = None,
    *,
    folder: str | Path = RUNS,
    device: str = "auto",
    together: int = TOGETHER,
    watch: Watch = UNWATCHED,
) -> list[Trained]:
    """Train several runs, side by side on a GPU; runs that are already complete are loaded.

    Args:
        runs: The runs.
        data: Data of all runs, or a function that returns the data of a run; None: the data that each run names.
        folder: Folder that holds the folders of runs.
        device: "auto", "cpu", "cuda", or one GPU such as "cuda:1".
        together: Maximum number of runs that share the GPU at a time.
        watch: Called with a dictionary after every step and epoch; "run" is the index of the run within its group.

    Returns:
        The trained runs, in the order given.

    Example:
        >>> seeds = mohs.train_many([mohs.Run(data="digits", seed=s) for s in range(5)])  # doctest: +SKIP
    """
    find: Callable[[Run], Data] = opened if data is None else data if callable(data) else (lambda run: data)
    if choose_device(device).type != "cuda":
        return [train(run, find(run), runs=folder, device=device, watch=watch) for run in runs]
    done: list[Trained] = []
    for start in range(0, len(runs), together):
        done += _at_once(runs[start : start + together], find, folder, device, watch)
    return done


def _at_once(runs: Sequence[Run], find: Callable[[Run], Data], folder: str | Path, device: str, watch: Watch) -> list[Trained]:
    with ExitStack() as stack:
        jobs = [stack.enter_context(started(run, find(run), runs=folder, out=None, device=device)) for run in runs]
        streams = [torch.cuda.Stream() for _ in jobs]  # type: ignore[no-untyped-call]
        running = {
            i: _on(streams[i], steps(job, directory, _named(watch, i), save_every=SAVE_EVERY))
            for i, (job, directory) in enumerate(jobs)
            if job is not None
        }
        try:
            while running:
                for i, pause in list(running.items()):
                    if next(pause, StopIteration) is StopIteration:
                        del running[i]
        finally:
            for pause in running.values():
                pause.close()
            torch.cuda.synchronize()  # if one run fails, wait for the last steps of the others before their memory is freed
        return [_ended(job, directory) for job, directory in jobs]


def _on(stream: torch.cuda.Stream, pauses: Iterator[None]) -> Generator[None]:
    """The same iterator, with the work between its items on this stream."""
    stream.wait_stream(torch.cuda.current_stream())
    while True:
        with torch.cuda.stream(stream):
            if next(pauses, StopIteration) is StopIteration:
                return
        yield


def _named(watch: Watch, i: int) -> Watch:
    return lambda event: watch({**event, "run": i})


def _ended(job: Job | None, directory: RunDirectory) -> Trained:
    return load_run(directory.path).check() if job is None else finish(job, directory)
