"""Accuracy by class and by the classes' size, against a loop."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from mohs._core.errors import DataError
from mohs.evaluate.class_accuracy import balanced_accuracy, by_shots, per_class


def drawn(n: int = 300, classes: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(classes - 1, (n,), generator=generator)  # the last class has no test example
    guess = torch.where(torch.rand(n, generator=generator) < 0.6, y, torch.randint(classes, (n,), generator=generator))
    return guess, y


def test_per_class_and_balanced() -> None:
    guess, y = drawn()
    got = per_class(guess, y, classes=6)
    for k in range(5):
        own = [int(g) == k for g, label in zip(guess, y, strict=True) if label == k]
        assert float(got[k]) == pytest.approx(sum(own) / len(own))
    assert got[5].isnan()
    own_classes = guess.clamp(max=4)  # scikit-learn warns of a prediction that is no label
    assert balanced_accuracy(own_classes, y, classes=6) == pytest.approx(balanced_accuracy_score(y, own_classes))


def test_groups_and_their_cut_offs() -> None:
    guess, y = drawn()
    one = per_class(guess, y, classes=6)
    found = by_shots(guess, y, [101, 100, 20, 19, 0, 500])
    assert found.classes == {"many": 2, "medium": 2, "few": 2}
    assert found.many == pytest.approx(float(one[0]))  # class 5 has no test example
    assert found.medium == pytest.approx(float(one[1:3].mean()))
    assert found.few == pytest.approx(float(one[3:5].mean()))
    assert found.all == pytest.approx(float((guess == y).double().mean()))
    assert found.balanced == pytest.approx(float(one[:5].mean()))
    other = by_shots(guess, y, torch.tensor([5, 5, 5, 5, 5, 5]), many=10, few=2)
    assert other.medium == pytest.approx(found.balanced)
    assert math.isnan(other.many)
    assert math.isnan(other.few)


def test_what_is_refused() -> None:
    guess, y = drawn(4)
    with pytest.raises(ValueError, match=r"labels has 3 rows and predicted 4"):
        per_class(guess, y[:3], classes=6)
    with pytest.raises(DataError, match=r"predicted\[0\] is 7, but there are 6 classes"):
        per_class(torch.full((4,), 7), y, classes=6)
    with pytest.raises(ValueError, match=r"few must be between 0 and many \+ 1, got few=50, many=10"):
        by_shots(guess, y, [1] * 6, many=10, few=50)
    with pytest.raises(ValueError, match="train_counts must be integers"):
        by_shots(guess, y, [0.5] * 6)
    with pytest.raises(DataError, match="predicted holds no rows"):
        per_class(guess[:0], y[:0], classes=6)
