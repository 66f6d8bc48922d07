"""Resolving a run: what it leaves open ("auto") is decided by the data and the device, and the data are prepared as it says.

run.json records what was trained, so nothing may be left open when the folder is created.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from accelerate.state import PartialState

from mohs._core.specs import as_spec
from mohs.data.examples import Data, Examples
from mohs.data.long_tail import long_tail
from mohs.data.noise import add_noise
from mohs.data.split import split
from mohs.data.validate import check_examples, check_numeric
from mohs.models import default_model, model_spec
from mohs.train.accelerator import use_device
from mohs.train.run import Run


def resolve(run: Run, data: Data, *, device: str = "auto") -> tuple[Run, Data, str]:
    """The resolved run, the prepared data, and the fingerprint of the data as they were given."""
    use_device(device)
    check_examples(data.train)
    check_numeric(data.train)
    fingerprint = data.fingerprint()
    run = with_defaults(run, data.train, cuda=PartialState().device.type == "cuda")
    return run, prepare_data(run, data), fingerprint


def prepare_data(run: Run, data: Data) -> Data:
    """The data that the run trains on: with its long tail, its label noise, and a validation split if there is none."""
    train, val = data.train, data.val
    if run.long_tail is not None:
        train = train.take(long_tail(train.labels, ratio=run.long_tail, num_classes=len(train.classes), seed=run.labels_seed))
    if run.noise is not None:
        train = add_noise(train, as_spec(run.noise), seed=run.labels_seed)
    if val is None and run.validation > 0:
        train, val = split(train, run.validation, seed=run.labels_seed)
    return Data(train, val, data.test)


def with_defaults(run: Run, examples: Examples, *, cuda: bool) -> Run:
    """The run with model, augmentation and precision chosen where they are open."""
    changes: dict[str, Any] = {}
    if model_spec(run.model)["name"] == "auto":
        changes["model"] = default_model(examples.shape, examples.kind, device="cuda" if cuda else "cpu")
    if run.augment is None:
        changes["augment"] = default_augment(examples)
    if run.precision == "auto":
        changes["precision"] = "bf16" if cuda else "no"
    return dataclasses.replace(run, **changes)


def default_augment(examples: Examples) -> list[dict[str, Any]]:
    """Shifts for images of 16 pixels and more, and flips for color images only: a mirrored letter is another letter."""
    if examples.kind == "features" or examples.shape[-1] < 16:
        return []
    if examples.shape[0] == 1:
        return [{"name": "translate", "pixels": max(1, examples.shape[-1] // 14)}]
    return [{"name": "crop_flip", "padding": examples.shape[-1] // 8}]
