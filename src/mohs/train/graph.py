"""The same step as one CUDA graph: captured once, replayed for every whole batch; what launching costs is paid once.

A small network's step is hundreds of small kernels, and a GPU waits for them to be launched one by one. The graph
reads its batch from fixed places, which are filled before each replay; the rate of learning and the regularizers' weights
are tensors on the device. A last, smaller batch has a graph of its own. Needs one process, no fp16, and a stream that is not
the default one for all that the job does (`own_stream`). While a graph is captured, threads that read data ahead may go on.
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

AHEAD = 4  # batches that were read and may wait on the host
WARM = 3  # steps before the capture, as cuDNN and the optimizer set themselves up


def can_graph(job: Job) -> bool:
    """Whether this job's step can be a graph."""
    alone = job.accelerator.num_processes == 1 and job.accelerator.scaler is None
    return job.device.type == "cuda" and alone and len(job.feed.examples) >= job.run.batch


def own_stream(job: Job) -> AbstractContextManager[Any]:
    """A stream for this job's work, where its device has streams."""
    if job.device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())  # on which the job was built
    return torch.cuda.stream(stream)


class Captured:
    """The step on batches of one size; what the warm-up changed is put back."""

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
                f"the step could not be made a CUDA graph ({reason}): train with --no-graph (graph=False), which is slower but "
                "takes less memory, and networks that wait for the device"
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
        """The inputs that were read, to their place; at most AHEAD batches wait for it on the host."""
        assert read is not None
        if len(self.copied) == AHEAD:
            self.copied.popleft().synchronize()
        place.copy_(read, non_blocking=True)
        self.copied.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
        self.copied[-1].record()


class GraphStep:
    """`take(draw)` for a job, after `fill(weights)` for each epoch; a graph is captured for every size of batch that comes."""

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
        """The regularizers' weights of the epoch that begins."""
        for place, weight in zip(self.weights, weights, strict=True):
            place.fill_(weight)


def snapshot(job: Job) -> Callable[[], None]:
    """A call that puts all of the job's tensors back to what they are now; those that do not exist yet, to 0."""
    kept = {id(tensor): (tensor, tensor.clone()) for tensor in tensors(job)}  # holding the tensor, its id stays its own

    def restore() -> None:
        with torch.no_grad():
            for tensor in tensors(job):
                tensor.copy_(kept[id(tensor)][1]) if id(tensor) in kept else tensor.zero_()

    return restore


def tensors(job: Job) -> list[Tensor]:
    """Everything that a step changes."""
    found = [*job.training.parameters(), *job.training.buffers(), job.tally.sums]
    found += [value for state in job.optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    for part in (job.recorder, job.ema):
        found += [value for value in vars(part).values() if isinstance(value, Tensor)] if part is not None else []
    found += [job.trace.now] if job.trace is not None else []
    return found
