"""Graph networks side by side: each is torch_geometric's GCN with SAGPool, and trains as it would alone."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mohs._core.errors import DataError
from mohs.studies.collect import collect
from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import estimate_study, run_study
from mohs.studies.systems import graph_net
from mohs.studies.systems.graph_data import Batch, Graphs, flat, read_graphs
from mohs.studies.systems.graph_net import GraphNetworks
from mohs.studies.systems.graphs import GraphClassification, train_networks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, about torch.jit
    geometric = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed (the graphs extra)")

RECIPE = Path(__file__).parents[3] / "recipes/el/graphs.toml"


@pytest.fixture(scope="module")
def graphs() -> Graphs:
    return read_graphs("synthetic")


class Plain(nn.Module):
    """The network of one seed, of torch_geometric's layers."""

    def __init__(self, net: GraphNetworks, at: int) -> None:
        super().__init__()
        self.weights = {name: value[at] for name, value in net.weights.items()}

    def layer(self, layer: nn.Module, name: str) -> nn.Module:
        linear = layer if isinstance(layer, nn.Linear) else layer.lin
        linear.weight.data, layer.bias.data = self.weights[f"{name}_weight"].T, self.weights[f"{name}_bias"]
        return layer

    def forward(self, batch: Batch) -> Tensor:
        x, edges, graph, total = batch.features, batch.edges, batch.graph, 0
        width = self.weights["conv0_weight"].shape[1]
        for i in range(3):
            x = self.layer(geometric.GCNConv(x.shape[1], width), f"conv{i}")(x, edges).relu()
            pool = geometric.SAGPooling(width, 0.5, GNN=geometric.GCNConv)
            self.layer(pool.gnn, f"score{i}")
            pool.select.weight.data.fill_(1.0)  # only its sign counts there: the score of the paper, or its negative
            x, edges, _, graph, _, _ = pool(x, edges, None, graph)
            total = total + torch.cat([geometric.global_max_pool(x, graph), geometric.global_mean_pool(x, graph)], 1)
        for i, after in enumerate((torch.relu, torch.relu, lambda out: out)):
            shape = self.weights[f"head{i}_weight"].shape
            total = after(self.layer(nn.Linear(*shape), f"head{i}")(total))
        return total


def test_each_network_is_torch_geometrics(graphs: Graphs) -> None:
    draw = torch.Generator().manual_seed(0)
    graphs = dataclasses.replace(graphs, features=torch.randn(graphs.features.shape, generator=draw))  # no ties in the pooling
    net = GraphNetworks(2, 2, [3, 4, 5], width=8).eval()
    chosen = torch.randperm(len(graphs), generator=draw)[:45]
    ours = net(graphs.batch(chosen)).view(3, 15, 2)
    for i, own in enumerate(chosen.view(3, 15)):
        torch.testing.assert_close(ours[i], Plain(net, i)(graphs.batch(own)), rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_the_dense_product(graphs: Graphs) -> None:
    neighbors = graph_net.normalized(graphs.batch(torch.arange(4)).edges, len(graphs.batch(torch.arange(4)).features))
    x = torch.randn(neighbors.shape[0], 3, dtype=torch.double, requires_grad=True)
    dense = neighbors.to_dense().double()
    torch.testing.assert_close(dense, dense.T)
    weight = torch.randn_like(x)
    (ours,) = torch.autograd.grad((graph_net.SymmetricProduct.apply(neighbors.double(), x) * weight).sum(), x)
    (theirs,) = torch.autograd.grad(((dense @ x) * weight).sum(), x)
    torch.testing.assert_close(ours, theirs)


def test_networks_side_by_side_end_as_alone(graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when some of them stop early: splits, weights and order belong to the seed. Dropout, which is shared, is off."""
    monkeypatch.setattr(graph_net, "DROPOUT", 0.0)
    run = GraphClassification(data="synthetic", width=8, batch=16, patience=2, epochs=12, lr=0.02, start=2, loss="encouraging")
    together = train_networks(run, graphs, [0, 1, 2, 3]).best
    assert len(set(together[:, 3].tolist())) > 1  # they stop at different epochs
    alone = torch.cat([train_networks(run, graphs, [seed]).best for seed in range(4)])
    torch.testing.assert_close(together, alone)


def test_rings_are_told_from_stars(graphs: Graphs) -> None:
    run = GraphClassification(data="synthetic", splits=2, width=16, batch=16, patience=20, epochs=40, lr=0.02)
    (numbers,) = GraphClassification.train([run], device="cpu")
    assert numbers["test_accuracy"] > 0.9
    assert numbers["classes"] == 2


def test_a_batch_is_the_disjoint_union() -> None:
    edges = np.array([[0, 1], [1, 0], [2, 3], [3, 2], [3, 4], [4, 3]])
    graphs = flat(np.array([0, 0, 1, 1, 1]), np.array([5, 7, 7, 5, 7]), edges, np.array([2, 1]))
    batch = graphs.batch(torch.tensor([1, 0, 1]))
    assert batch.labels.tolist() == [0, 1, 0]
    assert batch.graph.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert batch.features.argmax(1).tolist() == [1, 0, 1, 0, 1, 1, 0, 1]
    assert batch.edges.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [3, 4], [4, 3], [5, 6], [6, 5], [6, 7], [7, 6]]


def test_the_recipe_runs_and_resumes(tmp_path: Path) -> None:
    recipe, told = read_recipe(RECIPE, scale="smoke"), []
    first = run_study(recipe, runs=tmp_path, device="cpu", watch=told.append)
    assert [one["row"] for one in first] == [row.label for row in recipe.rows]
    assert all(0 <= one["test_accuracy"] <= 1 and one["classes"] == 2 and one["git"] for one in first)
    assert len(told) == 3  # rows that are equal at this scale are trained once
    told.clear()
    assert run_study(recipe, runs=tmp_path, device="cpu", watch=told.append) == first == collect(recipe, runs=tmp_path)
    assert told == []
    assert estimate_study(recipe, runs=tmp_path, device="cpu").to_train == 0


def test_wrong_settings_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = RECIPE.read_text()
    for old, new, message in (
        ("splits = 10", "folds = 10", "graphs has no setting 'folds'"),
        ('system = "graphs"', 'system = "graph"', "system must be one of graphs"),
        ("ratio = 0.5", "ratio = 1.5", "ratio"),
        ('label = "PROTEINS CE"', 'label = "PROTEINS CE"\nchoose = {key = "lr", values = [1, 2]}', "need a run of `mohs train`"),
        ("[smoke]", '[[measure]]\nname = "ece"\n[smoke]', "graphs reports its own numbers"),
        ('{name = "encouraging", log_end = 0.5}', '"gradient_rescaling"', "depends on the whole batch"),
    ):
        path = tmp_path / "wrong.toml"
        path.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=message):
            read_recipe(path)
    monkeypatch.setenv("MOHS_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"graph-NCI9.npz: no such file"):
        read_graphs("NCI9")
