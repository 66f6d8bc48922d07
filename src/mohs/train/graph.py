"""The same step as one CUDA graph: captured once, replayed for every whole batch; what launching costs is paid once.

A small network's step is hundreds of small kernels, and a GPU waits for them to be launched one by one. The graph
reads its batch from fixed places, which are filled before each replay; the rate of learning and the regularisers' weights
are tensors on the device. A last, smaller batch takes the plain step. Needs one process, data on the device, no fp16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mohs.train.feed import Draw
from mohs.train.job import Job
from mohs.train.step import step

WARM = 3  # steps before the capture, as cuDNN and the optimiser set themselves up


def can_graph(job: Job) -> bool:
    """Whether this job's step can be a graph."""
    alone = job.accelerator.num_processes == 1 and job.accelerator.scaler is None
    return job.device.type == "cuda" and job.feed.resident and alone and len(job.feed.examples) >= job.run.batch


class GraphStep:
    """`take(draw, weights)` for a job; what the warm-up changed is put back before the first."""

    def __init__(self, job: Job) -> None:
        self.job = job
        first = next(iter(job.feed.epoch(0)))
        self.draw = Draw(first.ids.clone(), tuple(numbers.clone() for numbers in first.drawn))
        self.weights = [torch.zeros((), device=job.device) for _ in job.training.objective.weights]
        self.graph = torch.cuda.CUDAGraph()
        restore = snapshot(job)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                step(job, self.draw, self.weights)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph, stream=side):
            step(job, self.draw, self.weights)
        restore()

    def __call__(self, draw: Draw, weights: Sequence[float | Tensor]) -> None:
        if len(draw.ids) != len(self.draw.ids):
            return step(self.job, draw, weights)
        self.draw.ids.copy_(draw.ids)
        for place, numbers in zip(self.draw.drawn, draw.drawn, strict=True):
            place.copy_(numbers)
        self.graph.replay()
        return None

    def fill(self, weights: Sequence[float]) -> None:
        """The regularisers' weights of the epoch that begins."""
        for place, weight in zip(self.weights, weights, strict=True):
            place.fill_(weight)


def snapshot(job: Job) -> Callable[[], None]:
    """A call that puts all of the job's tensors back to what they are now; those that do not exist yet, to 0."""
    kept = {id(tensor): tensor.clone() for tensor in tensors(job)}

    def restore() -> None:
        with torch.no_grad():
            for tensor in tensors(job):
                old = kept.get(id(tensor))
                tensor.zero_() if old is None else tensor.copy_(old)

    return restore


def tensors(job: Job) -> list[Tensor]:
    """Everything that a step changes."""
    found = [*job.training.parameters(), *job.training.buffers(), job.tally.sums]
    found += [value for state in job.optimiser.state.values() for value in state.values() if isinstance(value, Tensor)]
    for part in (job.recorder, job.ema):
        found += [value for value in vars(part).values() if isinstance(value, Tensor)] if part is not None else []
    found += [job.trace.now] if job.trace is not None else []
    return found
