"""Label correction: a trained network's predictions replace its training labels for a second training.

The data are those of the first run, with its noise, long tail and validation split. Every training label, right or wrong,
becomes the class with the largest logit. The second run records the folder of the first in `open.relabeled_from`.
Wang et al., "Derivative manipulation for general example weighting" (Gradient Rescaling), Table 11.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from mohs._core.errors import RunError
from mohs.data.examples import Data
from mohs.evaluate.outputs import predict
from mohs.train.resolve import prepare_data
from mohs.train.run import Run
from mohs.train.run_data import OWN_LABELS, opened
from mohs.train.trained import Trained, load_run


class MissingLabels(RunError):  # noqa: N818  (what is missing)
    """The labels for a run are missing, or cover only some of the classes."""


def with_labels_of(run: Run, source: Path) -> Run:
    """The run, with the folder that its labels come from recorded."""
    return dataclasses.replace(run, open={**run.open, OWN_LABELS: source.name})


def data_of(run: Run, *, runs: Path, device: str = "cpu") -> Data:
    """The data of the run, with predicted labels if the run takes its labels from another run in `runs`."""
    if OWN_LABELS not in run.open:
        return opened(run)
    trained = load_run(runs / run.open[OWN_LABELS])
    trained.network.to(device)
    return relabeled(trained, data_of(trained.run, runs=runs, device=device))


def relabeled(trained: Trained, given: Data) -> Data:
    """The data this run was trained on, with its network's predictions as training labels; given: the data before preparation."""
    data = prepare_data(trained.run, given)
    logits = predict(trained.network, data.train).logits
    return Data(data.train.relabeled(logits.argmax(1)), data.val, data.test)


def check_labels(data: Data, *, of: str) -> None:
    """Validate that the network of row `of` predicts every class for some training example."""
    counts = torch.bincount(data.train.labels, minlength=len(data.classes))
    missing = [str(name) for name, count in zip(data.classes, counts.tolist(), strict=True) if not count]
    if missing:
        raise MissingLabels(f"the network of {of} predicts class {missing[0]} for no training example: it cannot be trained")
