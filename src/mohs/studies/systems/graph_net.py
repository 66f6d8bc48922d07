"""Graph convolutions with self-attention pooling, several networks side by side as one.

    conv      X′ = D^−½ (A + 1) D^−½ X W + b                     A: edges, D: degrees with the loop
    pool      s = tanh(conv(X, A) to one number); the ⌈ratio · n⌉ nodes of a graph with the largest s stay, X′ = s ⊙ X
    readout   per graph: maximum ‖ mean over its nodes; summed over three rounds of conv, ReLU, pool
    head      linear, ReLU, dropout ½, linear, ReLU, linear

The networks' batches form one graph, their disjoint union, whose parts never touch: network r has graphs r·B to (r + 1)·B − 1.
Every weight has a leading dimension of networks. Everything without weights (normalization, selection, readout) is
torch_geometric's; one network alone is its GCNConv and SAGPooling.
Kipf & Welling (ICLR 2017), eq. 2; Lee, Lee & Kang, "Self-attention graph pooling" (ICML 2019), eqs. 3 to 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mohs.studies.systems.graph_data import Batch

ROUNDS = 3
DROPOUT = 0.5


@dataclass(frozen=True)
class Places:
    """Which network each node belongs to, and its place among that network's nodes; nodes are sorted by network."""

    network: Tensor
    place: Tensor  # in an array with as many places for every network
    networks: int
    most: int  # nodes of one network

    @classmethod
    def of(cls, network: Tensor, networks: int) -> Places:
        counts = torch.bincount(network, minlength=networks)
        most = int(counts.max())
        shift = torch.arange(networks, device=network.device) * most - (counts.cumsum(0) - counts)
        return cls(network, torch.arange(len(network), device=network.device) + shift[network], networks, most)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """x (n, i) times its own network's weight (networks, i, o)."""
        if self.networks == 1:
            return x @ weight[0]
        padded = x.new_zeros(self.networks * self.most, x.shape[1]).index_copy(0, self.place, x)
        return (padded.view(self.networks, self.most, -1) @ weight).flatten(0, 1).index_select(0, self.place)


class GraphNetworks(nn.Module):
    """One network per seed, side by side; called with a batch of equally many graphs for each, it returns logits (g, classes)."""

    def __init__(self, features: int, classes: int, seeds: Sequence[int], *, width: int = 128, ratio: float = 0.5) -> None:
        super().__init__()
        self.ratio, self.networks = ratio, len(seeds)
        shapes = {f"conv{i}": (features if i == 0 else width, width) for i in range(ROUNDS)}
        shapes |= {f"score{i}": (width, 1) for i in range(ROUNDS)}
        shapes |= {"head0": (2 * width, width), "head1": (width, width // 2), "head2": (width // 2, classes)}
        each = [initial(shapes, seed) for seed in seeds]
        self.weights = nn.ParameterDict({name: torch.stack([one[name] for one in each]) for name in each[0]})

    def forward(self, batch: Batch) -> Tensor:
        from torch_geometric.nn import global_max_pool, global_mean_pool
        from torch_geometric.nn.pool.connect.filter_edges import filter_adj
        from torch_geometric.nn.pool.select.topk import topk

        x, edges, graph, graphs = batch.features, batch.edges, batch.graph, len(batch.labels)
        readouts: list[Tensor] = []
        for i in range(ROUNDS):
            places, neighbors = Places.of(graph // (graphs // self.networks), self.networks), normalized(edges, len(x))
            x = self.convolve(f"conv{i}", x, neighbors, places).relu()
            score = self.convolve(f"score{i}", x, neighbors, places).tanh().squeeze(1)
            kept = topk(score, self.ratio, graph)
            edges, _ = filter_adj(edges, None, kept, num_nodes=len(x))
            x, graph = x.index_select(0, kept) * score.index_select(0, kept)[:, None], graph[kept]
            readouts.append(torch.cat([global_max_pool(x, graph, graphs), global_mean_pool(x, graph, graphs)], 1))
        out: Tensor = torch.stack(readouts).sum(0).view(self.networks, -1, readouts[0].shape[1])
        out = F.dropout(self.linear("head0", out).relu(), DROPOUT, training=self.training)
        out = self.linear("head2", self.linear("head1", out).relu())
        return out.flatten(0, 1)

    def convolve(self, name: str, x: Tensor, neighbors: Tensor, places: Places) -> Tensor:
        """The graph convolution of this name, in every network."""
        mixed: Tensor = SymmetricProduct.apply(neighbors, places.linear(x, self.weights[f"{name}_weight"]))
        bias: Tensor = self.weights[f"{name}_bias"]
        return mixed + bias.index_select(0, places.network)

    def linear(self, name: str, x: Tensor) -> Tensor:
        """The linear layer of this name on x (networks, g, i)."""
        return torch.baddbmm(self.weights[f"{name}_bias"][:, None], x, self.weights[f"{name}_weight"])


def normalized(edges: Tensor, nodes: int) -> Tensor:
    """D^−½ (A + 1) D^−½ as a sparse matrix; symmetric, since the edges go both ways."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    looped, weight = gcn_norm(edges, None, nodes)
    return torch.sparse_coo_tensor(looped, weight, (nodes, nodes), check_invariants=False).coalesce()


class SymmetricProduct(torch.autograd.Function):
    """S X for a sparse symmetric S without a gradient, whose transpose, for the gradient of X, is S itself."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ grads[0]


def initial(shapes: dict[str, tuple[int, int]], seed: int) -> dict[str, Tensor]:
    """Weights (in, out) and biases of one network: Glorot and 0 for convolutions, as nn.Linear for the head."""
    draw, made = torch.Generator().manual_seed(seed), {}
    for name, (inputs, outputs) in shapes.items():
        head = name.startswith("head")
        bound = 1 / math.sqrt(inputs) if head else math.sqrt(6 / (inputs + outputs))
        made[f"{name}_weight"] = torch.empty(inputs, outputs).uniform_(-bound, bound, generator=draw)
        made[f"{name}_bias"] = torch.empty(outputs).uniform_(-bound, bound, generator=draw) if head else torch.zeros(outputs)
    return made
