"""Softmax with its mean logit, and the gradient that goes with them, for some hundred rows at a time.

On a processor each operation reads what the one before it wrote: kept to as many rows as its cache holds, that is there still
and need not come from memory. Elsewhere, or where torch traces the operations, all rows are taken at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs.losses._numerics.top_classes import column_maxima
from mohs.margin import readable

ENTRIES = 1 << 19  # of a block of rows


def softmax_rows(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """logits (N, K) -> p (N, K), m = Σ p z (N, 1) and the maxima with which `top_classes` begins its search for `count`."""
    if not readable(logits):
        p = torch.softmax(logits, 1)
        return p, (p * logits).sum(1, keepdim=True), column_maxima(p, count)
    p, rows = torch.empty_like(logits, memory_format=torch.contiguous_format), _block_rows(logits)
    means, maxima = logits.new_empty(len(logits), 1), []
    for z, block, mean in zip(*(torch.split(tensor, rows) for tensor in (logits, p, means)), strict=True):
        torch.softmax(z, 1, out=block)
        mean_logit(block, z, mean)
        maxima.append(column_maxima(block, count))
    found = [columns for columns in maxima if columns is not None]
    return p, means, torch.cat(found) if found else None


def mean_logit(p: Tensor, logits: Tensor, out: Tensor) -> None:
    """Σ p z of each row into out (N, 1): by products of matrices, unless the user lets those be less exact than sums.

    With `out` autocast leaves them alone.
    """
    if torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee"):  # type: ignore[attr-defined]
        torch.bmm(p.unsqueeze(1), logits.unsqueeze(1).transpose(1, 2), out=out.unsqueeze(2))
    else:
        torch.sum(p * logits, 1, keepdim=True, out=out)


def times_line(p: Tensor, logits: Tensor, slope: Tensor, offset: Tensor, *, in_place: bool) -> Tensor:
    """p (slope · z + offset), (N, K); slope (N, 1), offset (N, 1) or (N, K); in_place: p may be written over."""
    if not in_place:
        return p * (slope * logits + offset)
    if not readable(logits):
        return p.mul_(torch.addcmul(offset, slope, logits))
    rows = _block_rows(logits)
    room = torch.empty_like(p[:rows])
    for block, z, by, plus in zip(*(torch.split(tensor, rows) for tensor in (p, logits, slope, offset)), strict=True):
        block.mul_(torch.mul(z, by, out=room[: len(z)]).add_(plus))
    return p


def _block_rows(logits: Tensor) -> int:
    return max(1, ENTRIES // logits.shape[1])
