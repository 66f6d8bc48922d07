"""One training step: forward and backward, the update of the weights, and the record of each example.

Heads with a margin reduce the label's logit in training. The record of an example (margins, accuracy, trace) uses the logits
without the margin, with which the network predicts: otherwise every example would look mislabeled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mohs._core.distributed import ranks
from mohs._core.errors import Diverged
from mohs.models.network import head_weight
from mohs.models.twins import without_margin
from mohs.train.feed import Draw
from mohs.train.job import Job


def step(job: Job, draw: Draw, weights: Sequence[float | Tensor]) -> None:
    """Train on a batch, in `run.accumulate` parts; weights: those of the regularizers at this epoch.

    Each part's loss is weighted by its share of the batch, so that neither parts nor processes change the mean.
    """
    labels, x = job.feed.labels[draw.ids], job.feed.load(draw)
    more = {"soft": targets(job, draw), "second": job.feed.second_view(draw)}
    chosen = {name: tensor for name, tensor in more.items() if tensor is not None}
    whole = (draw.ids, x, labels, *chosen.values())
    parts = list(zip(*(tensor.chunk(job.run.accumulate) for tensor in whole), strict=True))
    for i, (ids, inputs, given, *extra) in enumerate(parts):
        last = i == len(parts) - 1
        with nullcontext() if last else job.accelerator.no_sync(job.wrapped):
            total, logits, features = job.wrapped(inputs, given, weights, ids, **dict(zip(chosen, extra, strict=True)))
            if total.is_cpu:  # on a GPU this would synchronize: it is checked at the end of the epoch
                check_finite(total.item(), job.epoch)
            share = draw.share * len(ids) / len(draw.ids)
            job.backward(total if share == 1 else share * total)
        if draw.share > 0:
            record(job, ids, logits.detach(), given, features.detach())
    if job.run.clip is not None:
        job.accelerator.clip_grad_norm_(job.wrapped.parameters(), job.run.clip)
    job.optimizer.step()
    job.optimizer.zero_grad(set_to_none=True)
    if job.ema is not None:
        job.ema.update(job.training.network)


def targets(job: Job, draw: Draw) -> Tensor | None:
    """The soft labels of a batch, mixed as its inputs are; None if it trains on its labels."""
    soft = None if job.soft is None else job.soft[draw.ids]
    if not job.feed.mixes:
        return soft
    if soft is None:
        soft = one_hot(job.feed.labels[draw.ids], len(job.data.classes)).float()
    return job.feed.mix_targets(soft, draw)


def check_finite(loss: float, epoch: int) -> None:
    """Stop a run whose loss is NaN or infinite."""
    if not math.isfinite(loss):
        raise Diverged(
            f"the loss became {loss} in epoch {epoch}; the run is kept as of the start of that epoch: "
            "start another with a lower learning rate or with clip"
        )


def record(job: Job, ids: Tensor, logits: Tensor, labels: Tensor, features: Tensor) -> None:
    """Record a batch in the epoch's means, the recorder and the trace."""
    if job.refinement is not None:  # `refine` records the predictions on inputs that are not mixed
        job.means.add(job.training.objective.parts, logits, labels.repeat(len(logits) // len(labels)))
        return
    logits = without_margin(job.training.network, logits, features)
    job.means.add(job.training.objective.parts, logits, labels)
    if job.recorder is not None:
        job.recorder.update(ids, logits, labels, features)
    if job.trace is not None:
        job.trace.add(ids, logits, labels, features, head_weight(job.training.network).detach())


def refine(job: Job) -> None:
    """Robust training: after an epoch, update the network's belief about each example, and set the next targets."""
    if job.refinement is None:
        return
    with job.averaged():
        logits, features = job.refinement.update(job.training.network, job.feed.inputs, precision=job.run.precision)
        weight = head_weight(job.training.network).detach()
    if ranks()[0] > 0:  # every process has the same predictions of all examples
        return
    ids = torch.arange(len(logits), device=logits.device)
    if job.recorder is not None:
        job.recorder.update(ids, logits, job.feed.labels, features)
    if job.trace is not None:
        job.trace.add(ids, logits, job.feed.labels, features, weight)
