"""The classes with the largest probabilities, found faster than by torch.topk.

torch.topk looks at the entries one by one. Here the maxima of interleaved columns come first, by vector instructions; only
the τ columns with the highest maxima, and the few entries left over, can hold the τ largest, and these few are searched
by τ rounds of max.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LANES = 64  # columns are taken in multiples of what the vector units of a processor compare in one go
ROUNDS = 4  # for more than so many of the largest, torch.topk is the quicker way


def top_classes(p: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """p (N, K), none negative -> the `count` largest of each row and their classes, (N, count) each, the largest first."""
    width = LANES * max(1, round(math.sqrt(count * p.shape[1]) / LANES))
    depth = p.shape[1] // width
    if count > ROUNDS or depth < 2 * count:
        return p.topk(count, dim=1)
    columns, rest = p[:, : depth * width].view(-1, depth, width), p[:, depth * width :]
    _, best = _largest(columns.amax(1), count)  # (N, count)
    inside = columns.gather(2, best.unsqueeze(1).expand(-1, depth, -1)).flatten(1)  # (N, depth · count)
    values, place = _largest(torch.cat([inside, rest], 1), count)
    found = best.gather(1, place % count) + place // count * width
    return values, torch.where(place < depth * count, found, place + depth * (width - count))


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and where they stand; x is spent: each that is found is struck out."""
    found = [x.max(1, keepdim=True)]
    for _ in range(count - 1):
        x.scatter_(1, found[-1].indices, -1.0)
        found.append(x.max(1, keepdim=True))
    return torch.cat([f.values for f in found], 1), torch.cat([f.indices for f in found], 1)
