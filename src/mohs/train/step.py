"""One step: a batch forward and backward, the update of the weights, and the record of what each example did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext

from torch import Tensor

from mohs._core.errors import Diverged
from mohs.models.network import head_weight
from mohs.train.feed import Draw
from mohs.train.job import Job


def step(job: Job, draw: Draw, weights: Sequence[float | Tensor]) -> None:
    """Train on this batch, in `run.accumulate` parts; weights: the regularizers', at this epoch.

    Every part's loss counts by its share of the whole batch, so that neither parts nor processes change the mean.
    """
    labels, x = job.feed.labels[draw.ids], job.feed.load(draw)
    parts = list(zip(*(tensor.chunk(job.run.accumulate) for tensor in (draw.ids, x, labels)), strict=True))
    for i, (ids, inputs, given) in enumerate(parts):
        last = i == len(parts) - 1
        with nullcontext() if last else job.accelerator.no_sync(job.wrapped):
            total, logits, features = job.wrapped(inputs, given, weights, None if job.soft is None else job.soft[ids])
            if total.is_cpu:  # elsewhere asking would wait for the device: the end of the epoch will tell
                check_finite(total.item(), job.epoch)
            share = draw.share * len(ids) / len(draw.ids)
            job.backward(total if share == 1 else share * total)
        if draw.share > 0:
            note(job, ids, logits.detach(), given, features.detach())
    if job.run.clip is not None:
        job.accelerator.clip_grad_norm_(job.wrapped.parameters(), job.run.clip)
    job.optimizer.step()
    job.optimizer.zero_grad(set_to_none=True)
    if job.ema is not None:
        job.ema.update(job.training.network)


def check_finite(loss: float, epoch: int) -> None:
    """Stop a run whose loss is NaN or infinite."""
    if not math.isfinite(loss):
        raise Diverged(
            f"the loss became {loss} in epoch {epoch}; the run is kept as it was when that epoch began: "
            "lower the learning rate or clip gradients, as a run of its own"
        )


def note(job: Job, ids: Tensor, logits: Tensor, labels: Tensor, features: Tensor) -> None:
    """What the examples did, as the network saw them in training."""
    job.tally.add(job.training.objective.parts, logits, labels)
    if job.recorder is not None:
        job.recorder.update(ids, logits, labels, features)
    if job.trace is not None:
        job.trace.add(ids, logits, labels, features, head_weight(job.training.network).detach())
