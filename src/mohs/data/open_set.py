"""Open-set noise: some images are replaced by images of another data set, and keep their labels.

Such an image has no true class here: its truth is NO_LABEL (−100), which losses ignore.
Y. Wang et al., "Iterative learning with open-set noisy labels" (CVPR 2018).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.validation import check_between
from mohs.data.examples import Examples
from mohs.data.open_single import open_single
from mohs.margin import NO_LABEL


def replace_images(examples: Examples, others: Examples, *, rate: float, seed: int) -> tuple[Examples, Tensor]:
    """The examples with round(rate N) of their inputs replaced by distinct inputs of `others`, and which (N,) bool."""
    check_between("rate", rate, 0, 1)
    inputs, theirs = examples.inputs, others.inputs
    if not isinstance(inputs, Tensor) or not isinstance(theirs, Tensor):
        raise DataError(
            f"{examples.name}, {others.name}: open-set noise needs images in memory: raise memory_limit, or lower image_size"
        )
    if examples.shape != others.shape or inputs.dtype != theirs.dtype:
        raise DataError(
            f"{others.name} has inputs {others.shape}, {examples.name} {examples.shape}: "
            "they must have the same shape (see image_size)"
        )
    number = round(rate * len(examples))
    if number > len(others):
        raise DataError(f"{others.name} has {len(others)} images, {number} are needed: lower the rate")
    generator = torch.Generator().manual_seed(seed)
    places = torch.randperm(len(examples), generator=generator)[:number]
    chosen = torch.randperm(len(others), generator=generator)[:number]
    mixed = inputs.clone()
    mixed[places] = theirs[chosen]
    replaced = torch.zeros(len(examples), dtype=torch.bool)
    replaced[places] = True
    truth = (examples.labels if examples.truth is None else examples.truth).masked_fill(replaced, NO_LABEL)
    return replace(examples, inputs=mixed, truth=truth), replaced


@dataclass(frozen=True, kw_only=True)
class OpenSet:
    """Images of another data set. source: its name ("cifar100"); its training images are resized to the examples' size."""

    rate: float
    source: str

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0, 1)

    def __call__(self, examples: Examples, seed: int) -> Examples:
        size = (examples.shape[1], examples.shape[2]) if examples.kind == "images" else None
        return replace_images(examples, open_single(self.source, image_size=size).train, rate=self.rate, seed=seed)[0]
