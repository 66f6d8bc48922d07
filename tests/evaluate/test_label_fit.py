"""Shares of clean and noisy labels fitted, best and final."""

from __future__ import annotations

import math

import pytest
import torch

from mohs._core.errors import DataError
from mohs.evaluate.label_fit import best_and_final, label_fit


def test_shares_by_hand() -> None:
    truth = torch.tensor([0, 0, 1, 1, 2, 2])
    labels = torch.tensor([0, 0, 1, 2, 0, 1])  # the last three are wrong
    predicted = torch.tensor([0, 1, 1, 2, 2, 0])
    found = label_fit(predicted, labels, truth)
    assert (found.clean, found.noisy, found.truth, found.wrong) == pytest.approx((2 / 3, 1 / 3, 1 / 3, 1 / 2))
    clean = label_fit(predicted, truth, truth)
    assert clean.wrong == 0
    assert math.isnan(clean.noisy)
    assert math.isnan(clean.truth)


def test_best_and_final() -> None:
    assert vars(best_and_final([0.1, 0.9, 0.9, 0.5])) == {"best": 0.9, "best_at": 1, "final": 0.5}
    assert best_and_final([3.0, 1.0, 2.0], want="low").best == 1.0
    history = [{"loss": 1.0}, {"accuracy": 0.4}, {"accuracy": math.nan}, {"accuracy": 0.3}]
    assert vars(best_and_final(history)) == {"best": 0.4, "best_at": 1, "final": 0.3}
    assert best_and_final(history, key="loss").final == 1.0
    assert math.isnan(best_and_final([math.nan]).best)


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match=r"history has no value of 'ece'; its keys: accuracy, loss"):
        best_and_final([{"loss": 1.0, "accuracy": 1.0}], key="ece")
    with pytest.raises(DataError, match=r"history has no value of 'accuracy': it is empty"):
        best_and_final([])
    with pytest.raises(ValueError, match=r"want must be one of high, low, got 'up'"):
        best_and_final([1.0], want="up")
    with pytest.raises(ValueError, match=r"truth has 1 rows and predicted 2"):
        label_fit([0, 1], [0, 1], [0])
