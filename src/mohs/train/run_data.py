"""The data of a run as studies take them: opened once, with a test set, and where asked with less of them.

    open = {limit = 20}                at most 20 examples of each class, the first ones, in every part
    open = {train_limit = 20}          the same, in the training part only
    open = {holdout_classes = [8, 9]}  these classes are neither trained on nor tested: `retrieval` asks for them
    open = {test = 0.2}                of data without a test set, the share of each class that becomes one (the default)
    open = {relabeled_from = "NAME"}  only noted here: `relabel.py` gives the data of that run with its network's labels

What else `open` holds goes to `open_data`. These are settings of the run, so its hash and its run.json know of them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.domains import open_pair
from mohs.data.examples import Data, Examples
from mohs.data.open_data import open_data
from mohs.data.read_options import FOLDER
from mohs.data.split import split
from mohs.train.run import Run

OWN_LABELS = "relabeled_from"
OWN = ("limit", "train_limit", "holdout_classes", "test", OWN_LABELS)
TEST_SHARE, TEST_SEED = 0.2, 0
KEPT = 4  # data sets held open


def with_test(run: Run) -> Run:
    """The run, with `open.test` said where its data have no test set."""
    whole = source(run)
    if whole.test is not None or "test" in run.open:
        return run
    return dataclasses.replace(run, open={**run.open, "test": TEST_SHARE})


def opened(run: Run) -> Data:
    """The data that the run names; the same object for the same settings, so that runs may share it."""
    return _opened(run.data, json.dumps(dict(run.open), sort_keys=True), os.environ.get(FOLDER))


def source(run: Run) -> Data:
    """The data as they were found, without what this file takes away."""
    return _source(run.data, _rest(run.open), os.environ.get(FOLDER))


def _rest(options: Mapping[str, Any]) -> str:
    """What `open` holds for `open_data`, as text."""
    return json.dumps({key: value for key, value in options.items() if key not in OWN}, sort_keys=True)


@lru_cache(maxsize=KEPT)
def _source(data: str, options: str, folder: str | None) -> Data:
    return open_data(data, **json.loads(options))


@lru_cache(maxsize=KEPT)
def _opened(data: str, options: str, folder: str | None) -> Data:
    given: dict[str, Any] = json.loads(options)
    found = _source(data, _rest(given), folder)
    if found.test is None and "test" in given:
        train, test = split(found.train, given["test"], TEST_SEED)
        found = Data(train, found.val, test)
    parts = found.splits
    if given.get("holdout_classes"):
        kept = [i for i in range(len(found.classes)) if i not in class_places(found.train, given["holdout_classes"])]
        parts = {name: of_classes(part, kept) for name, part in parts.items()}
    return Data(**_lessened(parts, given))


def _lessened(parts: Mapping[str, Examples], given: Mapping[str, Any]) -> dict[str, Examples]:
    """The parts with as many examples of each class as `limit` and `train_limit` leave."""
    made = {name: limited(part, given["limit"]) if "limit" in given else part for name, part in parts.items()}
    if "train_limit" in given:
        made["train"] = limited(made["train"], given["train_limit"], name="open.train_limit")
    return made


def pair_of(run: Run) -> tuple[Data, Data]:
    """Source and target of a run whose data are a pair, with less of both where `open` says so."""
    source, target = _pair(run.data, _rest(run.open), os.environ.get(FOLDER))
    return Data(**_lessened(source.splits, run.open)), Data(**_lessened(target.splits, run.open))


@lru_cache(maxsize=KEPT)
def _pair(data: str, options: str, folder: str | None) -> tuple[Data, Data]:
    return open_pair(data, **json.loads(options))


def limited(examples: Examples, limit: int, *, name: str = "open.limit") -> Examples:
    """The first `limit` examples of each class."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {limit!r}")
    own = [(examples.labels == j).nonzero().flatten()[:limit] for j in range(len(examples.classes))]
    places = torch.cat(own).sort().values
    return examples if len(places) == len(examples) else examples.take(places)


def class_places(examples: Examples, classes: Sequence[Any]) -> list[int]:
    """The numbers of these classes, given by name."""
    known = {str(name): i for i, name in enumerate(examples.classes)}
    for name in classes:
        if str(name) not in known:
            raise DataError(f"{examples.name} has no class {name!r}; its classes: {', '.join(known)}")
    return [known[str(name)] for name in classes]


def of_classes(examples: Examples, kept: Sequence[int]) -> Examples:
    """The examples of these classes, which are numbered afresh in this order."""
    number = torch.full((len(examples.classes),), -1)
    number[torch.tensor(kept, dtype=torch.long)] = torch.arange(len(kept))
    taken = examples.take((number[examples.labels] >= 0).nonzero().flatten())
    truth = None if taken.truth is None else number[taken.truth]
    return dataclasses.replace(taken, labels=number[taken.labels], classes=[examples.classes[i] for i in kept], truth=truth)


def held_out(run: Run, classes: Sequence[Any]) -> Examples:
    """The examples of classes that the run was not trained on: of the test set, or of the whole where there is none."""
    whole = source(run)
    examples = whole.train if whole.test is None else whole.test
    trained = [name for name in classes if str(name) not in map(str, run.open.get("holdout_classes", ()))]
    if trained:
        raise DataError(f"the run was trained on {trained[0]!r}: retrieval is of classes in open.holdout_classes")
    found = of_classes(examples, class_places(examples, classes))
    return limited(found, run.open["limit"]) if "limit" in run.open else found


def outside(data: str, run: Run, *, like: Examples) -> Examples:
    """Examples of other data, brought to the shape of these: the test set, or all where there is none."""
    found = _source(data, "{}", os.environ.get(FOLDER))
    examples = found.train if found.test is None else found.test
    examples = limited(examples, run.open["limit"]) if "limit" in run.open else examples
    return dataclasses.replace(examples, inputs=shaped(examples, like.shape))


def shaped(examples: Examples, shape: tuple[int, ...]) -> Any:
    """Images resized (bilinear) and gray made color or color gray, to be of this shape; other inputs must be of it."""
    if examples.shape == shape:
        return examples.inputs
    x = examples.inputs
    if len(shape) != 3 or len(examples.shape) != 3 or not isinstance(x, Tensor):
        raise DataError(
            f"{examples.name} has inputs of shape {examples.shape}, the network takes {shape}: they cannot be shown it"
        )
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    if x.shape[1] != shape[0]:
        x = x.mean(1, keepdim=True).expand(-1, shape[0], -1, -1)
    x = torch.nn.functional.interpolate(x, size=shape[1:], mode="bilinear", antialias=True)
    return (x.clamp(0, 1) * 255).round().to(torch.uint8)
