"""Settling a run: the data as it wants them, and what it leaves open decided by them.

The folder of a run says what was done, so nothing may be left open when it is made.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from mohs._core.specs import as_spec
from mohs.data.examples import Data, Examples
from mohs.data.long_tail import long_tail
from mohs.data.noise import add_noise
from mohs.data.split import split
from mohs.models import default_model, model_spec
from mohs.train.run import Run


def prepared(run: Run, data: Data) -> Data:
    """The data as the run wants them: a long tail, wrong labels, and a part held out where there is no validation set."""
    train, val = data.train, data.val
    if run.long_tail is not None:
        train = train.take(long_tail(train.labels, ratio=run.long_tail, num_classes=len(train.classes), seed=run.labels_seed))
    if run.noise is not None:
        train = add_noise(train, as_spec(run.noise), seed=run.labels_seed)
    if val is None and run.validation > 0:
        train, val = split(train, run.validation, seed=run.labels_seed)
    return Data(train, val, data.test)


def resolved(run: Run, examples: Examples, *, cuda: bool) -> Run:
    """The run with nothing left open."""
    changes: dict[str, Any] = {}
    if model_spec(run.model)["name"] == "auto":
        changes["model"] = default_model(examples.shape, examples.kind, device="cuda" if cuda else "cpu")
    if run.augment is None:
        changes["augment"] = default_augment(examples)
    if run.precision == "auto":
        changes["precision"] = "bf16" if cuda else "no"
    return dataclasses.replace(run, **changes)


def default_augment(examples: Examples) -> list[dict[str, Any]]:
    """Shifts for images of 16 pixels and more, flips as well for those with color: a mirrored letter is another letter."""
    if examples.kind == "features" or examples.shape[-1] < 16:
        return []
    if examples.shape[0] == 1:
        return [{"name": "translate", "pixels": max(1, examples.shape[-1] // 14)}]
    return [{"name": "crop_flip", "padding": examples.shape[-1] // 8}]
