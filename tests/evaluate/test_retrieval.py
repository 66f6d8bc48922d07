"""Retrieval against a loop and scikit-learn's average precision."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs._core.errors import DataError
from mohs.evaluate import retrieval as module
from mohs.evaluate.retrieval import Retrieval, retrieval, set_means


def loop(
    x: torch.Tensor, y: list[int], gallery: torch.Tensor, theirs: list[int], *, left_out: bool
) -> tuple[float, float, float, int]:
    precisions, firsts = [], []
    for i, query in enumerate(x):
        cos = [float(torch.nn.functional.cosine_similarity(query, g, dim=0)) for g in gallery]
        order = sorted((j for j in range(len(gallery)) if not (left_out and i == j)), key=lambda j: -cos[j])
        match = [theirs[j] == y[i] for j in order]
        if any(match):
            ranks = [r for r, m in enumerate(match, 1) if m]
            precisions.append(sum(n / r for n, r in enumerate(ranks, 1)) / len(ranks))
            firsts.append(ranks[0])
    share = [sum(first <= k for first in firsts) / len(firsts) for k in (1, 5)]
    return sum(precisions) / len(precisions), share[0], share[1], len(y) - len(firsts)


@given(seed=st.integers(0, 2**31), n=st.integers(2, 15), m=st.integers(1, 15), block=st.sampled_from([1, 20, 2**20]))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_matches_the_loop(seed: int, n: int, m: int, block: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, g = (torch.randn(k, 4, generator=generator, dtype=torch.float64) for k in (n, m))
    y, h = (torch.randint(3, (k,), generator=generator) for k in (n, m))
    y[0] = h[0]
    y[1] = y[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_ENTRIES", block)  # how much at a time is no part of the answer
        pairs = [(retrieval(x, y), loop(x, y.tolist(), x, y.tolist(), left_out=True))]
        pairs.append((retrieval(x, y, g, h), loop(x, y.tolist(), g, h.tolist(), left_out=False)))
    for found, expected in pairs:
        assert (found.mean_average_precision, found.cmc[1], found.cmc[5], found.skipped) == pytest.approx(expected)


def test_perfect_features_and_digits(digits) -> None:
    y = torch.arange(12) % 3
    assert retrieval(torch.eye(3)[y], y) == Retrieval(1.0, {1: 1.0, 5: 1.0}, 12, 0)
    found = retrieval(digits[0].flatten(1)[:600], digits[1][:600], ranks=[1])
    assert found.cmc[1] > 0.95
    assert 0.5 < found.mean_average_precision < 0.9
    assert list(found.cmc) == [1]


def test_average_precision_matches_scikit_learn() -> None:
    from sklearn.metrics import average_precision_score

    generator = torch.Generator().manual_seed(3)
    g, q = torch.randn(50, 5, generator=generator), torch.randn(1, 5, generator=generator)
    h = torch.randint(2, (50,), generator=generator)
    cos = torch.nn.functional.cosine_similarity(q, g)
    found = retrieval(q, torch.tensor([1]), g, h)
    assert found.mean_average_precision == pytest.approx(average_precision_score(h, cos))


def test_sets_are_compared_by_their_mean_directions() -> None:
    x = torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 1.0], [1.0, 0.0], [5.0, 5.0]])
    means, labels = set_means(x, torch.tensor([1, 1, 0, 0, 0]), 2)
    torch.testing.assert_close(means, torch.tensor([[0.5, 0.5], [0.5, 0.5]]))  # the fifth is left over
    assert labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="size must be at least 1"):
        set_means(x, torch.zeros(5), 0)


def test_what_is_refused() -> None:
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 3])
    with pytest.raises(DataError, match="no query has a match in the gallery"):
        retrieval(x, y)
    with pytest.raises(ValueError, match="give both gallery and gallery_labels"):
        retrieval(x, y, x)
    with pytest.raises(ValueError, match="features have 3 dimensions and gallery 2"):
        retrieval(x, y, x[:, :2], y)
    with pytest.raises(ValueError, match=r"labels has 3 rows and features 4"):
        retrieval(x, y[:3])
    with pytest.raises(ValueError, match=r"ranks must be integers of at least 1, got \[0\]"):
        retrieval(x, y, ranks=[0])
    with pytest.raises(DataError, match=r"gallery\[0\] holds NaN"):
        retrieval(x, y, torch.full((4, 3), torch.nan), y)
