"""The classes with the largest probabilities, found faster than by torch.topk.

torch.topk looks at the entries one by one. Here the maxima of interleaved columns come first, by vector instructions; only
the τ columns with the highest maxima can hold the τ largest, and these few entries are searched by τ rounds of max.
The quick maximum does not say where it stands; so each value carries its place along: the bits of numbers ≥ 0, read as
integers, are in the order of the numbers, and in an int64 there is room for the place behind them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LANES = 64  # columns are taken in multiples of what the vector units of a processor compare in one go
ROUNDS = 4  # for more than so many of the largest, torch.topk is the quicker way
ROOM = 1 << 29  # for the place
STRUCK = torch.iinfo(torch.int64).min  # under every value, NaN included


def top_classes(p: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """p (N, K), none negative -> the `count` largest of each row and their classes, (N, count) each, the largest first."""
    classes = p.shape[1]
    width = column_count(classes, count)
    depth, left = divmod(classes, width)
    if count > ROUNDS or depth < 2 * count or p.dtype != torch.float32:
        return p.topk(count, dim=1)
    maxima = p[:, : depth * width].view(-1, depth, width).amax(1)  # (N, width)
    lines = torch.arange(0, classes, width, device=p.device)  # where each line of `width` classes begins
    if left:  # the last line is the last `width` classes: of these only the last `left` are not in the line before
        lines[-1] = classes - width
        maxima[:, width - left :] = torch.maximum(maxima[:, width - left :], p[:, depth * width :])
    columns = _places(maxima, count)  # (N, count)
    starts = torch.arange(0, p.numel(), classes, device=p.device).unsqueeze(1)  # of the rows: one index for row and class
    candidates = (columns + starts).unsqueeze(2) + lines  # (N, count, lines)
    values = p.flatten().index_select(0, candidates.flatten()).view_as(candidates)
    if left:
        values[:, :, -1].masked_fill_(columns < width - left, -1.0)  # these would be there twice
    place = _places(values.flatten(1), count)
    return values.flatten(1).gather(1, place), candidates.flatten(1).gather(1, place) - starts


def column_count(classes: int, count: int) -> int:
    """In how many columns to lay the classes out: as many as leave few candidates, if it can be with no class left over."""
    wanted = LANES * max(1, round(math.sqrt(count * classes) / LANES))
    return next((width for width in range(wanted, 2 * wanted, 4) if classes % width == 0), wanted)


def _places(x: Tensor, count: int) -> Tensor:
    """x (N, W) in float32 -> where the `count` largest of each row stand, (N, count), the largest first."""
    keys = torch.add(torch.arange(x.shape[1], device=x.device), x.view(torch.int32), alpha=ROOM)  # (N, W)
    starts = torch.arange(0, x.numel(), x.shape[1], device=x.device)  # of the rows
    found = [keys.amax(1).bitwise_and_(ROOM - 1)]
    for _ in range(count - 1):
        keys.view(-1).index_fill_(0, found[-1] + starts, STRUCK)  # quicker than scatter_ along the rows
        found.append(keys.amax(1).bitwise_and_(ROOM - 1))
    return torch.stack(found, 1)
