from __future__ import annotations

import pytest
import torch

from mohs.data.long_tail import long_tail, tail_numbers


def test_class_sizes_decay_exponentially() -> None:
    assert tail_numbers(5000, num_classes=10, ratio=100) == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert tail_numbers(500, num_classes=100, ratio=10)[-1] == 50
    assert tail_numbers(3, num_classes=4, ratio=1000) == [3, 1, 1, 1]
    assert tail_numbers(7, num_classes=3, ratio=1) == [7, 7, 7]


def test_the_long_tail_is_seeded() -> None:
    labels = torch.arange(10).repeat_interleave(100)[torch.randperm(1000, generator=torch.Generator().manual_seed(1))]
    places = long_tail(labels, num_classes=10, ratio=100, seed=4)
    assert torch.bincount(labels[places]).tolist() == tail_numbers(100, num_classes=10, ratio=100)
    assert torch.equal(places, places.unique())
    assert torch.equal(places, long_tail(labels, num_classes=10, ratio=100, seed=4))
    assert not torch.equal(places, long_tail(labels, num_classes=10, ratio=100, seed=5))


def test_a_class_with_too_few_examples_keeps_all() -> None:
    labels = torch.tensor([0] * 10 + [1] * 2 + [2] * 10)
    assert torch.bincount(labels[long_tail(labels, num_classes=3, ratio=4)]).tolist() == [10, 2, 2]


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"ratio must be at least 1, got 0\.5"):
        long_tail(torch.tensor([0, 1]), num_classes=2, ratio=0.5)
    with pytest.raises(ValueError, match="labels go up to 3, outside the 2 classes"):
        long_tail(torch.tensor([0, 3]), num_classes=2)
