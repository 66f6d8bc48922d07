"""Whether the nearest neighbors in feature space have the same label, and which label most of them have.

    agreement_i = #{j in kNN(i): y_j = y_i} / |kNN(i)|          kNN(i): the k references of largest cosine to x_i, i left out

Exact up to N = `references` (50,000); beyond it neighbors are searched among that many examples, sampled with `seed`, so time is
O(N · references) and memory O(N k) and one block of cosines, never N × N. Features without a direction (all zero, or holding
NaN or ∞) have no neighbors and are not neighbors of others; if fewer than k other examples remain, all of them count. Copies of
an example are ordinary neighbors. Ties in cosine are broken arbitrarily.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.forward import row_slices
from mohs.angle import check_vectors, unit
from mohs.hardness.ranks import drawn_rows

NONE = -1  # no neighbor, no label
COLUMNS, ENTRIES = 2**16, 2**25  # references and cosines in a block: 128 MB; few tall blocks cost less than many small ones
GROUP = 16  # the best k of a row lie in the k groups of this many with the best leaders: most entries are read once


def neighbor_agreement(features: Tensor, labels: Tensor, *, k: int = 10, references: int = 50_000, seed: int = 0) -> Tensor:
    """features (N, D), labels (N,) -> share of the k nearest neighbors that have the same label (N,); NaN without neighbors."""
    return agreement(nearest(features, k=k, references=references, seed=seed), labels)


@torch.no_grad()
def nearest(features: Tensor, *, k: int = 10, references: int = 50_000, seed: int = 0) -> Tensor:
    """features (N, D) -> rows of the k nearest (N, k), the nearest first; −1 if there are fewer."""
    return nearest_with_cosines(features, k=k, references=references, seed=seed)[0]


@torch.no_grad()
def nearest_with_cosines(features: Tensor, *, k: int = 10, references: int = 50_000, seed: int = 0) -> tuple[Tensor, Tensor]:
    """features (N, D) -> rows of the k nearest (N, k), as `nearest`, and their cosines (N, k); NaN for no neighbor."""
    if k < 1 or references < 1:
        raise ValueError(f"k and references must be at least 1, got k={k}, references={references}")
    directions, usable = directions_of(features)
    among = usable.nonzero().squeeze(1)
    if among.numel() > references:
        among = among[torch.from_numpy(drawn_rows(among.numel(), references, seed=seed)).to(among.device)]
    return cosines_among(directions, directions[among], among, k=k)


@torch.no_grad()
def nearest_among(queries: Tensor, references: Tensor, rows: Tensor, *, k: int, own: Tensor | None = None) -> Tensor:
    """Directions (n, D) of the rows `own` (n,), by default 0..n−1, and (R, D) of the `rows` in rising order -> nearest (n, k)."""
    return cosines_among(queries, references, rows, k=k, own=own)[0]


@torch.no_grad()
def cosines_among(
    queries: Tensor, references: Tensor, rows: Tensor, *, k: int, own: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As `nearest_among`, with the cosines (n, k) of the nearest; NaN for no neighbor."""
    found = torch.full((queries.shape[0], k), NONE, device=queries.device)
    cosines = queries.new_full((queries.shape[0], k), torch.nan)
    width = min(COLUMNS, references.shape[0])
    height = max(1, min(queries.shape[0], ENTRIES // max(1, width)))
    if not width:
        return found, cosines
    every = torch.arange(queries.shape[0]) if own is None else own
    block = queries.new_empty(height, -(-width // GROUP) * GROUP)
    for i in row_slices(queries.shape[0], height):
        own = every[i].to(queries.device)
        best = queries.new_full((len(own), 0), 0.0), own.new_zeros(len(own), 0)
        for j in row_slices(references.shape[0], width):
            cos = block[: len(own)]
            cos[:, j.stop - j.start :] = -torch.inf  # fills up the last groups
            torch.mm(queries[i], references[j].T, out=cos[:, : j.stop - j.start])
            at = torch.searchsorted(rows[j], own).clamp(max=j.stop - j.start - 1)
            itself = (rows[j][at] == own).nonzero().squeeze(1)
            cos[itself, at[itself]] = -torch.inf
            values, places = _top(cos, k)
            best = torch.cat([best[0], values], 1), torch.cat([best[1], places + j.start], 1)
        values, order = best[0].topk(min(k, best[0].shape[1]), 1)
        places = best[1].gather(1, order).clamp(max=references.shape[0] - 1)
        found[i, : values.shape[1]] = torch.where(values == -torch.inf, NONE, rows[places])
        cosines[i, : values.shape[1]] = values
    found = found.masked_fill((queries == 0).all(1, keepdim=True), NONE)
    return found, cosines.masked_fill(found == NONE, torch.nan)


def directions_of(features: Tensor) -> tuple[Tensor, Tensor]:
    """features (N, D) -> unit vectors, zero without a direction, and whether there is one (N,)."""
    check_vectors("features", features)
    if features.dim() != 2:
        raise ValueError(f"features must have shape (N, D), got {tuple(features.shape)}")
    directions = unit(features).float()
    directions = directions.masked_fill(~directions.isfinite().all(1, keepdim=True), 0.0)
    return directions, (directions != 0).any(1)


@torch.no_grad()
def agreement(near: Tensor, labels: Tensor) -> Tensor:
    """Rows of neighbors (N, k) from `nearest`, labels (N,) -> share with the row's own label (N,); NaN for no neighbors."""
    theirs = neighbor_labels(near, labels)
    return shared(theirs, labels)


def neighbor_labels(near: Tensor, labels: Tensor) -> Tensor:
    """The neighbors' labels (N, k); −1 for no neighbor."""
    if labels.dim() != 1 or labels.shape[0] != near.shape[0]:
        raise ValueError(f"labels must have shape ({near.shape[0]},), one per row of features, got {tuple(labels.shape)}")
    return torch.where(near == NONE, NONE, labels.to(near.device).long()[near.clamp(min=0)])


def shared(theirs: Tensor, labels: Tensor) -> Tensor:
    """Neighbors' labels (N, k) and own labels (N,) -> the share that agree (N,)."""
    there = theirs != NONE
    return ((theirs == labels.to(theirs.device).unsqueeze(1)) & there).sum(1) / there.sum(1)  # 0/0 = NaN


def _top(cos: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The largest k (or all) of each row and their columns; the same as `topk`, several times faster on the CPU."""
    n, m = cos.shape
    if m % GROUP or m // GROUP <= 2 * k:
        values, at = cos.topk(min(k, m), 1)
        return values, at
    groups = cos.view(n, GROUP, m // GROUP)  # group g: columns g, g + m/GROUP, ...: the maximum runs along the memory
    leading = groups.amax(1).topk(k, 1, sorted=False).indices  # (n, k)
    candidates = groups.gather(2, leading.unsqueeze(1).expand(-1, GROUP, -1)).view(n, GROUP * k)
    values, at = candidates.topk(k, 1)
    return values, leading.gather(1, at % k) + at // k * (m // GROUP)
