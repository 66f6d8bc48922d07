"""The data of a run: opened once and cached, with a test split and with limits, as `Run.open` says.

    open = {limit = 20}                the first 20 examples of each class, in every split
    open = {train_limit = 20}          the same, in the training split only
    open = {classes = ["cat", "dog"]}  only these classes, in this order
    open = {holdout_classes = [8, 9]}  classes neither trained nor tested on, for `retrieval`
    open = {test = 0.2}                share of each class that becomes the test set, for data without one (the default)
    open = {relabeled_from = "NAME"}   recorded only: `studies.relabel` gives the data of that run with its network's labels

Other entries of `open` are passed to `open_data`. They are settings of the run and part of its hash.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from mohs._core.errors import DataError
from mohs.data.domains import open_pair, shaped
from mohs.data.examples import Data, Examples
from mohs.data.open_data import open_data
from mohs.data.read_options import FOLDER
from mohs.data.split import split
from mohs.train.run import OPEN, Run

OWN_LABELS = "relabeled_from"
OWN = ("limit", "train_limit", "classes", "holdout_classes", "test", OWN_LABELS)
TEST_SHARE, TEST_SEED = 0.2, 0
KEPT = 4  # data sets kept in memory


def with_test(run: Run) -> Run:
    """The run, with `open.test` set if its data have no test set."""
    whole = source(run)
    if whole.test is not None or "test" in run.open:
        return run
    return dataclasses.replace(run, open={**run.open, "test": TEST_SHARE})


def opened(run: Run) -> Data:
    """The data that the run names; the same object for the same settings, so that runs share memory."""
    return _opened(run.data, json.dumps(dict(run.open), sort_keys=True), os.environ.get(FOLDER))


def source(run: Run) -> Data:
    """The data as opened, before limits and splits of this module."""
    return _source(run.data, _rest(run.open), os.environ.get(FOLDER))


def opening(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `open_data` among these that a run takes."""
    return {name: value for name, value in options.items() if name in OPEN and name not in OWN}


def _rest(options: Mapping[str, Any]) -> str:
    """The options of `open_data` among these, as text."""
    return json.dumps(opening(options), sort_keys=True)


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
    parts: Mapping[str, Examples] = found.splits
    if given.get("classes"):
        parts = {name: of_classes(part, class_places(found.train, given["classes"])) for name, part in parts.items()}
        found = Data(**parts)
    if given.get("holdout_classes"):
        kept = [i for i in range(len(found.classes)) if i not in class_places(found.train, given["holdout_classes"])]
        parts = {name: of_classes(part, kept) for name, part in parts.items()}
    return Data(**_limited(parts, given))


def _limited(parts: Mapping[str, Examples], given: Mapping[str, Any]) -> dict[str, Examples]:
    """The splits reduced to `limit` and `train_limit` examples of each class."""
    made = {name: limited(part, given["limit"]) if "limit" in given else part for name, part in parts.items()}
    if "train_limit" in given:
        made["train"] = limited(made["train"], given["train_limit"], name="open.train_limit")
    return made


def pair_of(run: Run) -> tuple[Data, Data]:
    """Source and target of a run whose data are a pair of domains, with the limits of `open`."""
    source, target = _pair(run.data, _rest(run.open), os.environ.get(FOLDER))
    return Data(**_limited(source.splits, run.open)), Data(**_limited(target.splits, run.open))


@lru_cache(maxsize=KEPT)
def _pair(data: str, options: str, folder: str | None) -> tuple[Data, Data]:
    return open_pair(data, **json.loads(options))


def limited(examples: Examples, limit: int, *, name: str = "open.limit") -> Examples:
    """The first `limit` examples of each class."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {limit!r}")
    own = [(examples.labels == j).nonzero().flatten()[:limit] for j in range(len(examples.classes))]
    places = torch.cat(own).sort().values
    return examples if len(places) == len(examples) else examples.take(places)


def class_places(examples: Examples, classes: Sequence[Any]) -> list[int]:
    """The indices of classes given by name."""
    known = {str(name): i for i, name in enumerate(examples.classes)}
    for name in classes:
        if str(name) not in known:
            raise DataError(f"{examples.name} has no class {name!r}; its classes: {', '.join(known)}")
    return [known[str(name)] for name in classes]


def of_classes(examples: Examples, kept: Sequence[int]) -> Examples:
    """The examples of these classes, renumbered in this order."""
    number = torch.full((len(examples.classes),), -1)
    number[torch.tensor(kept, dtype=torch.long)] = torch.arange(len(kept))
    taken = examples.take((number[examples.labels] >= 0).nonzero().flatten())
    truth = None if taken.truth is None else number[taken.truth]
    votes = None if taken.votes is None else taken.votes.of_classes(kept)
    classes = [examples.classes[i] for i in kept]
    return dataclasses.replace(taken, labels=number[taken.labels], classes=classes, truth=truth, votes=votes)


def held_out(run: Run, classes: Sequence[Any]) -> Examples:
    """The examples of classes that the run was not trained on, from the test set, or from all data if there is none."""
    whole = source(run)
    examples = whole.train if whole.test is None else whole.test
    trained = [name for name in classes if str(name) not in map(str, run.open.get("holdout_classes", ()))]
    if trained:
        raise DataError(f"the run was trained on {trained[0]!r}: retrieval needs classes in open.holdout_classes")
    found = of_classes(examples, class_places(examples, classes))
    return limited(found, run.open["limit"]) if "limit" in run.open else found


def outside(data: str, run: Run, *, like: Examples) -> Examples:
    """Examples of another data set in the shape of these: its test set, or all if there is none."""
    found = _source(data, "{}", os.environ.get(FOLDER))
    examples = found.train if found.test is None else found.test
    examples = limited(examples, run.open["limit"]) if "limit" in run.open else examples
    return shaped(examples, like.shape)
