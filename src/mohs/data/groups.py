"""Groups of examples that belong together, such as images of one patient, frames of one video, or rows of one customer.

Examples of one group resemble each other, whatever their labels mean: a model that has seen one recognizes the others, and
repeats a label that is wrong in all of them. So groups stay whole: in cross-validation, in which a model then sees no example of
the group that it judges, and in a held-out split.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples


def group_numbers(values: Sequence[Any]) -> Tensor:
    """Names of groups (N,) -> their numbers (N,), by first appearance; each missing name (None, NaN, "") is a group by itself."""
    known: dict[Any, int] = {}
    found = []
    for place, value in enumerate(values):
        missing = value is None or value != value or (isinstance(value, str) and not value.strip())
        found.append(known.setdefault((place,) if missing else value, len(known)))
    return torch.tensor(found, dtype=torch.int64)


def count_groups(groups: Tensor) -> int:
    """How many groups there are."""
    return len(np.unique(groups.numpy()))


def with_groups(data: Data, group: Any) -> Data:
    """The data with these groups, unless their reader found them in a column; splits that share groups get a note.

    Args:
        data: Data that were read.
        group: Name of the column that the reader was given; for images in folders, a regular expression that finds the group in
            each path (its first parenthesis, or the whole match); or one value per training example.
    """
    train = data.train
    if train.groups is None:
        data = (
            _by_path(data, group)
            if isinstance(group, str)
            else replace(data, train=grouped(train, _listed(group), called="group"))
        )
        train = data.train
    assert train.groups is not None
    number = count_groups(train.groups)
    if number < 2:
        raise DataError(f"{train.name}: all examples are in one group: group ({_shown(group)}) must tell several apart")
    notes = [f"{number:,} groups of {len(train):,} examples stay whole in cross-validation and splits"]
    for name, part in data.splits.items():
        shared = 0 if name == "train" or part.groups is None else int(torch.isin(part.groups, train.groups).sum())
        notes += [f"{shared:,} examples of the {name} split are of groups in the train split"] if shared else []
    return replace(data, train=replace(train, notes=[*train.notes, *notes]))


def _shown(group: Any) -> str:
    return repr(group) if isinstance(group, str) else "an array"


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def grouped(examples: Examples, values: Sequence[Any], *, called: str) -> Examples:
    """The examples in the groups that these values name, one for each example, or for each that was given.

    called: what the values are, for errors.
    """
    left = {one.place for one in examples.left_out}
    if len(values) == len(examples) + len(left) and None not in left:
        values = [value for place, value in enumerate(values) if place not in left]
    if len(values) != len(examples):
        skipped = f" ({len(left)} more were left out)" if left else ""
        raise DataError(
            f"{called} has {len(values)} values, {examples.name} {len(examples)} examples{skipped}: give one for each"
        )
    return replace(examples, groups=group_numbers(values))


def _by_path(data: Data, pattern: str) -> Data:
    """The data with the groups that a regular expression finds in the paths; an image without a match is a group by itself."""
    if data.train.paths is None:
        raise DataError(
            f"{data.name}: group={pattern!r} (--group) names a column, or matches paths of images; these data have neither"
        )
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"group={pattern!r} (--group) is not a regular expression: {error}") from error
    names: list[Any] = []
    for part in data.splits.values():
        matches = [found.search(path) for path in part.paths or ()]
        names += [None if one is None else one.group(min(found.groups, 1)) for one in matches]
    if not any(name is not None for name in names):
        raise DataError(f"{data.name}: group={pattern!r} (--group) matches no path; the first is {data.train.paths[0]}")
    parts = torch.split(group_numbers(names), [len(part) for part in data.splits.values()])
    return Data(**{name: replace(part, groups=own) for (name, part), own in zip(data.splits.items(), parts, strict=True)})


def alone(labels: Tensor, groups: Tensor | None, num_classes: int) -> Tensor:
    """Whether all examples of the example's class are in its group (N,): without the group, no model knows the class."""
    if groups is None:
        return torch.bincount(labels, minlength=num_classes)[labels] < 2
    pairs = np.unique(np.stack([labels.numpy(), groups.numpy()]), axis=1)  # each class with each of its groups
    return torch.bincount(torch.from_numpy(pairs[0]), minlength=num_classes)[labels] < 2


def group_folds(labels: Tensor, groups: Tensor, *, folds: int, seed: int) -> Tensor:
    """labels (N,), groups (N,) -> a fold for each (N,), with whole groups and about the same share of each class."""
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    number = count_groups(groups)
    if not 2 <= folds <= number:
        raise ValueError(f"folds must be at least 2 and at most {number}, the number of groups, got {folds}")
    fold = torch.full((len(labels),), -1, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class with fewer examples than folds
        for way in (StratifiedGroupKFold(folds, shuffle=True, random_state=seed), GroupKFold(folds)):
            try:
                for f, (_, held) in enumerate(way.split(np.zeros(len(labels)), labels.numpy(), groups.numpy())):
                    fold[torch.from_numpy(held)] = f
            except ValueError:  # every class has fewer examples than there are folds
                continue
            if bool((torch.bincount(fold + 1, minlength=folds + 1)[1:] > 0).all()):  # few large groups may leave a fold empty
                break
    return fold


def held_out_groups(labels: Tensor, groups: Tensor, *, share: float, seed: int) -> Tensor:
    """labels (N,), groups (N,) -> the places held out, in order: whole groups, about this share of each class, not all of it."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.from_numpy(np.unique(groups.numpy(), return_inverse=True)[1])
    left = torch.bincount(labels)
    sizes = torch.zeros(count_groups(groups), len(left), dtype=torch.int64)
    sizes.index_put_((own, labels), torch.ones(len(labels), dtype=torch.int64), accumulate=True)
    quota, taken = share * left.double(), torch.zeros_like(left)
    held = torch.zeros(len(sizes), dtype=torch.bool)
    for g in torch.randperm(len(sizes), generator=generator).tolist():
        more = (taken + sizes[g] - quota).abs().sum() < (taken - quota).abs().sum()  # brings the shares of the classes nearer
        if bool(more) and bool(((left - sizes[g] > 0) | (sizes[g] == 0)).all()):
            held[g], taken, left = True, taken + sizes[g], left - sizes[g]
    return held[own].nonzero().squeeze(1)
