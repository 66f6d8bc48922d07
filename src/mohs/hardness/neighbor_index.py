"""Nearest neighbors of many examples: exact for few, by an index for many, so that time grows as N log N.

    up to EXACT examples      every pair is compared (`neighbors.cosines_among`); on a GPU up to GPU_EXACT
    more, with faiss          a graph of navigable small worlds (HNSW; Malkov & Yashunin, TPAMI 2020) over all examples
    more, without it          all examples, among SAMPLED drawn at random: fine for agreement, but copies are missed

Examples are inserted into the graph, and searched, cluster by cluster: examples that are compared are then adjacent in memory,
which saves a third of the time at 10⁵ examples. faiss is the extra `neighbors`. Of the indexes of usearch, hnswlib and faiss, all
of which find the same neighbors, hnswlib is the fastest but unmaintained; see results/issues.md.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from mohs.hardness.neighbors import NONE, cosines_among, directions_of, nearest_with_cosines

EXACT, GPU_EXACT = 50_000, 500_000
CPU = torch.device("cpu")
SAMPLED, FEWEST, COSINES = 50_000, 10_000, 2.5e9  # references drawn at random: maximum, minimum, and total number of comparisons
LINKS, BUILD, SEARCH = 16, 48, 48  # links per node of the graph; candidates while building and searching
ROUNDS, PER_CENTER = 3, 32  # k-means for the order: iterations, and examples per center


def has_index() -> bool:
    """Whether faiss is installed."""
    return find_spec("faiss") is not None


def can_search(examples: int, device: torch.device = CPU) -> bool:
    """Whether the neighbors of this many examples can be searched in reasonable time."""
    return is_exact(examples, device) or has_index()


def is_exact(examples: int, device: torch.device = CPU) -> bool:
    """Whether every pair of this many examples is compared."""
    return examples <= (GPU_EXACT if device.type == "cuda" else EXACT)


def how_nearest(examples: int, device: torch.device = CPU) -> str:
    """A description of how the neighbors of this many examples are searched."""
    if is_exact(examples, device):
        return "exact"
    return (
        "approximate, by an index of all examples" if has_index() else f"among {references(examples):,} examples drawn at random"
    )


def references(examples: int) -> int:
    """Number of examples among which neighbors are searched without an index."""
    return examples if examples <= EXACT else max(FEWEST, min(SAMPLED, int(COSINES / examples)))


@torch.no_grad()
def many_nearest(features: Tensor, *, k: int = 10, device: torch.device = CPU) -> tuple[Tensor, Tensor]:
    """features (N, D) -> rows of the k nearest (N, k), the nearest first, and their cosines, as `nearest_with_cosines`.

    Both are on the CPU; device: where pairs are compared.
    """
    count = len(features)
    if is_exact(count, device) or not has_index():
        among = count if is_exact(count, device) else references(count)
        near, cosines = nearest_with_cosines(features.to(device), k=k, references=among)
        return near.cpu(), cosines.cpu()
    directions, usable = directions_of(features)
    return nearest_of(directions, directions, usable.nonzero().squeeze(1), k=k)


@torch.no_grad()
def nearest_of(queries: Tensor, directions: Tensor, rows: Tensor, *, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest of each query (N, D) among the unit vectors `directions` (N, D) at these rows, excluding its own row."""
    if is_exact(len(rows), queries.device) or not has_index():
        return cosines_among(queries, directions[rows], rows, k=k)
    import faiss

    graph = faiss.IndexHNSWFlat(directions.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction, graph.hnsw.efSearch = BUILD, SEARCH
    known, asked = directions[rows].cpu().contiguous(), queries.cpu().contiguous()
    clusters = _clusters(known)
    stored, order = (clusters(one).sort(stable=True).indices for one in (known, asked))
    graph.add(known[stored].numpy())
    answers = map(torch.from_numpy, graph.search(asked[order].numpy(), k + 1))
    cosines, places = (torch.empty_like(one).index_copy_(0, order, one) for one in answers)
    found = torch.where(places < 0, NONE, rows.cpu()[stored][places.clamp(min=0)])
    found = found.masked_fill((queries == 0).all(1, keepdim=True).cpu(), NONE)
    own = found == torch.arange(len(queries)).unsqueeze(1)
    cosines = cosines.masked_fill(own | (found == NONE), -torch.inf)
    best, order = cosines.topk(k, 1)
    near = found.gather(1, order).masked_fill(best == -torch.inf, NONE)
    return near, best.masked_fill(near == NONE, torch.nan)


def _clusters(vectors: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from unit vectors (n, D) to the number of their cluster (n,), among √N clusters of these."""
    import faiss

    settings = {"niter": ROUNDS, "max_points_per_centroid": PER_CENTER, "spherical": True, "seed": 0}
    means = faiss.Kmeans(vectors.shape[1], int(len(vectors) ** 0.5), **settings)
    means.train(vectors.numpy())
    return lambda some: torch.from_numpy(means.index.search(some.numpy(), 1)[1])[:, 0]
