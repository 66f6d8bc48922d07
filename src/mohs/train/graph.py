"""The training step as one CUDA graph: captured once and replayed for every batch, which saves launch time.

The step of a small network is hundreds of small kernels, and a GPU idles while they are launched one by one. The graph reads
its batch from static tensors, which are filled before each replay; learning rate and regularizer weights are tensors on the
device. A smaller last batch has its own graph. Needs one process, no fp16, and a stream other than the default one for all of
the job's work (`own_stream`). Threads that prefetch data may continue during capture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import RunError
from mohs.train.feed import Draw
from mohs.train.job import Job
from mohs.train.step import step

AHEAD = 4  # prefetched batches that may wait on the host
WARM = 3  # eager steps before the capture, for cuDNN and the optimizer to initialize


def can_graph(job: Job) -> bool:
    """Whether this job's step can be captured."""
    alone = job.accelerator.num_processes == 1 and job.accelerator.scaler is None
    return job.device.type == "cuda" and alone and len(job.feed.examples) >= job.run.batch


def own_stream(job: Job) -> AbstractContextManager[Any]:
    """A CUDA stream for this job's work; nothing on the CPU."""
    if job.device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())  # stream on which the job was built
    return torch.cuda.stream(stream)


class Captured:
    """The captured step for batches of one size; the effects of the warm-up are undone."""

    def __init__(self, job: Job, like: Draw, weights: Sequence[Tensor]) -> None:
        read = None if like.read is None else like.read.to(job.device)
        self.draw = Draw(like.ids.clone(), tuple(numbers.clone() for numbers in like.drawn), read=read)
        self.copied: deque[torch.cuda.Event] = deque()
        self.graph = torch.cuda.CUDAGraph()
        restore = snapshot(job)
        for _ in range(WARM):
            step(job, self.draw, weights)
        try:
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
                step(job, self.draw, weights)
        except RuntimeError as error:
            reason = str(error).split("\n")[0]
            raise RunError(
                f"the step could not be captured as a CUDA graph ({reason}): train with --no-graph (graph=False), which is "
                "slower but needs less memory and allows networks that synchronize with the device"
            ) from error
        restore()

    def replay(self, draw: Draw) -> None:
        self.draw.ids.copy_(draw.ids)
        for place, numbers in zip(self.draw.drawn, draw.drawn, strict=True):
            place.copy_(numbers)
        if self.draw.read is not None:
            self._copy(self.draw.read, draw.read)
        self.graph.replay()

    def _copy(self, place: Tensor, read: Tensor | None) -> None:
        """Copy inputs to their static tensor; at most AHEAD batches wait on the host."""
        assert read is not None
        if len(self.copied) == AHEAD:
            self.copied.popleft().synchronize()
        place.copy_(read, non_blocking=True)
        self.copied.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
        self.copied[-1].record()


class GraphStep:
    """The step of a job by graphs, one per batch size; `fill(weights)` before each epoch."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.weights = [torch.zeros((), device=job.device) for _ in job.training.objective.weights]
        self.captured: dict[int, Captured] = {}

    def __call__(self, draw: Draw, weights: Sequence[float | Tensor]) -> None:
        size = len(draw.ids)
        if size not in self.captured:
            self.captured[size] = Captured(self.job, draw, self.weights)
        self.captured[size].replay(draw)

    def fill(self, weights: Sequence[float]) -> None:
        """Set the regularizers' weights of an epoch."""
        for place, weight in zip(self.weights, weights, strict=True):
            place.fill_(weight)


def snapshot(job: Job) -> Callable[[], None]:
    """A function that restores the job's tensors to their current values; tensors created later are set to 0."""
    kept = {id(tensor): (tensor, tensor.clone()) for tensor in tensors(job)}  # holding the tensor keeps its id unique

    def restore() -> None:
        with torch.no_grad():
            for tensor in tensors(job):
                tensor.copy_(kept[id(tensor)][1]) if id(tensor) in kept else tensor.zero_()

    return restore


def tensors(job: Job) -> list[Tensor]:
    """All tensors that a step changes."""
    found = [*job.training.parameters(), *job.training.buffers(), job.means.sums]
    found += [value for state in job.optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    for part in (job.recorder, job.ema):
        found += [value for value in vars(part).values() if isinstance(value, Tensor)] if part is not None else []
    found += [job.trace.now] if job.trace is not None else []
    return found
