"""The classes with the largest probabilities, faster than torch.topk.

torch.topk scans the entries one by one. Here the classes are laid out in columns, whose maxima are vectorized; only the τ
columns with the highest maxima can hold the τ largest, and these few candidates are searched by τ rounds of max.
`amax` does not return positions, so each value carries its own: the bits of numbers ≥ 0, read as integers, sort as the
numbers do, and a float32 converted to float64 has 29 low bits free for the position.
A `TopClasses` searches block after block in the same memory, which stays in the cache.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LANES = 64  # the number of columns is a multiple of the vector width
ROUNDS = 4  # for a larger count torch.topk is faster
LARGE = 1 << 14  # with at least this many entries and few classes, all are searched by rounds of max
ROOM = 1 << 29  # bits for the position: float64 has 29 more mantissa bits than float32
STRUCK = torch.iinfo(torch.int64).min  # below every value, NaN included


def top_classes(p: Tensor, count: int, maxima: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """p (N, K) ≥ 0 -> the `count` largest of each row and their classes, (N, count) each, in descending order.

    maxima: `column_maxima` of p, if already computed; without columns, of width 0.
    """
    return TopClasses(p, count)(p, maxima)


class TopClasses:
    """`top_classes` of blocks with as many rows as p (N, K), without a gradient."""

    def __init__(self, p: Tensor, count: int) -> None:
        self.shape, self.count, self.width = p.shape, count, column_count(p, count)
        self.maxima = p.new_empty(len(p), self.width if self.width < p.shape[1] else 0)  # memory for `column_maxima`
        if not self.width:
            return
        (rows, classes), width = p.shape, self.width
        self.row = torch.arange(rows, device=p.device)
        self.found = torch.empty(count, rows, dtype=torch.int64, device=p.device)
        self.columns = Largest((rows, width), self.found, 1)
        if width == classes:
            return
        self.left = classes % width
        lines = torch.arange(0, classes, width, device=p.device)  # start of each line of `width` classes
        if self.left:  # the last line is the last `width` classes: of these only the last `left` are not in the line before
            lines[-1] = classes - width
        self.lines, self.starts = lines.view(-1, 1, 1), self.row * classes
        self.candidates = torch.empty(len(lines), count, rows, dtype=torch.int64, device=p.device)
        self.values = p.new_empty(len(lines) * count, rows)
        self.places = Largest((len(lines) * count, rows), self.found, 0)

    def __call__(self, p: Tensor, maxima: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if p.shape != self.shape:
            return TopClasses(p, self.count)(p, maxima)
        if not self.width:
            return p.topk(self.count, dim=1)
        rows, found = len(p), self.found
        if self.width == p.shape[1]:
            self.columns(p)
            classes = found.t().contiguous()
            return p.gather(1, classes), classes
        self.columns(column_maxima(p, self.maxima) if maxima is None else maxima)
        beside = found < self.width - self.left if self.left else None
        torch.add(self.lines, found.add_(self.starts), out=self.candidates)
        torch.index_select(p.reshape(-1), 0, self.candidates.view(-1), out=self.values.view(-1))
        if beside is not None:
            self.values[-self.count :].masked_fill_(beside, -1.0)  # these are in the line before already
        self.places(self.values)
        at = found.mul_(rows).add_(self.row)
        return self.values.take(at).t(), self.candidates.take(at).sub_(self.starts).t()


class Largest:
    """The places of the largest entries along a dimension of x, in float32: one row of `found` for each, in descending order."""

    def __init__(self, shape: tuple[int, int], found: Tensor, dim: int) -> None:
        keys = torch.empty(shape, dtype=torch.int64, device=found.device)
        self.keys, self.numbers, self.flat, self.dim = keys, keys.view(torch.float64), keys.view(-1), dim
        self.found, self.step = found.unbind(), keys.stride(dim)
        places = torch.arange(shape[dim], device=found.device)
        self.places = places.unsqueeze(1 - dim)
        self.starts = torch.arange(found.shape[1], device=found.device) * keys.stride(1 - dim)

    def __call__(self, x: Tensor) -> None:
        self.numbers.copy_(x)
        self.keys.bitwise_or_(self.places)
        last = None
        for found in self.found:
            if last is not None:
                self.flat.index_fill_(0, torch.add(self.starts, last, alpha=self.step), STRUCK)  # faster than scatter_
            last = torch.amax(self.keys, self.dim, out=found).bitwise_and_(ROOM - 1)


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

    All classes if they are few, and 0 if torch.topk is faster.
    """
    classes = p.shape[1]
    if not 0 < count <= ROUNDS or p.dtype != torch.float32 or p.device.type not in ("cpu", "cuda"):
        return 0
    ideal = LANES * max(1, round(math.sqrt(count * classes) / LANES))
    width = next((width for width in range(ideal, 2 * ideal, 4) if classes % width == 0), ideal)
    if classes // width >= 2 * count:
        return width
    return classes if p.is_cpu and p.numel() >= LARGE else 0
