"""The cost of a run: parameters, memory and time, measured in a few trial steps on the real data."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from mohs.evaluate.outputs import accuracy
from mohs.train.job import Job
from mohs.train.step import step

TRIALS = 3


@dataclass(frozen=True)
class Estimate:
    """Number of parameters and of steps, seconds, bytes of the data, and peak bytes of training."""

    parameters: int
    steps: int
    seconds: float
    data_bytes: int
    training_bytes: int


def estimate(job: Job) -> Estimate:
    """Measure a job that was built for this purpose: its weights change."""
    run, network = job.run, job.training.network
    draws = [draw for draw, _ in zip(job.feed.epoch(0), range(TRIALS + 1), strict=False)]
    weights = job.training.objective.weights_at(0)
    kept: dict[int, int] = {}

    def count(saved: Tensor) -> Tensor:
        kept[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes()
        return saved

    with saved_tensors_hooks(count, lambda saved: saved):
        step(job, draws[0], weights)
    began = time.perf_counter()
    for draw in draws[1:] or draws:
        step(job, draw, weights)
    _wait(job.device)
    step_seconds = (time.perf_counter() - began) / max(len(draws) - 1, 1)
    began = time.perf_counter()
    checks = [examples for examples in (job.data.val, job.data.test) if examples is not None]
    for examples in checks:
        accuracy(network, examples.take(torch.arange(min(len(examples), 1024))), precision=run.precision)
    _wait(job.device)
    checking = (time.perf_counter() - began) * sum(max(1, len(examples) / 1024) for examples in checks) / max(len(checks), 1)
    parameters = sum(p.numel() for p in network.parameters())
    states = sum(v.numel() * v.element_size() for s in job.optimizer.state.values() for v in s.values() if isinstance(v, Tensor))
    inputs = job.feed.examples.inputs
    return Estimate(
        parameters=parameters,
        steps=run.epochs * len(job.feed),
        seconds=run.epochs * (len(job.feed) * step_seconds + checking),
        data_bytes=inputs.numel() * inputs.element_size() if isinstance(inputs, Tensor) else 0,
        training_bytes=2 * 4 * parameters + states + sum(kept.values()),
    )


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
