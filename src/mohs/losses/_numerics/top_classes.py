"""The classes with the largest probabilities, found faster than by torch.topk.

torch.topk looks at the entries one by one. Here the maxima of interleaved columns come first, by vector instructions; only
the τ columns with the highest maxima can hold the τ largest, and these few entries are searched by τ rounds of max.
The quick maximum does not say where it stands; so each value carries its place along: the bits of numbers ≥ 0, read as
integers, are in the order of the numbers, and a float32 made a float64 has room for the place in its last 29.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LANES = 64  # columns are taken in multiples of what the vector units of a processor compare in one go
ROUNDS = 4  # for more than so many of the largest, torch.topk is the quicker way
ROOM = 1 << 29  # for the place: float64 has so many more last digits than float32
STRUCK = torch.iinfo(torch.int64).min  # under every value, NaN included


def top_classes(p: Tensor, count: int, maxima: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """p (N, K), none negative -> the `count` largest of each row and their classes, (N, count) each, the largest first.

    maxima: its `column_maxima`, if they are there already.
    """
    maxima = column_maxima(p, count) if maxima is None else maxima
    if maxima is None:
        return p.topk(count, dim=1)
    classes, width = p.shape[1], maxima.shape[1]
    lines = torch.arange(0, classes, width, device=p.device)  # where each line of `width` classes begins
    left = classes % width
    if left:  # the last line is the last `width` classes: of these only the last `left` are not in the line before
        lines[-1] = classes - width
    columns = _places(maxima, count).unsqueeze(1)  # (N, 1, count)
    candidates = columns + lines.unsqueeze(1)  # (N, lines, count)
    values = p.gather(1, candidates.flatten(1))
    if left:
        values[:, -count:].masked_fill_(columns.squeeze(1) < width - left, -1.0)  # these would be there twice
    place = _places(values, count)
    return values.gather(1, place), candidates.flatten(1).gather(1, place)


def column_maxima(p: Tensor, count: int) -> Tensor | None:
    """p (N, K) -> the largest of each column, (N, width); None where torch.topk is the quicker way to the `count` largest."""
    classes = p.shape[1]
    width = column_count(classes, count)
    depth, left = divmod(classes, width)
    if count > ROUNDS or depth < 2 * count or p.dtype != torch.float32 or p.device.type not in ("cpu", "cuda"):
        return None
    maxima = p[:, : depth * width].view(-1, depth, width).amax(1)
    if left:
        maxima[:, width - left :] = torch.maximum(maxima[:, width - left :], p[:, depth * width :])
    return maxima


def column_count(classes: int, count: int) -> int:
    """In how many columns to lay the classes out: as many as leave few candidates, if it can be with no class left over."""
    wanted = LANES * max(1, round(math.sqrt(count * classes) / LANES))
    return next((width for width in range(wanted, 2 * wanted, 4) if classes % width == 0), wanted)


def _places(x: Tensor, count: int) -> Tensor:
    """x (N, W) in float32 -> where the `count` largest of each row stand, (N, count), the largest first."""
    keys = x.double().view(torch.int64).bitwise_or_(torch.arange(x.shape[1], device=x.device))  # (N, W)
    starts = torch.arange(0, x.numel(), x.shape[1], device=x.device)  # of the rows
    found = [keys.amax(1).bitwise_and_(ROOM - 1)]
    for _ in range(count - 1):
        keys.view(-1).index_fill_(0, found[-1] + starts, STRUCK)  # quicker than scatter_ along the rows
        found.append(keys.amax(1).bitwise_and_(ROOM - 1))
    return torch.stack(found, 1)
