"""Groups of examples that belong together, such as images of one patient, frames of one video, or rows of one customer.

Examples of one group resemble each other beyond their labels: a model that has seen one recognizes the others, and repeats a
label that is wrong for all of them. So groups stay whole: in cross-validation, in which a model then sees no example of
the group that it judges, and in a held-out split.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.group_numbers import group_numbers, listed
from mohs.data.examples import Data, Examples

Array = np.ndarray[Any, Any]


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
    if not isinstance(group, str):
        data = replace(data, train=grouped(data.train, group, called="group", single=len(data.splits) == 1))
    elif data.train.groups is None:
        data = _by_path(data, group)
    train = data.train
    assert train.groups is not None
    number = count_groups(train.groups)
    if number < 2:
        shown = repr(group) if isinstance(group, str) else "an array"
        raise DataError(f"{train.name}: all examples are in one group: group ({shown}) must tell several apart")
    notes = [f"{number:,} groups of {len(train):,} examples stay whole in cross-validation and splits"]
    if number == len(train):
        notes = [f"each of the {number:,} examples is a group by itself: group (--group) has no effect on cross-validation"]
    for name, part in data.splits.items():
        shared = 0 if name == "train" or part.groups is None else int(torch.isin(part.groups, train.groups).sum())
        notes += [f"{shared:,} examples of the {name} split belong to groups of the train split"] if shared else []
    groups = None if number == len(train) else train.groups
    return replace(data, train=replace(train, groups=groups, notes=[*train.notes, *notes]))


def grouped(examples: Examples, values: Any, *, called: str, single: bool = True) -> Examples:
    """The examples in the groups that these values name, one for each example, or for each that was given.

    called: what the values are, for errors. single: whether this is the only split, so that the places of skipped examples refer
    to these examples.
    """
    names, left = listed(values), [one.place for one in examples.left_out]
    if left and single and None not in left and len(names) == len(examples) + len(left):
        names = [name for place, name in enumerate(names) if place not in set(left)]
    if len(names) != len(examples):
        skipped = f" ({len(left)} more were skipped)" if left else ""
        raise DataError(f"{called} has {len(names)} values, {examples.name} {len(examples)} examples{skipped}: give one for each")
    return replace(examples, groups=group_numbers(names))


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
        matches = [found.search(path) for path in part.paths or [""] * len(part)]
        names += [None if one is None else one.group(min(found.groups, 1)) for one in matches]
    if not any(names):
        raise DataError(f"{data.name}: group={pattern!r} (--group) matches no path; the first is {data.train.paths[0]}")
    parts = torch.split(group_numbers(names), [len(part) for part in data.splits.values()])
    return Data(**{name: replace(part, groups=own) for (name, part), own in zip(data.splits.items(), parts, strict=True)})


def alone(labels: Tensor, parts: Tensor) -> Tensor:
    """Whether all examples of the example's class are in its part (N,), a group or fold, so that no model without it knows the
    class.
    """
    pairs = np.unique(np.stack([labels.numpy(), parts.numpy()]), axis=1)  # each class with each of its parts
    return torch.from_numpy(np.bincount(pairs[0])[labels.numpy()] < 2)


def group_folds(labels: Tensor, groups: Tensor, *, folds: int, seed: int) -> Tensor:
    """labels (N,), groups (N,) -> a fold for each (N,), with whole groups and about the same share of each class.

    From the largest group to the smallest, each goes to the fold that has the smallest share of its classes, among folds with at
    most N / folds examples. So no fold is empty, and none has more than N / folds examples and a group.
    """
    own, parts = _classes_of(labels, groups)
    if not 2 <= folds <= len(parts):
        raise ValueError(f"folds must be at least 2 and at most {len(parts)}, the number of groups, got {folds}")
    totals, sizes = np.bincount(labels.numpy()), np.bincount(own)
    shuffled = torch.randperm(len(parts), generator=torch.Generator().manual_seed(seed)).numpy()
    shares, filled = np.zeros((folds, len(totals))), np.zeros(folds, dtype=np.int64)
    fold_of = np.empty(len(parts), dtype=np.int64)
    for g in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        classes, counts = parts[g]
        cost = (shares[:, classes] @ counts).round(9)
        cost[filled * folds > len(labels)] = np.inf
        f = np.lexsort((filled, cost))[0]
        fold_of[g] = f
        shares[f, classes] += counts / totals[classes]
        filled[f] += sizes[g]
    return torch.from_numpy(fold_of[own])


def held_out_groups(labels: Tensor, groups: Tensor, *, share: float, seed: int) -> Tensor:
    """labels (N,), groups (N,) -> the places held out, in order: whole groups, about this share of each class, not all of it.

    If every group is larger than the share, one is held out; none if each group has all examples of a class.
    """
    own, parts = _classes_of(labels, groups)
    left = np.bincount(labels.numpy())
    quota, taken = share * left, np.zeros(len(left), dtype=np.int64)
    held = np.zeros(len(parts), dtype=bool)
    smallest: tuple[float, int] | None = None
    for g in torch.randperm(len(parts), generator=torch.Generator().manual_seed(seed)).tolist():
        classes, counts = parts[g]
        if (left[classes] == counts).any():  # the training examples need one of each class
            continue
        before, after = (np.abs(taken[classes] + more - quota[classes]).sum() for more in (0, counts))
        if after < before:  # the class shares come closer to the quota
            held[g] = True
            taken[classes] += counts
            left[classes] -= counts
        elif smallest is None or after - before < smallest[0]:
            smallest = (after - before, g)
    if not held.any() and smallest is not None:
        held[smallest[1]] = True
    return torch.from_numpy(held[own].nonzero()[0])


def _classes_of(labels: Tensor, groups: Tensor) -> tuple[Array, list[tuple[Array, Array]]]:
    """The group of each example (N,) as 0..G−1, and the classes of each group with their numbers of examples."""
    own = np.unique(groups.numpy(), return_inverse=True)[1]
    classes = int(labels.max()) + 1
    pairs, counts = np.unique(own * classes + labels.numpy(), return_counts=True)
    first = np.searchsorted(pairs // classes, np.arange(int(own.max()) + 2))
    return own, [(pairs[a:b] % classes, counts[a:b]) for a, b in pairwise(first)]
