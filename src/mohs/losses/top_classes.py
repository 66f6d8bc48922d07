"""The classes with the largest probabilities, found faster than by torch.topk.

torch.topk looks at the entries one by one. Here the maxima of interleaved columns come first, by vector instructions; only
the τ columns with the highest maxima, and the few entries left over, can hold the τ largest, and these few are searched
by τ rounds of max. The quick maximum does not say where it stands; so each value carries its place along: the bits of
numbers ≥ 0, read as integers, are in the order of the numbers, and in an int64 there is room for the place behind them.
The rounds are many small operations. On a CPU they go by pieces of some hundred rows, too small for torch to share among
threads: sharing means waiting for each thread every time, far dearer than the work when the machine does anything else.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mohs.margin import readable

LANES = 64  # columns are taken in multiples of what the vector units of a processor compare in one go
ROUNDS = 4  # for more than so many of the largest, torch.topk is the quicker way
SHARED = 1 << 15  # entries from which torch shares an operation among threads
ROOM = 1 << 29  # for the place
STRUCK = torch.iinfo(torch.int64).min  # under every value, NaN included


def top_classes(p: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """p (N, K), none negative -> the `count` largest of each row and their classes, (N, count) each, the largest first."""
    width = LANES * max(1, round(math.sqrt(count * p.shape[1]) / LANES))
    depth, left = divmod(p.shape[1], width)
    if count > ROUNDS or depth < 2 * count or p.dtype != torch.float32:
        return p.topk(count, dim=1)
    columns, rest = p[:, : depth * width].view(-1, depth, width), p[:, depth * width :]
    rows = (SHARED - 1) // max(width, depth * count + left) if readable(p) else p.shape[0]
    pieces = (torch.split(x, max(1, rows)) for x in (columns.amax(1), columns, rest))
    found = [_from_columns(*piece, count=count) for piece in zip(*pieces, strict=True)]
    values, best, place = (torch.cat(x) for x in zip(*found, strict=True))  # (N, count) each
    inside = best.gather(1, place % count) + place // count * width
    return values, torch.where(place < depth * count, inside, place + depth * (width - count))


def _from_columns(maxima: Tensor, columns: Tensor, rest: Tensor, *, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest values, the columns that were looked at, and the places of the values in these and the rest together."""
    best = _places(maxima, count)  # (N, count)
    inside = columns.gather(2, best.unsqueeze(1).expand(-1, columns.shape[1], -1)).flatten(1)  # (N, depth · count)
    candidates = torch.cat([inside, rest], 1)
    place = _places(candidates, count)
    return candidates.gather(1, place), best, place


def _places(x: Tensor, count: int) -> Tensor:
    """x (N, W) in float32 -> where the `count` largest of each row stand, (N, count), the largest first."""
    keys = torch.add(torch.arange(x.shape[1], device=x.device), x.view(torch.int32), alpha=ROOM)  # (N, W)
    starts = torch.arange(0, x.numel(), x.shape[1], device=x.device)  # of the rows
    found = [keys.amax(1).bitwise_and_(ROOM - 1)]
    for _ in range(count - 1):
        keys.view(-1).index_fill_(0, found[-1] + starts, STRUCK)  # quicker than scatter_ along the rows
        found.append(keys.amax(1).bitwise_and_(ROOM - 1))
    return torch.stack(found, 1)
