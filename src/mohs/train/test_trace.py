"""A look at the test set after every epoch of a run with `trace_test`: one small file an epoch in the run's folder.

`test-007.safetensors` holds, after seven epochs, for each test example what a trace holds for a training example: confidence,
right, norm and avh, in half precision. An epoch that is trained again after a stop is looked at again.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from mohs.data.examples import Examples
from mohs.models.network import Network, head_weight
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.directory import RunDirectory
from mohs.train.job import Job
from mohs.train.predict import predict
from mohs.train.trace import Trace

NAME = "test-{:03}.safetensors"


def look(network: Network, examples: Examples, *, precision: str = "no") -> dict[str, Tensor]:
    """What a trace notes, of each of these examples (N,)."""
    trace = Trace(1, len(examples))
    logits, features = predict(network, examples, precision=precision)
    trace.add(torch.arange(len(examples)), logits, examples.labels, features, head_weight(network).detach().cpu())
    return dict(zip(trace.values, trace.now, strict=True))


def keep_look(job: Job, directory: RunDirectory) -> None:
    """File a look after the epochs that are done, where the run asks for it and has a test set."""
    test = job.data.test
    if not job.run.trace_test or test is None:
        return
    with job.averaged():
        save_tree(look(job.training.network, test, precision=job.run.precision), directory.path / NAME.format(job.epoch))


def looks(folder: Path) -> dict[int, dict[str, Tensor]]:
    """The looks that a run's folder holds, by the number of epochs after which each was taken."""
    return {int(file.stem.removeprefix("test-")): load_tree(file) for file in sorted(Path(folder).glob("test-*.safetensors"))}
