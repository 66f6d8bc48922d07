"""Nearest neighbors against an obvious loop, and the cases without one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs.hardness import neighbors
from mohs.hardness.neighbors import agreement, directions_of, nearest, nearest_among, neighbor_agreement
from mohs.hardness.ranks import drawn_rows


def loop(features: torch.Tensor, k: int, among: list[int] | None = None) -> list[list[int]]:
    rows = []
    usable = [i for i, x in enumerate(features.tolist()) if any(x) and all(map(math.isfinite, x))]
    for i, x in enumerate(features.double()):
        cosines = {
            j: float(x @ features[j].double() / x.norm() / features[j].double().norm())
            for j in (usable if among is None else among)
            if j != i and i in usable
        }
        best = sorted(cosines, key=lambda j: -cosines[j])[:k]
        rows.append(best + [-1] * (k - len(best)))
    return rows


def data(n: int, seed: int = 0, dim: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator), torch.randint(3, (n,), generator=generator)


@given(
    n=st.integers(1, 80),
    k=st.integers(1, 12),
    seed=st.integers(0, 2**31),
    block=st.sampled_from([(1, 1), (7, 50), (32, 2**25), (2**16, 100), (2**16, 2**25)]),
)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_nearest_matches_a_loop(n: int, k: int, seed: int, block: tuple[int, int]) -> None:
    features, _ = data(n, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "COLUMNS", block[0])
        patch.setattr(neighbors, "ENTRIES", block[1])
        assert nearest(features, k=k).tolist() == loop(features, k)


def test_grouped_search_matches_topk() -> None:
    cos = torch.randn(50, 2048, generator=torch.Generator().manual_seed(0))
    for k in (1, 10, 31):
        values, at = neighbors._top(cos, k)
        assert torch.equal(values, cos.topk(k, 1).values)
        assert torch.equal(cos.gather(1, at), values)


def test_a_sample_of_references_is_seeded_and_excludes_the_row_itself() -> None:
    features, labels = data(120)
    near = nearest(features, k=5, references=40, seed=3)
    drawn = sorted(set(near.flatten().tolist()))
    assert len(drawn) <= 40
    chosen = drawn_rows(120, 40, seed=3).tolist()
    assert near.tolist() == loop(features, 5, sorted(chosen))
    assert torch.equal(near, nearest(features, k=5, references=40, seed=3))
    assert not torch.equal(near, nearest(features, k=5, references=40, seed=4))
    assert torch.equal(nearest(features, k=5, references=120), nearest(features, k=5))
    assert torch.equal(neighbor_agreement(features, labels, k=5, references=40, seed=3), agreement(near, labels))


def test_blocks_of_queries_give_the_same_result() -> None:
    features, _ = data(70)
    directions, usable = directions_of(features)
    rows = usable.nonzero().squeeze(1)
    parts = [nearest_among(directions[s : s + 30], directions, rows, k=4, own=torch.arange(s, s + 30)) for s in (0, 30, 60)]
    assert torch.equal(torch.cat(parts), nearest(features, k=4))


def test_agreement_is_as_in_a_loop() -> None:
    features, labels = data(90)
    near = nearest(features, k=7)
    for row, share in enumerate(agreement(near, labels).tolist()):
        theirs = [int(labels[j]) for j in near[row]]
        assert share == pytest.approx(theirs.count(int(labels[row])) / 7)


def test_features_without_a_direction_are_not_neighbors() -> None:
    features, labels = data(20)
    features[3], features[7], features[11] = 0.0, torch.nan, torch.inf
    near = nearest(features, k=18)
    assert near.tolist() == loop(features, 18)
    assert (near[[3, 7, 11]] == -1).all()
    assert not set(near.flatten().tolist()) & {3, 7, 11}
    shares = agreement(near, labels)
    assert shares.isnan().nonzero().flatten().tolist() == [3, 7, 11]
    sampled = nearest(features, k=3, references=10)
    assert (sampled[[3, 7, 11]] == -1).all()


def test_few_examples_and_copies() -> None:
    labels = torch.tensor([0, 0, 1])
    x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    torch.testing.assert_close(neighbor_agreement(x, labels), torch.tensor([0.5, 0.5, 0.0]))
    assert neighbor_agreement(x[:1], labels[:1]).isnan().all()
    copies = torch.cat([x, x])
    assert nearest(copies, k=1).flatten().tolist() == [3, 4, 5, 0, 1, 2]
    assert (neighbor_agreement(copies, labels.repeat(2), k=1) == 1).all()


def test_lengths_and_types_do_not_matter() -> None:
    features, labels = data(60)
    same = nearest(features, k=5)
    assert torch.equal(nearest(features * torch.logspace(-18, 18, 60).unsqueeze(1), k=5), same)
    assert torch.equal(nearest(features.double(), k=5), same)
    assert neighbor_agreement(features.bfloat16(), labels).isfinite().all()


def test_errors_name_the_argument() -> None:
    features, labels = data(5)
    with pytest.raises(ValueError, match="k and references must be at least 1, got k=0"):
        nearest(features, k=0)
    with pytest.raises(ValueError, match=r"features must have shape \(N, D\), got \(5,\)"):
        nearest(features[:, 0])
    with pytest.raises(ValueError, match=r"labels must have shape \(5,\), one per row of features, got \(4,\)"):
        neighbor_agreement(features, labels[:4])
