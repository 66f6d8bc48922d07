"""Label noise of the literature, by a seed: functions from labels to labels.

    symmetric     with probability r, to one of the other K − 1 classes, uniformly (so 1 − r keep their label)
    asymmetric    with probability r, to another class of its group, uniformly; or by a map, class → class
    pair          with probability r, to the next class (the last to the first)

Labels move independently, so the share of moved labels is binomial about r; `exact=True` moves exactly that share (rounded)
of the labels that can move. A rate r "uniform over all classes" (which keeps some labels) is a rate r (K − 1)/K here.
Human labels are in `human_labels.py`, images of other data in `open_set.py`; NOISES lists them all.
Gradient Rescaling (Wang et al., arXiv 1905.11233), section 4; G. Patrini et al. (CVPR 2017) for the maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mohs._core.specs import as_spec, create_spec
from mohs._core.validation import check_between
from mohs.data.examples import Examples
from mohs.data.human_labels import HumanLabels
from mohs.data.open_set import OpenSet
from mohs.data.readers.cifar_names import CIFAR100_GROUPS

GROUPS: dict[str, list[list[str]]] = {"cifar100": list(CIFAR100_GROUPS.values())}
MAPS: dict[str, dict[Any, Any]] = {
    "cifar10": {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"},
    "mnist": {2: 7, 3: 8, 5: 6, 6: 5, 7: 1},
}


def symmetric_noise(labels: Tensor, *, rate: float, num_classes: int, seed: int, exact: bool = False) -> Tensor:
    """labels (N,) -> labels (N,), each moved to another class with probability rate."""
    _check(labels, num_classes)
    return _moved(
        labels, torch.full_like(labels, num_classes - 1), lambda steps: (labels + steps) % num_classes, rate, seed, exact
    )


def asymmetric_noise(
    labels: Tensor, *, rate: float, groups: Sequence[Sequence[int]], num_classes: int, seed: int, exact: bool = False
) -> Tensor:
    """Each label moved, with probability rate, to another class of its group; a class without a group stays."""
    _check(labels, num_classes)
    size, place, first = (torch.zeros(num_classes, dtype=torch.long) for _ in range(3))
    members: list[int] = []
    for group in groups:
        for i, one in enumerate(group):
            if not 0 <= one < num_classes or one in members:
                raise ValueError(f"groups: class {one} occurs twice, or is outside 0..{num_classes - 1}")
            size[one], place[one], first[one] = len(group), i, len(members) - i
            members.append(one)
    table = torch.tensor(members or [0])

    def to(steps: Tensor) -> Tensor:
        return table[first[labels] + (place[labels] + steps) % size[labels].clamp(min=1)]

    return _moved(labels, (size[labels] - 1).clamp(min=0), to, rate, seed, exact)


def map_noise(labels: Tensor, *, rate: float, to: Mapping[int, int], num_classes: int, seed: int, exact: bool = False) -> Tensor:
    """Each label in the map moved, with probability rate, to the class it maps to."""
    _check(labels, num_classes)
    table = torch.arange(num_classes)
    for one, other in to.items():
        if not (0 <= one < num_classes and 0 <= other < num_classes):
            raise ValueError(f"to: {one} -> {other} is outside 0..{num_classes - 1}")
        table[one] = other
    return _moved(labels, (table[labels] != labels).long(), lambda _: table[labels], rate, seed, exact)


def pair_noise(labels: Tensor, *, rate: float, num_classes: int, seed: int, exact: bool = False) -> Tensor:
    """Each label moved, with probability rate, to the next class."""
    to = {one: (one + 1) % num_classes for one in range(num_classes)}
    return map_noise(labels, rate=rate, to=to, num_classes=num_classes, seed=seed, exact=exact)


@dataclass(frozen=True, kw_only=True)
class RateNoise:
    """Noise with one rate for all classes, by the function `move`."""

    move: ClassVar[Callable[..., Tensor]]
    rate: float
    exact: bool = False

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0, 1)

    def __call__(self, examples: Examples, seed: int) -> Examples:
        options = {"rate": self.rate, "num_classes": len(examples.classes), "seed": seed, "exact": self.exact}
        return examples.relabeled(self.move(examples.labels, **options))


class Symmetric(RateNoise):
    """A wrong label is any other class, with equal probability."""

    move = staticmethod(symmetric_noise)


class Pair(RateNoise):
    """A wrong label is the next class."""

    move = staticmethod(pair_noise)


@dataclass(frozen=True, kw_only=True)
class Asymmetric:
    """A wrong label is in the same group of classes, or given by a map; groups and maps: lists, or a name in GROUPS or MAPS."""

    rate: float
    groups: str | Sequence[Sequence[Any]] | None = None
    to: str | Mapping[Any, Any] | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0, 1)
        if (self.groups is None) == (self.to is None):
            raise ValueError("asymmetric noise needs either groups or to (a map from class to class)")
        for field, given, known in (("groups", self.groups, GROUPS), ("to", self.to, MAPS)):
            if isinstance(given, str) and given not in known:
                raise ValueError(f"{field}: unknown name {given!r}; known: {', '.join(known)}")

    def __call__(self, examples: Examples, seed: int) -> Examples:
        labels, classes = examples.labels, examples.classes
        if self.to is not None:
            given = MAPS[self.to] if isinstance(self.to, str) else self.to
            to = {_number(one, classes): _number(other, classes) for one, other in given.items()}
            moved = map_noise(labels, rate=self.rate, to=to, num_classes=len(classes), seed=seed, exact=self.exact)
        else:
            named = GROUPS[self.groups] if isinstance(self.groups, str) else self.groups or ()
            groups = [[_number(one, classes) for one in group] for group in named]
            moved = asymmetric_noise(labels, rate=self.rate, groups=groups, num_classes=len(classes), seed=seed, exact=self.exact)
        return examples.relabeled(moved)


Noise = Symmetric | Asymmetric | Pair | HumanLabels | OpenSet
NOISES: dict[str, type[Noise]] = {
    "symmetric": Symmetric,
    "asymmetric": Asymmetric,
    "pair": Pair,
    "human": HumanLabels,
    "open_set": OpenSet,
}


def add_noise(examples: Examples, spec: str | Mapping[str, Any], seed: int) -> Examples:
    """Examples with label noise.

    Args:
        examples: the examples to change.
        spec: name and fields of the noise, such as "symmetric:rate=0.4" or {"name": "symmetric", "rate": 0.4}.
        seed: random seed.

    Returns:
        The examples with noisy labels; the original labels are kept as `truth`.
    """
    return create_spec(NOISES, "noise", as_spec(spec))(examples, seed)


def _moved(labels: Tensor, choices: Tensor, to: Any, rate: float, seed: int, exact: bool) -> Tensor:
    """labels where they stay, to(steps) where they move; choices (N,): number of classes each may move to."""
    check_between("rate", rate, 0, 1)
    generator = torch.Generator().manual_seed(seed)
    lot = torch.rand(len(labels), generator=generator, dtype=torch.float64)
    steps = 1 + (torch.rand(len(labels), generator=generator, dtype=torch.float64) * choices).long()  # 1..choices
    moving = lot < rate
    if exact:
        able = (choices > 0).nonzero().squeeze(1)
        number = round(rate * len(able))
        moving = torch.zeros_like(moving)
        moving[able[lot[able].argsort()[:number]]] = True
    return torch.where(moving & (choices > 0), to(steps), labels)


def _check(labels: Tensor, num_classes: int) -> None:
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2 for a label to be wrong, got {num_classes}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(f"labels must lie in 0..{num_classes - 1}, got {int(labels.min())} to {int(labels.max())}")


def _number(one: Any, classes: Sequence[Any]) -> int:
    """Index of a class given by name, or by index where no class name is an integer; a string of digits is an integer too."""
    if one in classes:
        return list(classes).index(one)
    whole = int(one) if isinstance(one, int) or (isinstance(one, str) and one.isdecimal()) else None
    if whole is not None and whole in classes:
        return list(classes).index(whole)
    if whole is not None and not any(isinstance(name, int) for name in classes) and whole < len(classes):
        return whole
    raise ValueError(f"unknown class {one!r}; known: {', '.join(map(str, classes))}")
