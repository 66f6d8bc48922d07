"""The training loop: `train` runs a job from its first epoch, or from its last complete one, to the end.

One process, `torchrun` and `accelerate launch` run the same code: Accelerate distributes it, and every process takes its
part of the same batches (see `feed`). Batch-norm statistics (averaged over processes after each epoch), Gradient
Rescaling's normalizer and AMC's pairs are each process's own. All randomness depends on the seed and the epoch: a run that
was interrupted resumes after its last complete epoch and ends, on a CPU, with the same weights. A thread writes the checkpoint of
an epoch while the next one trains; if the process is killed meanwhile, the previous checkpoint remains.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mohs._core.distributed import ranks
from mohs._core.errors import RunError
from mohs._core.validation import check_type
from mohs._core.watch import UNWATCHED, Watch, counting
from mohs.data.examples import Data
from mohs.data.open_data import open_data
from mohs.evaluate.outputs import count_correct
from mohs.train.checkpoint import host_copy
from mohs.train.compiled import Compiled
from mohs.train.directory import RunDirectory
from mohs.train.graph import GraphStep, can_graph, own_stream
from mohs.train.job import Job
from mohs.train.optimizers import set_rate
from mohs.train.run import OPEN, Run, run_from
from mohs.train.run_data import opened, opening
from mohs.train.start import started
from mohs.train.step import check_finite, refine, step
from mohs.train.trace import save_test_trace, trace_examples
from mohs.train.trained import Trained, finish, load_run

RUNS = Path("runs")


def train(
    run: Run | Any,
    data: Any = None,
    *,
    out: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str = "auto",
    graph: bool = True,
    trackers: Sequence[str] = (),
    watch: Watch = UNWATCHED,
    start: Mapping[str, Tensor] | None = None,
    soft: Tensor | None = None,
    **settings: Any,
) -> Trained:
    """Train a classifier, resume an interrupted training, or load a finished one.

    Args:
        run: A `Run`; or the data to train on, with the fields of a `Run` as keyword arguments.
        data: Anything that `mohs.open_data` takes, if `run` is a `Run`; None: the data that the run names.
        out: Folder of the run; default: a folder under `runs`, named by the hash of run and data. Calling `train` again
            with the same arguments resumes in it.
        runs: Folder that holds the folders of runs.
        device: "auto", "cpu", "cuda", or one GPU such as "cuda:1".
        graph: Capture each step as a CUDA graph, where possible.
        trackers: Experiment trackers that log the run, as ("tensorboard",).
        watch: Called with a dictionary after every step and every epoch, and while examples are embedded.
        start: Initial weights, instead of those drawn from the seed.
        soft: Soft labels (N, K) to train on instead of the training set's labels.
        **settings: Fields of `Run`, which replace the run's own, and options of `open_data` that `Run.open` takes: label, text,
            group, image_size, split, root, without, votes, corrected, memory_limit.

    Returns:
        The trained network with its history and the dynamics of each training example.

    Example:
        >>> trained = mohs.train("digits", model="mlp", loss="gce:q=0.7", epochs=3)  # doctest: +SKIP
        >>> trained = mohs.train(mohs.Run(loss="gce:q=0.7"), my_data, out="runs/gce")  # doctest: +SKIP
    """
    run, data = run_and_data(run, data, settings)
    options: dict[str, Any] = {"device": device, "trackers": tuple(trackers), "start": start, "soft": soft}
    with started(run, data, runs=runs, out=out, progress=counting(watch, "embedding"), **options) as (job, directory):
        if job is None:
            return load_run(directory.path).check()
        if isinstance(job.training.outputs, Compiled):
            job.training.outputs.trees = alone(job) and not (graph and can_graph(job))
        with own_stream(job):
            for _ in steps(job, directory, watch, graph=graph):
                pass
        return finish(job, directory)


def run_and_data(run: Any, data: Any, settings: Mapping[str, Any]) -> tuple[Run, Data]:
    """The run and its opened data, from the arguments of `train`."""
    settings, how = _without_opening(settings)
    if isinstance(run, Run):
        own = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)} | settings
        run = run_from({**own, "open": {**own["open"], **how}}) if settings or how else run
        data = opened(run) if data is None else data
        return run, data if isinstance(data, Data) else open_data(data, **opening(run.open))
    if data is not None:
        raise ValueError(f"with data as the second argument the first must be a Run, got {type(run).__name__}")
    settings |= {"open": {**settings.get("open", {}), **how}} if how else {}
    if isinstance(run, str | os.PathLike):
        run = run_from({"data": os.fspath(run), **settings}, where="train")
        return run, opened(run)
    data = open_data(run, **opening(settings.get("open", {})))
    return run_from({"data": data.name, **settings}, where="train"), data


def _without_opening(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a `Run` and the options of opening the data, of the keyword arguments of `train`."""
    how: dict[str, Any] = {}
    for name in opening(settings):
        value = os.fspath(settings[name]) if isinstance(settings[name], os.PathLike) else settings[name]
        check_type(name, value, OPEN[name])
        if name in (settings.get("open") or {}):
            raise ValueError(f"{name} is given twice, as an argument and in open: leave one out")
        how |= {} if value is None else {name: value}
    return {name: value for name, value in settings.items() if name not in opening(settings)}, how


def alone(job: Job) -> bool:
    """Whether only this job writes its gradients: one process, whole batches."""
    return job.accelerator.num_processes == 1 and job.run.accumulate == 1


def steps(
    job: Job, directory: RunDirectory | None, watch: Watch, *, graph: bool = True, save_every: float = 0.0
) -> Iterator[None]:
    """Train to the end, yielding after every step and before synchronizing with the device, so that jobs can take turns.

    save_every: Minimum number of seconds between checkpoints; 0: after every epoch.
    """
    graph_step = GraphStep(job) if graph and can_graph(job) else None
    job.training.train()
    with Saving(job, directory, save_every) as saving:
        while job.epoch < job.run.epochs:
            began, weights = time.perf_counter(), job.training.objective.weights_at(job.epoch)
            torch.manual_seed(job.run.seed * 1_000_003 + job.epoch * 1009 + ranks()[0])  # for dropout
            job.reweigh()
            if job.begin_phase() and graph_step is not None:
                graph_step = GraphStep(job)
            if graph_step is not None:
                graph_step.fill(weights)
            for i, draw in enumerate(job.feed.epoch(job.epoch)):
                now = job.epoch + i / len(job.feed)
                set_rate(job.optimizer, job.schedule(now, job.run.epochs), job.schedule.beta1(now, job.run.epochs))
                graph_step(draw, weights) if graph_step is not None else step(job, draw, weights)
                watch(job.event(i + 1))
                yield
            job.average_buffers()
            refine(job)
            correct = evaluate(job)
            yield
            line = end_epoch(job, correct)
            line["seconds"] = round(time.perf_counter() - began, 3)
            saving.epoch(line)
            watch(line)
        saving.wait()


def evaluate(job: Job) -> dict[str, Tensor]:
    """The number of correct predictions on the validation and test sets, every `check_every` epochs and after the last."""
    if (job.epoch + 1) % job.run.check_every and job.epoch + 1 < job.run.epochs:
        return {}
    with job.averaged():
        network, precision = job.training.network, job.run.precision
        return {name: count_correct(network, part, precision=precision) for name, part in job.checked.items()}


def end_epoch(job: Job, correct: Mapping[str, Tensor]) -> dict[str, Any]:
    """Close the epoch: the line of its means, and of the accuracies on the validation and test sets."""
    epoch = job.epoch
    line: dict[str, Any] = {"epoch": epoch, **job.means.close()}
    check_finite(line.get("total", 0.0), epoch)
    job.training.objective.end_epoch()
    if job.recorder is not None:
        job.recorder.end_epoch()
    if job.trace is not None:
        job.trace.end_epoch(epoch)
    for name, count in correct.items():
        line[f"{name}_accuracy"] = count.item() / len(job.checked[name])
    return line


class Saving:
    """Writes the line of each epoch, and checkpoints in a thread, one at a time; at the end of the block the last is written.

    If that fails (a full disk), existing files are untouched, and the next epoch or `wait` raises the error.
    """

    def __init__(self, job: Job, directory: RunDirectory | None, save_every: float) -> None:
        self.job, self.directory, self.save_every = job, directory, save_every
        self.thread = ThreadPoolExecutor(1, "checkpoint")
        self.written: tuple[int, Future[None]] | None = None  # the epoch whose checkpoint is being written

    def __enter__(self) -> Saving:
        return self

    def __exit__(self, *error: object) -> None:
        self.thread.shutdown()

    def epoch(self, line: dict[str, Any]) -> None:
        """Close an epoch with its line."""
        job, directory = self.job, self.directory
        job.history.append(line)
        job.epoch += 1
        if directory is None or not job.accelerator.is_main_process:
            return
        self.wait()
        with _writing(directory, line["epoch"]):
            if job.run.trace_test and job.data.test is not None:
                with job.averaged():
                    traced = trace_examples(job.training.network, job.data.test, precision=job.run.precision)
                save_test_trace(traced, directory.path, job.epoch)
            directory.log(line)
        if not self.save_every or directory.unsaved_seconds() >= self.save_every:
            self.written = line["epoch"], self.thread.submit(directory.save_checkpoint, host_copy(job.state()))
        if job.accelerator.log_with:
            job.accelerator.log({k: v for k, v in line.items() if k != "epoch"}, step=line["epoch"])

    def wait(self) -> None:
        """Wait until the last checkpoint is written; raise what writing it raised."""
        if self.written is not None:
            (epoch, written), self.written = self.written, None
            assert self.directory is not None
            with _writing(self.directory, epoch):
                written.result()


@contextmanager
def _writing(directory: RunDirectory, epoch: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{directory.path}: epoch {epoch} could not be written ({error.strerror or error}); the previous checkpoint "
            "is intact: free some space and run the same command again to resume"
        ) from error
