"""Many small graphs as flat arrays, and the disjoint union of some of them as one batch.

`graph-NAME.npz` in the folder that MOHS_DATA names: `graph` (the graph of each node), `node_label`, `edges` (E, 2) with both
directions of every edge, and `y`. A node's features are its label, one-hot. "synthetic" needs no file: rings against stars.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.read_options import Reading

SYNTHETIC = "synthetic"
NODES, GRAPHS = (4, 12), 60  # synthetic set: nodes of a graph (minimum, maximum), and number of graphs


@dataclass(frozen=True)
class Batch:
    """The disjoint union of several graphs: features (n, d), edges (2, e), graph of each node (n,), labels (g,)."""

    features: Tensor
    edges: Tensor
    graph: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Graphs:
    """Nodes and edges of all graphs, sorted by graph; edges number the nodes from the first node of their graph."""

    features: Tensor
    edges: Tensor
    labels: Tensor
    nodes_of: Tensor  # (G + 1,): the nodes of graph i are nodes_of[i] to nodes_of[i + 1] − 1
    edges_of: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    def to(self, device: torch.device | str) -> Graphs:
        return Graphs(*(part.to(device) for part in (self.features, self.edges, self.labels, self.nodes_of, self.edges_of)))

    def batch(self, chosen: Tensor) -> Batch:
        """The union of these graphs, in this order; a graph may occur several times."""
        nodes, graph = expand(self.nodes_of, chosen)
        edges, owner = expand(self.edges_of, chosen)
        sizes = self.nodes_of[chosen + 1] - self.nodes_of[chosen]
        first = sizes.cumsum(0) - sizes
        return Batch(self.features[nodes], self.edges[:, edges] + first[owner], graph, self.labels[chosen])


def expand(bounds: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """All places from bounds[i] to bounds[i + 1] − 1 for every i chosen, and for each place the position of its i in `chosen`."""
    sizes = bounds[chosen + 1] - bounds[chosen]
    owner = torch.arange(len(chosen), device=chosen.device).repeat_interleave(sizes)
    before = sizes.cumsum(0) - sizes
    return torch.arange(len(owner), device=chosen.device) - before[owner] + bounds[chosen][owner], owner


def read_graphs(name: str) -> Graphs:
    """The graphs of this name."""
    if name == SYNTHETIC:
        return rings_and_stars()
    home = Reading.of().home(name)
    file = home / f"graph-{name}.npz"
    if not file.is_file():
        known = sorted(path.stem.removeprefix("graph-") for path in home.glob("graph-*.npz"))
        raise DataError(f"{file}: no such file; graphs in this folder: {', '.join(known) or '(none)'}")
    with np.load(file, allow_pickle=False) as held:
        return flat(held["graph"], held["node_label"], held["edges"], held["y"])


def flat(graph: np.ndarray, node_label: np.ndarray, edges: np.ndarray, y: np.ndarray) -> Graphs:
    """Graphs from the graph and label of each node, the edges (E, 2), and the label of each graph; labels are numbered from 0."""
    if (np.diff(graph) < 0).any():
        raise DataError("the nodes are not sorted by graph")
    kinds, kind = np.unique(node_label, return_inverse=True)
    _, labels = np.unique(y, return_inverse=True)
    nodes_of = np.searchsorted(graph, np.arange(len(y) + 1))
    owner = graph[edges[:, 0]]
    order = np.argsort(owner, kind="stable")
    edges_of = np.searchsorted(owner[order], np.arange(len(y) + 1))
    local = edges[order].T - nodes_of[owner[order]]
    return Graphs(
        torch.eye(len(kinds))[torch.from_numpy(kind)],
        *(torch.from_numpy(np.ascontiguousarray(part)).long() for part in (local, labels, nodes_of, edges_of)),
    )


def rings_and_stars() -> Graphs:
    """Rings (class 0) and stars (class 1) of nodes with one of two random labels."""
    draw = np.random.default_rng(0)
    graph, edges, first = [], [], 0
    y = np.arange(GRAPHS) % 2
    for i, star in enumerate(y):
        size = int(draw.integers(*NODES))
        own = np.arange(size)
        pairs = np.stack([np.zeros_like(own[1:]), own[1:]], 1) if star else np.stack([own, (own + 1) % size], 1)
        edges += [pairs + first, pairs[:, ::-1] + first]
        graph += [i] * size
        first += size
    return flat(np.array(graph), draw.integers(0, 2, first), np.concatenate(edges), y)
