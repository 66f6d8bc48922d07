"""Many small models at once: several runs of one kind, side by side on one GPU, each a CUDA graph on a stream of its own.

A small network leaves most of a GPU idle; several that take turns fill it. Each has its own data order, weights and
random numbers, so a run ends as it would have ended alone: to the bit where cuDNN's algorithms are deterministic, else
within what one run differs from its own repetition; nets with dropout draw their masks from one stream of numbers and
agree in distribution only. Data that runs share are put on the device once. A run that is killed goes on from its last
whole epoch, or where epochs take moments from one of the last ten seconds. On a CPU the runs go one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from mohs.data.examples import Data
from mohs.train.directory import RunDirectory
from mohs.train.job import Job
from mohs.train.loop import UNWATCHED, Watch, steps, train
from mohs.train.run import Run
from mohs.train.start import started
from mohs.train.trained import Trained, finish, load_run

TOGETHER = 8  # runs that share a GPU before the next ones begin
SAVE_EVERY = 10.0  # seconds without a checkpoint, where epochs are shorter than that


def train_many(
    runs: Sequence[Run],
    data: Data | Callable[[Run], Data],
    *,
    folder: Path = Path("runs"),
    device: str = "auto",
    together: int = TOGETHER,
    watch: Watch = UNWATCHED,
) -> list[Trained]:
    """Every run trained, in the order given; those that were done before are only read. data: of all runs, or of each."""
    find = data if callable(data) else (lambda run: data)
    if device == "cpu" or not torch.cuda.is_available():
        return [train(run, find(run), runs=folder, device=device, watch=watch) for run in runs]
    done: list[Trained] = []
    for start in range(0, len(runs), together):
        done += _at_once(runs[start : start + together], find, folder, device, watch)
    return done


def _at_once(runs: Sequence[Run], find: Callable[[Run], Data], folder: Path, device: str, watch: Watch) -> list[Trained]:
    with ExitStack() as held:
        opened = [held.enter_context(started(run, find(run), runs=folder, out=None, device=device)) for run in runs]
        streams = [torch.cuda.Stream() for _ in opened]  # type: ignore[no-untyped-call]
        going = {
            i: _on(streams[i], steps(job, directory, _named(watch, i), save_every=SAVE_EVERY))
            for i, (job, directory) in enumerate(opened)
            if job is not None
        }
        try:
            while going:
                for i, pause in list(going.items()):
                    if next(pause, StopIteration) is StopIteration:
                        del going[i]
        finally:
            torch.cuda.synchronize()  # whoever fails, the others' last steps end before their memory is given away
        return [_ended(job, directory) for job, directory in opened]


def _on(stream: torch.cuda.Stream, pauses: Iterator[None]) -> Iterator[None]:
    """The same pauses, with the work between them on this stream."""
    stream.wait_stream(torch.cuda.current_stream())
    while True:
        with torch.cuda.stream(stream):
            if next(pauses, StopIteration) is StopIteration:
                return
        yield


def _named(watch: Watch, i: int) -> Watch:
    return lambda event: watch({**event, "run": i})


def _ended(job: Job | None, directory: RunDirectory) -> Trained:
    return load_run(directory.path) if job is None else finish(job, directory)
