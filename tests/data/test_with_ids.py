"""Ids travel with the items: through tuples, mappings, subsets, samplers and workers."""

from __future__ import annotations

import warnings
from collections import namedtuple

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset

import mohs
from mohs.data.with_ids import WithIds, with_id


class Pairs(Dataset):
    """Items whose input tells their place: (10 · i, i mod 3)."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([10.0 * index]), index % 3


class Records(Pairs):
    def __getitem__(self, index: int) -> dict[str, object]:
        values, label = super().__getitem__(index)
        return {"input": values, "label": label}


class Batched(Pairs):
    """One that is quicker by the batch, and says so."""

    calls = 0

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        self.calls += 1
        return [self[i] for i in indices]


def test_tuples_and_mappings_get_an_id() -> None:
    values, label, place = WithIds(Pairs())[4]
    assert (float(values), label, place) == (40.0, 1, 4)
    assert WithIds(Records())[4]["id"] == 4
    assert WithIds(Records(), key="row")[4] == {"input": torch.tensor([40.0]), "label": 1, "row": 4}
    assert len(WithIds(Pairs())) == 12
    pair = namedtuple("Pair", ["x", "y"])(1, 2)
    assert with_id(pair, 7) == with_id([1, 2], 7) == (1, 2, 7)


def test_negative_and_numpy_indices_give_the_same_item() -> None:
    data = WithIds(Pairs())
    assert data[-1][2] == 11
    assert data[torch.tensor(3)][2] == 3
    for index in (12, -13):
        with pytest.raises(IndexError, match="out of range for a data set of 12"):
            data[index]
    assert [item[2] for item in data] == list(range(12))  # a plain loop ends where the data set does


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Pairs, Records, Batched])
def test_through_a_shuffling_loader_every_id_keeps_its_item(kind: type, workers: int) -> None:
    loader = DataLoader(WithIds(kind()), batch_size=5, shuffle=True, num_workers=workers)
    seen = []
    for batch in loader:
        values, labels, ids = batch.values() if isinstance(batch, dict) else batch
        assert torch.equal(values[:, 0], 10.0 * ids)
        assert torch.equal(labels, ids % 3)
        assert ids.dtype == torch.int64
        seen += ids.tolist()
    assert sorted(seen) == list(range(12))


def test_batches_are_fetched_by_the_data_set_itself() -> None:
    inner = Batched()
    list(DataLoader(WithIds(inner), batch_size=4))
    assert inner.calls == 3


def test_a_subset_keeps_its_ids_and_a_wrapped_subset_is_renumbered() -> None:
    chosen = [7, 2, 9]
    kept = [ids.tolist() for _, _, ids in DataLoader(Subset(WithIds(Pairs()), chosen), batch_size=3)]
    assert kept == [[7, 2, 9]]
    afresh = next(iter(DataLoader(WithIds(Subset(Pairs(), chosen)), batch_size=3)))
    assert afresh[2].tolist() == [0, 1, 2]
    assert afresh[0][:, 0].tolist() == [70.0, 20.0, 90.0]


def test_samplers_that_repeat_repeat_the_id() -> None:
    data = WithIds(TensorDataset(torch.arange(4.0), torch.arange(4)))
    sampler = RandomSampler(data, replacement=True, num_samples=20, generator=torch.Generator().manual_seed(0))
    values, _, ids = next(iter(DataLoader(data, sampler=sampler, batch_size=20)))
    assert torch.equal(values, ids.float())


def test_what_cannot_carry_an_id_says_so() -> None:
    class Stream(IterableDataset):
        def __iter__(self):
            yield from range(3)

    with pytest.raises(ValueError, match="must have a length and items by index, got Stream"):
        WithIds(Stream())
    with pytest.raises(ValueError, match="item 1 must be a tuple, a list, a mapping or a graph to take an id, got int"):
        WithIds([5, 6, 7])[1]
    with pytest.raises(ValueError, match=r"item 0 already has an entry 'id'.*key="):
        WithIds([{"id": 3}])[0]
    assert "key='row'" in repr(WithIds([], key="row"))


class TestGraphs:
    """torch_geometric's Data as items, and as a single graph of nodes."""

    @pytest.fixture
    def geometric(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own, about torch.jit
            return pytest.importorskip("torch_geometric", reason="torch_geometric is not installed (the graphs extra)")

    @staticmethod
    def graphs(geometric, n=9):
        generator = torch.Generator().manual_seed(0)
        sizes = torch.randint(3, 7, (n,), generator=generator).tolist()
        return [
            geometric.data.Data(
                x=torch.randn(size, 4, generator=generator),
                edge_index=torch.randint(size, (2, 2 * size), generator=generator),
                y=torch.tensor([i % 3]),
            )
            for i, size in enumerate(sizes)
        ]

    def test_a_graph_takes_its_id(self, geometric):
        data = self.graphs(geometric)
        wrapped = WithIds(data)
        assert wrapped[4].id == 4
        assert "id" not in data[4]
        assert wrapped[4].x is data[4].x
        ids = [batch.id.tolist() for batch in geometric.loader.DataLoader(wrapped, batch_size=4)]
        assert ids == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
        with pytest.raises(ValueError, match="'node_index' cannot be the name of a graph's id"):
            WithIds(data, key="node_index")[0]
        with pytest.raises(ValueError, match="item 0 already has an entry 'y'"):
            WithIds(data, key="y")[0]
        with pytest.raises(ValueError, match="a single graph"):
            WithIds(data[0])

    @pytest.mark.parametrize("apart", [False, True], ids=["forward(data)", "forward(x, edge_index, batch)"])
    def test_graphs_and_nodes_are_scored(self, geometric, apart):
        data = self.graphs(geometric)

        class Net(torch.nn.Module):
            def __init__(self, pooled):
                super().__init__()
                torch.manual_seed(0)
                self.conv, self.head, self.pooled = geometric.nn.GCNConv(4, 8), torch.nn.Linear(8, 3), pooled

            def embed(self, x, edge_index, batch=None):
                h = self.conv(x, edge_index).relu()
                return self.head(geometric.nn.global_mean_pool(h, batch) if self.pooled else h)

            forward = embed if apart else lambda self, data: self.embed(data.x, data.edge_index, data.batch)

        model = Net(pooled=True).eval()
        table = mohs.score(model, WithIds(data), batch_size=4)
        assert table.column("id").to_pylist() == list(range(9))
        assert table.column("label").to_pylist() == [i % 3 for i in range(9)]
        with torch.no_grad():
            each = [model.embed(g.x, g.edge_index, torch.zeros(len(g.x), dtype=torch.long)) for g in data]
        margins = mohs.margin(torch.cat(each), torch.arange(9) % 3)
        torch.testing.assert_close(torch.tensor(table.column("margin").to_pylist()), margins)
        assert mohs.score(model, geometric.loader.DataLoader(data, batch_size=4)).column("margin").equals(table.column("margin"))
        single = data[0].clone()
        single.y = torch.arange(single.num_nodes) % 3
        nodes = mohs.score(Net(pooled=False), single)
        assert nodes.num_rows == single.num_nodes
        assert nodes.column("label").to_pylist() == single.y.tolist()
