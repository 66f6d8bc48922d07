"""The index finds the neighbors that an exact search finds; without it, a sample is searched."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from mohs.hardness import neighbor_index
from mohs.hardness.neighbor_index import how_nearest, many_nearest, nearest_of, references
from mohs.hardness.neighbors import directions_of, nearest_with_cosines

needs_faiss = pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="needs the neighbors extra")


def vectors(count: int = 1500) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(20, 32, generator=draw)[torch.arange(count) % 20] + 0.5 * torch.randn(count, 32, generator=draw)


def test_how_many_are_compared() -> None:
    assert [references(n) for n in (10, 50_000, 60_000, 250_000, 1_000_000)] == [10, 50_000, 41_666, 10_000, 10_000]
    assert how_nearest(50_000) == "exact"
    assert how_nearest(60_000, torch.device("cuda")) == "exact"
    assert how_nearest(60_000) != "exact"


@needs_faiss
def test_the_index_finds_nearly_all_neighbors_and_every_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    x = vectors()
    x[-50:] = x[:50] + 1e-3
    exact, cosines = nearest_with_cosines(x, k=10)
    monkeypatch.setattr(neighbor_index, "EXACT", 100)
    near, found = many_nearest(x, k=10)
    assert how_nearest(len(x)) == "approximate, by an index of all examples"
    shared = torch.tensor([len(set(a.tolist()) & set(b.tolist())) / 10 for a, b in zip(near, exact, strict=True)])
    assert shared.mean() > 0.95
    assert (near[:50, 0] == torch.arange(len(x) - 50, len(x))).all()
    assert not (near == torch.arange(len(x)).unsqueeze(1)).any()
    torch.testing.assert_close(found[:, 0], cosines[:, 0], atol=1e-2, rtol=0)
    assert (found.diff(dim=1) <= 1e-6).all()


@needs_faiss
def test_rows_without_a_direction_have_no_neighbors_and_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbor_index, "EXACT", 100)
    x = vectors(300)
    x[7] = 0
    near, cosines = many_nearest(x, k=5)
    assert (near[7] == -1).all()
    assert cosines[7].isnan().all()
    assert not (near == 7).any()


@needs_faiss
def test_queries_may_be_other_views_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    directions, _ = directions_of(vectors(300))
    every = torch.arange(300)
    exact, _ = nearest_of(-directions, directions, every, k=3)
    monkeypatch.setattr(neighbor_index, "EXACT", 100)
    near, _ = nearest_of(-directions, directions, every, k=3)
    assert (near == exact).float().mean() > 0.9
