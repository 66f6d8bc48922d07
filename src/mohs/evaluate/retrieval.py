"""Retrieval of unseen classes by features: mean average precision and CMC.

    AP_q = (1/R_q) Σ_{ranks r of matches} (matches up to r)/r          mAP = mean over queries
    CMC-k = share of queries with a match among the k most similar

Similarity is the cosine. Sets of examples, such as the frames of a video, are compared by their mean directions (`set_means`).
Without a gallery each example queries all others (leave-one-out). Queries without a match in the
gallery have no AP: they are skipped, and counted in `skipped`. Time is O(Q G log G), memory
one block of queries × the gallery, never Q × G. Ties are broken by the order of the gallery.
Zheng et al., "MARS" (ECCV 2016), section 4; Gradient Rescaling, Table 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.angle import unit
from mohs.evaluate.validate_inputs import numbers, same_length

BLOCK_ENTRIES = 2**23  # cosines at a time: 32 MB, and about 128 MB to sort them


@dataclass(frozen=True)
class Retrieval:
    """Mean average precision and {k: CMC-k} from 0 to 1; numbers of queries used and of queries without a match."""

    mean_average_precision: float
    cmc: dict[int, float]
    queries: int
    skipped: int


@torch.no_grad()
def retrieval(
    features: Any, labels: Any, gallery: Any = None, gallery_labels: Any = None, *, ranks: Sequence[int] = (1, 5)
) -> Retrieval:
    """Queries (Q, D) with labels (Q,), and optionally a gallery (G, D) with labels (G,) -> mAP and CMC at these ranks."""
    if not ranks or min(ranks) < 1:
        raise ValueError(f"ranks must be integers of at least 1, got {list(ranks)}")
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("give both gallery and gallery_labels, or neither for leave-one-out")
    queries, y = _directions("features", features, "labels", labels)
    found, theirs = (queries, y) if gallery is None else _directions("gallery", gallery, "gallery_labels", gallery_labels)
    if queries.shape[1] != found.shape[1]:
        raise ValueError(f"features have {queries.shape[1]} dimensions and gallery {found.shape[1]}")
    found, theirs = found.to(queries), theirs.to(y.device)
    blocks = list(_blocks(queries, y, found, theirs, left_out=gallery is None))
    precision, first, counted = (torch.cat([block[i] for block in blocks]) for i in range(3))
    used = int(counted.sum())
    if not used:
        raise DataError("no query has a match in the gallery: do the two share any class?")
    cmc = {k: float((first[counted] < k).double().mean()) for k in ranks}
    return Retrieval(float(precision[counted].mean()), cmc, used, len(y) - used)


def set_means(features: Any, labels: Any, size: int) -> tuple[Tensor, Tensor]:
    """Mean direction and label of sets of `size` examples of one class, in their order; a remainder is dropped."""
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    x, y = _directions("features", features, "labels", labels)
    means, names = [], []
    for name in torch.unique(y):
        own = x[y == name]
        whole = len(own) // size
        means.append(own[: whole * size].view(whole, size, -1).mean(1))
        names.append(name.expand(whole))
    return torch.cat(means), torch.cat(names)


def _blocks(
    queries: Tensor, y: Tensor, gallery: Tensor, theirs: Tensor, *, left_out: bool
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For a block of queries (b,): average precision, rank of the first match from 0, whether there is a match."""
    step = max(1, BLOCK_ENTRIES // len(gallery))
    place = torch.arange(1, len(gallery) + 1, device=queries.device, dtype=torch.float64)
    for start in range(0, len(queries), step):
        cos = queries[start : start + step] @ gallery.T  # (b, G)
        own = torch.arange(start, start + len(cos), device=cos.device)
        if left_out:
            cos[torch.arange(len(cos), device=cos.device), own] = -torch.inf  # itself comes last and does not count
        order = cos.argsort(dim=1, descending=True, stable=True)
        match = theirs[order] == y[start : start + step].unsqueeze(1)
        if left_out:
            match &= order != own.unsqueeze(1)
        hits = match.sum(1)
        precision = (match.cumsum(1) / place * match).sum(1) / hits.clamp(min=1)
        yield precision, match.int().argmax(1), hits > 0


def _directions(name: str, features: Any, labels_name: str, labels: Any) -> tuple[Tensor, Tensor]:
    x = numbers(name, features, dims=(2,))
    y = torch.as_tensor(labels)
    same_length(**{name: x, labels_name: y})
    return unit(x), y.to(x.device)
