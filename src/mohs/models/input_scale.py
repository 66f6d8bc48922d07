"""The scale of a set of examples: mean and standard deviation of each channel (of images) or of each feature.

Means and squared deviations of chunks are merged pairwise, in float64: this needs no floating-point copy of all data and loses no
accuracy far from 0. Constant features have the scale 1. Images that are decoded on access are sampled evenly.

Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from mohs._core.errors import DataError
from mohs.data.examples import Examples
from mohs.data.validate import check_numeric
from mohs.models.layers import numbers_in
from mohs.models.network import Scale

CHUNK = 4_000_000  # numbers in float64 at once: 32 MB
READ = 10_000  # images decoded from files, evenly spaced; all are used if they are in memory
FLAT = 1e-7  # an SD below this share of the mean is rounding


_found: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # inputs in memory: their version, mean and SD


def scale_of(examples: Examples) -> Scale:
    """Mean and SD per channel, of pixels from 0 to 1, or per feature; cached for inputs in memory.

    Args:
        examples: images or features.

    Returns:
        The module that normalizes inputs, for `create_model(..., scale=...)`.
    """
    if not len(examples):
        raise DataError(f"{examples.name}: no examples to take the scale of")
    check_numeric(examples)
    if not isinstance(examples.inputs, Tensor):
        return Scale(*mean_and_sd(examples))
    version, found = _found.get(examples.inputs, (None, None))  # type: ignore[no-untyped-call]
    if version != examples.inputs._version:
        found = mean_and_sd(examples)
        _found[examples.inputs] = examples.inputs._version, found
    return Scale(*found)


def mean_and_sd(examples: Examples) -> tuple[Tensor, Tensor]:
    """Mean and SD per channel or feature, in float64."""
    places = torch.arange(len(examples))
    if not examples.in_memory and len(examples) > READ:
        places = torch.arange(READ) * len(examples) // READ
    count, mean, squares = 0, torch.zeros(()), torch.zeros(())
    for rows in torch.split(places, max(1, CHUNK // numbers_in(examples.shape))):
        chunk = channels_first(examples.inputs[rows])  # (C, M)
        own = chunk.mean(1)
        if not own.isfinite().all():
            raise DataError(f"{examples.name}: {not_finite(examples.inputs[rows], rows)}")
        m, delta = chunk.shape[1], own - mean
        squares = squares + (chunk - own[:, None]).square().sum(1) + delta**2 * count * m / (count + m)
        mean = mean + delta * m / (count + m)
        count += m
    sd = (squares / count).sqrt()
    return mean, torch.where(sd > FLAT * mean.abs(), sd, 1.0)


def channels_first(x: Tensor) -> Tensor:
    """Images (n, C, H, W) -> (C, n·H·W), from 0 to 1 where they are uint8; features (n, D) -> (D, n); float64."""
    x = x.transpose(0, 1).flatten(1)
    return x.double() / 255 if x.dtype == torch.uint8 else x.double()


def not_finite(x: Tensor, rows: Tensor) -> str:
    """For an error: the first example with NaN or infinity, and what to do."""
    first = int((~x.isfinite()).flatten(1).any(1).nonzero()[0])
    return f"example {int(rows[first])} has an input that is not a finite number: remove it or fill the value in"
