"""The classes with the largest probabilities, faster than torch.topk.

torch.topk scans the entries one by one. Here the classes are laid out in columns, whose maxima are vectorized; only the τ
columns with the highest maxima can hold the τ largest, and these few candidates are searched by τ rounds of max.
`amax` does not return positions, so each value carries its own: the bits of numbers ≥ 0, read as integers, sort as the
numbers do, and a float32 converted to float64 has 29 low bits free for the position.
A `TopClasses` searches block after block in the same memory, which stays in the cache.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

LANES = 64  # the number of columns is a multiple of the vector width
ROUNDS = 4  # for a larger count torch.topk is faster
ROOM = 1 << 29  # for the position: float64 has 29 more mantissa bits than float32
STRUCK = torch.iinfo(torch.int64).min  # below every value, NaN included


def top_classes(p: Tensor, count: int, maxima: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """p (N, K) ≥ 0 -> the `count` largest of each row and their classes, (N, count) each, in descending order.

    maxima: `column_maxima` of p, if already computed.
    """
    return TopClasses(p, count)(p, maxima)


class TopClasses:
    """`top_classes` of blocks with the same number of rows as p (N, K), to which no gradient flows."""

    def __init__(self, p: Tensor, count: int) -> None:
        self.shape, self.count, self.width = p.shape, count, column_count(p, count)
        if not self.width:
            return
        (rows, classes), width, whole = p.shape, self.width, partial(torch.arange, device=p.device)
        self.left = classes % width
        lines = whole(0, classes, width)  # start of each line of `width` classes
        if self.left:  # the last line is the last `width` classes: of these only the last `left` are not in the line before
            lines[-1] = classes - width
        self.lines = lines.view(-1, 1, 1)
        self.maxima = p.new_empty(rows, width)
        self.columns, self.row = whole(width), whole(rows)
        self.first, self.starts, self.places = self.row * width, self.row * classes, whole(len(lines) * count).unsqueeze(1)
        self.keys = torch.empty(rows, width, dtype=torch.int64, device=p.device)
        self.found = torch.empty(count, rows, dtype=torch.int64, device=p.device)
        self.candidates = torch.empty(len(lines), count, rows, dtype=torch.int64, device=p.device)
        self.values = p.new_empty(len(lines) * count, rows)
        self.candidate_keys = torch.empty_like(self.values, dtype=torch.int64)

    def __call__(self, p: Tensor, maxima: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if p.shape != self.shape:
            return TopClasses(p, self.count)(p, maxima)
        if not self.width:
            return p.topk(self.count, dim=1)
        rows, found = len(p), self.found
        maxima = column_maxima(p, self.maxima) if maxima is None else maxima
        _largest(maxima, self.columns, self.keys, 1, self.first, 1, found)
        beside = found < self.width - self.left if self.left else None
        torch.add(self.lines, found.add_(self.starts), out=self.candidates)
        torch.index_select(p.reshape(-1), 0, self.candidates.view(-1), out=self.values.view(-1))
        if beside is not None:
            self.values[-self.count :].masked_fill_(beside, -1.0)  # these are in the line before already
        _largest(self.values, self.places, self.candidate_keys, 0, self.row, rows, found)
        at = found.mul_(rows).add_(self.row)
        return self.values.take(at).t(), self.candidates.take(at).sub_(self.starts).t()


def _largest(x: Tensor, places: Tensor, keys: Tensor, dim: int, starts: Tensor, step: int, out: Tensor) -> None:
    """The places of the largest entries of x along a dimension, one row of `out` for each, in descending order.

    Args:
        x: In float32.
        places: Of the entries along the dimension.
        keys: Memory of the shape of x.
        dim: The dimension, 0 or 1.
        starts, step: Where an entry of `keys` lies in memory: starts + step · place.
        out: (count, N).
    """
    keys.view(torch.float64).copy_(x)
    keys.bitwise_or_(places)
    for number, found in enumerate(out):
        if number:
            keys.view(-1).index_fill_(0, torch.add(starts, out[number - 1], alpha=step), STRUCK)  # faster than scatter_
        torch.amax(keys, dim, out=found).bitwise_and_(ROOM - 1)


def column_maxima(p: Tensor, out: Tensor) -> Tensor:
    """p (N, K) -> the largest of each of `width` columns, into out (N, width)."""
    width = out.shape[1]
    depth, left = divmod(p.shape[1], width)
    torch.amax(p[:, : depth * width].view(-1, depth, width), 1, out=out)
    if left:
        last = out[:, width - left :]
        torch.maximum(last, p[:, depth * width :], out=last)
    return out


def column_count(p: Tensor, count: int) -> int:
    """The number of columns: near the one with the fewest candidates, and a divisor of the classes if there is one.

    0 where torch.topk is faster.
    """
    classes = p.shape[1]
    ideal = LANES * max(1, round(math.sqrt(count * classes) / LANES))
    width = next((width for width in range(ideal, 2 * ideal, 4) if classes % width == 0), ideal)
    searched = 0 < count <= ROUNDS and classes // width >= 2 * count and p.dtype == torch.float32
    return width if searched and p.device.type in ("cpu", "cuda") else 0
