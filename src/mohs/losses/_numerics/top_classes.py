"""The classes with the largest probabilities, faster than torch.topk.

torch.topk scans the entries one by one. Here the classes are laid out in columns, whose maxima are vectorized; only the τ
columns with the highest maxima can hold the τ largest, and these few candidates are searched by τ rounds of max.
`amax` does not return positions, so each value carries its own: the bits of numbers ≥ 0, read as integers, sort as the
numbers do, and a float32 converted to float64 has 29 low bits free for the position.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LANES = 64  # the number of columns is a multiple of the vector width
ROUNDS = 4  # for a larger count torch.topk is faster
ROOM = 1 << 29  # for the position: float64 has 29 more mantissa bits than float32
STRUCK = torch.iinfo(torch.int64).min  # below every value, NaN included


def top_classes(p: Tensor, count: int, maxima: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """p (N, K) ≥ 0 -> the `count` largest of each row and their classes, (N, count) each, in descending order.

    maxima: `column_maxima(p, count)`, if already computed.
    """
    maxima = column_maxima(p, count) if maxima is None else maxima
    if maxima is None:
        return p.topk(count, dim=1)
    classes, width = p.shape[1], maxima.shape[1]
    lines = torch.arange(0, classes, width, device=p.device)  # start of each line of `width` classes
    left = classes % width
    if left:  # the last line is the last `width` classes: of these only the last `left` are not in the line before
        lines[-1] = classes - width
    columns = _positions(maxima, count).unsqueeze(1)  # (N, 1, count)
    candidates = columns + lines.unsqueeze(1)  # (N, lines, count)
    values = p.gather(1, candidates.flatten(1))
    if left:
        values[:, -count:].masked_fill_(columns.squeeze(1) < width - left, -1.0)  # these are in the line before already
    place = _positions(values, count)
    return values.gather(1, place), candidates.flatten(1).gather(1, place)


def column_maxima(p: Tensor, count: int) -> Tensor | None:
    """p (N, K) -> the largest of each column, (N, width); None where torch.topk is faster."""
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
    """The number of columns: near the one with the fewest candidates, and a divisor of the classes if there is one."""
    ideal = LANES * max(1, round(math.sqrt(count * classes) / LANES))
    return next((width for width in range(ideal, 2 * ideal, 4) if classes % width == 0), ideal)


def _positions(x: Tensor, count: int) -> Tensor:
    """x (N, W) in float32 -> the positions of the `count` largest of each row, (N, count), in descending order."""
    keys = x.double().view(torch.int64).bitwise_or_(torch.arange(x.shape[1], device=x.device))  # (N, W)
    starts = torch.arange(0, x.numel(), x.shape[1], device=x.device)  # of the rows
    found = [keys.amax(1).bitwise_and_(ROOM - 1)]
    for _ in range(count - 1):
        keys.view(-1).index_fill_(0, found[-1] + starts, STRUCK)  # faster than scatter_ along the rows
        found.append(keys.amax(1).bitwise_and_(ROOM - 1))
    return torch.stack(found, 1)
