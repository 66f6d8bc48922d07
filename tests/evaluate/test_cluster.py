"""Groupings against entropies by hand, angles against a loop."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from mohs._core.errors import DataError
from mohs.angle import angle
from mohs.evaluate.cluster import class_angles, grouping, kmeans_grouping


def conditional(a: list[int], b: list[int]) -> float:
    """1 − H(a | b)/H(a)."""
    n, joint, of_b, of_a = len(a), Counter(zip(a, b, strict=True)), Counter(b), Counter(a)
    given = -sum(c / n * math.log(c / of_b[y]) for (_, y), c in joint.items())
    return 1 - given / -sum(c / n * math.log(c / n) for c in of_a.values())


def cones(n: int = 90, noise: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes around three axes, of various lengths."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    x = torch.eye(4)[y] + noise * torch.randn(n, 4, generator=generator)
    return x * (1 + 9 * torch.rand(n, 1, generator=generator)), y


def test_homogeneity_and_completeness_by_hand() -> None:
    labels, guess = [0, 0, 0, 1, 1, 1, 2, 2], [0, 0, 1, 1, 1, 1, 2, 0]
    found = grouping(guess, labels)
    assert found.homogeneity == pytest.approx(conditional(labels, guess))
    assert found.completeness == pytest.approx(conditional(guess, labels))
    assert found.v_measure == pytest.approx(2 / (1 / found.homogeneity + 1 / found.completeness))
    assert grouping(torch.tensor([5, 5, 7]), torch.tensor([1, 1, 0])).homogeneity == 1


def test_k_means_on_directions_ignores_lengths() -> None:
    x, y = cones()
    assert kmeans_grouping(x, y).v_measure == pytest.approx(1)
    assert kmeans_grouping(x, y, clusters=2).homogeneity < 0.8


def test_angles_match_a_loop() -> None:
    x, y = cones(30, 0.4)
    units = torch.nn.functional.normalize(x.double(), dim=1)
    centers = [sum(u for u, k in zip(units, y, strict=True) if k == c) for c in range(3)]
    own = [float(angle(u, centers[k])) for u, k in zip(units, y, strict=True)]
    pairs = [float(angle(centers[a], centers[b])) for a, b in ((0, 1), (0, 2), (1, 2))]
    found = class_angles(x.double(), y + 4)
    assert found.within == pytest.approx(sum(own) / 30)
    assert found.between == pytest.approx(sum(pairs) / 3)
    assert found.between_least == pytest.approx(min(pairs))
    assert found.separation == pytest.approx(min(pairs) / (sum(own) / 30))
    assert found.within_class[1] == pytest.approx(sum(a for a, k in zip(own, y, strict=True) if k == 1) / 10)
    assert found.between_classes.diagonal().tolist() == [0, 0, 0]
    points = class_angles(torch.eye(3), torch.arange(3))
    assert (points.within, points.separation) == (0, math.inf)
    assert points.between == pytest.approx(math.pi / 2)


def test_what_is_refused() -> None:
    x, y = cones(6)
    with pytest.raises(DataError, match="labels hold 1 class: angles between classes need at least 2"):
        class_angles(x, torch.zeros(6))
    with pytest.raises(ValueError, match="clusters must be between 1 and 6, the number of distinct directions, got 7"):
        kmeans_grouping(x, y, clusters=7)
    with pytest.raises(ValueError, match=r"labels has 5 rows and assigned 6"):
        grouping(y, y[:5])
    with pytest.raises(ValueError, match=r"features must have shape \(N, K\), got \(6,\)"):
        class_angles(y.float(), y)
