"""The loop: a run from its first epoch, or from its last whole one, to its end.

One process, `torchrun` and `accelerate launch` run the same code: Accelerate distributes it, and every process takes its
part of the same batches (see `feed`). Batch-norm's statistics (averaged over the processes after each epoch), Gradient
Rescaling's normalizer and AMC's pairs are each process's own. All that a run does at random depends on its seed and the
epoch; a run that was killed goes on from its last whole epoch and ends, on a CPU, with the very same weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mohs._core.distributed import ranks
from mohs._core.errors import RunError
from mohs.data.examples import Data
from mohs.train.compiled import Compiled
from mohs.train.directory import RunDirectory
from mohs.train.graph import GraphStep, can_graph, own_stream
from mohs.train.job import Job
from mohs.train.optimizers import set_rate
from mohs.train.predict import count_right
from mohs.train.run import Run
from mohs.train.start import started
from mohs.train.step import check_finite, step
from mohs.train.test_trace import keep_look
from mohs.train.trained import Trained, finish, load_run

Watch = Callable[[dict[str, Any]], None]
UNWATCHED: Watch = lambda event: None
RUNS = Path("runs")


def train(
    run: Run,
    data: Data,
    *,
    runs: Path = RUNS,
    out: Path | None = None,
    device: str = "auto",
    watch: Watch = UNWATCHED,
    graph: bool = True,
    **more: Any,
) -> Trained:
    """Train, or go on training, or return what was trained before; `watch` is told of every step and epoch.

    The folder is `out`, or one under `runs` named by the run's hash; trackers=("tensorboard",) and the like log there.
    graph: on a GPU a step is one CUDA graph where it can be.
    """
    with started(run, data, runs=runs, out=out, device=device, **more) as (job, directory):
        if job is None:
            return load_run(directory.path)
        if isinstance(job.training.outputs, Compiled):
            job.training.outputs.trees = alone(job) and not (graph and can_graph(job))
        with own_stream(job):
            for _ in steps(job, directory, watch, graph=graph):
                pass
        return finish(job, directory)


def alone(job: Job) -> bool:
    """Whether nothing else writes where this job's gradients are: one process, whole batches."""
    return job.accelerator.num_processes == 1 and job.run.accumulate == 1


def steps(
    job: Job, directory: RunDirectory | None, watch: Watch, *, graph: bool = True, save_every: float = 0.0
) -> Iterator[None]:
    """Train to the end, pausing after every step and before waiting for the device; whoever asks for the next may do other
    work in between. save_every: seconds that may pass without a checkpoint though epochs end."""
    take = GraphStep(job) if graph and can_graph(job) else None
    job.training.train()
    while job.epoch < job.run.epochs:
        began, weights = time.perf_counter(), job.training.objective.weights_at(job.epoch)
        torch.manual_seed(job.run.seed * 1_000_003 + job.epoch * 1009 + ranks()[0])  # for dropout
        job.reweigh()
        if take is not None:
            take.fill(weights)
        for i, draw in enumerate(job.feed.epoch(job.epoch)):
            now = job.epoch + i / len(job.feed)
            set_rate(job.optimizer, job.schedule(now, job.run.epochs), job.schedule.beta1(now, job.run.epochs))
            take(draw, weights) if take is not None else step(job, draw, weights)
            watch(job.event(i + 1))
            yield
        right = checked(job)
        yield
        line = end_epoch(job, right)
        line["seconds"] = round(time.perf_counter() - began, 3)
        keep(job, directory, line, save_every)
        watch(line)


def checked(job: Job) -> dict[str, Tensor]:
    """How many of the validation and test sets the network has right, with the weights to be used, where that is due."""
    job.average_buffers()
    if (job.epoch + 1) % job.run.check_every and job.epoch + 1 < job.run.epochs:
        return {}
    with job.averaged():
        network, precision = job.training.network, job.run.precision
        return {name: count_right(network, part, precision=precision) for name, part in job.checked.items()}


def end_epoch(job: Job, right: Mapping[str, Tensor]) -> dict[str, Any]:
    """Close the epoch: what it added up to, how the validation and test sets fare."""
    epoch = job.epoch
    line: dict[str, Any] = {"epoch": epoch, **job.tally.close()}
    check_finite(line.get("total", 0.0), epoch)
    job.training.objective.end_epoch()
    if job.recorder is not None:
        job.recorder.end_epoch()
    if job.trace is not None:
        job.trace.end_epoch(epoch)
    for name, count in right.items():
        line[f"{name}_accuracy"] = round(count.item() / len(job.checked[name]), 6)
    return line


def keep(job: Job, directory: RunDirectory | None, line: dict[str, Any], save_every: float) -> None:
    """File the epoch; should the disk be full, say so: what was there before is untouched."""
    job.history.append(line)
    job.epoch += 1
    if directory is None or not job.accelerator.is_main_process:
        return
    try:
        keep_look(job, directory)
        directory.log(line)
        if not save_every or directory.unsaved_seconds() >= save_every:
            directory.save_checkpoint(job.state())
    except OSError as error:
        raise RunError(
            f"{directory.path}: epoch {line['epoch']} could not be written ({error.strerror or error}); the run is kept as it "
            "was before: make room and run the same command again"
        ) from error
    if job.accelerator.log_with:
        job.accelerator.log({k: v for k, v in line.items() if k != "epoch"}, step=line["epoch"])
