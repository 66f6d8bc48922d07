"""Splits: their names, and a stratified hold-out for data without one.

    split(examples, share, seed) -> (remaining, held out)

About share · n_c of the n_c examples of class c are held out: the integer part, and one more for the classes with the largest
remainders until share · N are held out in all. At least one example of every class stays. Examples in groups are held out by
whole groups (`groups.held_out_groups`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.validation import check_between, check_choice
from mohs.data.examples import Data, Examples
from mohs.data.groups import held_out_groups
from mohs.data.validate import check_repeated

SPLITS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing", "t10k"),
}


def split_called(name: str) -> str | None:
    """ "train", "val" or "test" for a common name of that split, else None."""
    return next((split for split, names in SPLITS.items() if name.lower() in names), None)


def split(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """The remaining examples, and a share of each class, in whole groups; the first keeps the list of skipped examples."""
    check_between("share", share, 0, 1, ends="()")
    held = held_out(examples.labels, share=share, seed=seed, groups=examples.groups)
    if not len(held):
        check_repeated(examples)
        if examples.groups is not None:
            raise DataError(
                f"{examples.name}: no group can be held out, as each has all examples of some class: provide your own split"
            )
        raise DataError(
            f"{examples.name}: a share of {share:g} of {len(examples)} examples in {len(examples.classes)} classes is empty: "
            "raise the share or provide your own split"
        )
    rest = torch.ones(len(examples), dtype=torch.bool)
    rest[held] = False
    return examples.take(rest.nonzero().squeeze(1)), replace(examples.take(held), left_out=())


def held_out(labels: Tensor, *, share: float, seed: int, groups: Tensor | None = None) -> Tensor:
    """labels (N,) -> the places held out, in order; with groups (N,), whole groups."""
    if groups is not None:
        return held_out_groups(labels, groups, share=share, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    counts = torch.bincount(labels)  # (K,)
    quota = share * counts.double()
    most = (counts - 1).clamp(min=0)
    number = torch.minimum(quota.floor().long(), most)
    missing = round(share * len(labels)) - int(number.sum())
    by_chance = torch.rand(len(counts), generator=generator)  # among equal remainders
    order = sorted(range(len(counts)), key=lambda c: (float(quota[c].floor() - quota[c]), float(by_chance[c])))
    for c in [c for c in order if number[c] < most[c]][: max(missing, 0)]:
        number[c] += 1
    shuffled = torch.randperm(len(labels), generator=generator)
    places = [shuffled[labels[shuffled] == c][: int(number[c])] for c in range(len(counts))]
    return torch.cat(places).sort().values if places else torch.empty(0, dtype=torch.long)


def only(data: Data, name: str | None) -> Data:
    """The data unchanged, or one of their splits as the training examples."""
    if name is None:
        return data
    check_choice("split", name, list(SPLITS))
    if name not in data.splits:
        raise DataError(f"{data.name} has no {name} split; it has {', '.join(data.splits)}")
    return Data(data.splits[name])
