"""Label correction: a trained network's predictions take the place of its training labels, for a second training.

The data are those the first run was trained on, with its noise, long tail and held-out part; every training label becomes the
class of the largest logit, the right ones' too. The second run notes in `open.relabeled_from` which folder the labels are
from. Wang et al., "Derivative manipulation for general example weighting" (Gradient Rescaling), Table 11.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from mohs._core.errors import RunError
from mohs.data.examples import Data
from mohs.train.predict import predict
from mohs.train.resolve import prepared
from mohs.train.run import Run
from mohs.train.run_data import OWN_LABELS, opened
from mohs.train.trained import Trained, load_run


class NoLabels(RunError):  # noqa: N818  (what is missing)
    """The labels that a run was to be trained on are not there, or are of some classes only."""


def with_labels_of(run: Run, source: Path) -> Run:
    """The run, with the folder that its labels come from noted."""
    return dataclasses.replace(run, open={**run.open, OWN_LABELS: source.name})


def data_of(run: Run, *, runs: Path, device: str = "cpu") -> Data:
    """The data that the run is given: those it names, or with the labels of the run in `runs` that it takes them from."""
    if OWN_LABELS not in run.open:
        return opened(run)
    trained = load_run(runs / run.open[OWN_LABELS])
    trained.network.to(device)
    return relabeled(trained, data_of(trained.run, runs=runs, device=device))


def relabeled(trained: Trained, given: Data) -> Data:
    """The data as this run was trained on them, with its network's predictions as the training labels; given: as it got them."""
    data = prepared(trained.run, given)
    logits, _ = predict(trained.network, data.train)
    return Data(data.train.relabeled(logits.argmax(1)), data.val, data.test)


def check_labels(data: Data, *, of: str) -> None:
    """Raise where the network of that row never gives one of the classes: a network cannot be trained without examples."""
    counts = torch.bincount(data.train.labels, minlength=len(data.classes))
    none = [str(name) for name, count in zip(data.classes, counts.tolist(), strict=True) if not count]
    if none:
        raise NoLabels(f"the network of {of} gives no training example the label {none[0]}: there is nothing to train on")
