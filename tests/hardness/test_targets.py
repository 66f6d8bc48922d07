"""Targets of a regression: wrong ones are found as well as by cleanlab or better, and the table has a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

import mohs

Array = np.ndarray[Any, Any]


def made(seed: int, *, growing: bool) -> tuple[Array, Array, Array]:
    """Given targets (N,), which of them are wrong (N,), and out-of-fold predictions (N,); growing: spread with the target."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(400, 4))
    mean = np.exp(2.5 * x[:, 0]) + 3 * x[:, 1] if growing else 8 * x[:, 0] - 5 * x[:, 1] + 2 * x[:, 2]
    y = mean + (0.2 * mean if growing else 0.6) * rng.normal(size=400)
    wrong = rng.random(400) < 0.1
    given = np.where(wrong, rng.permutation(y), y)
    model = RandomForestRegressor(40, min_samples_leaf=3, random_state=0) if growing else RidgeCV()
    return given, wrong, cross_val_predict(model, x, given)


@pytest.mark.parametrize("growing", [False, True])
def test_wrong_targets_are_found_better_than_by_cleanlab(growing: bool) -> None:
    from cleanlab.regression.rank import get_label_quality_scores

    mine, theirs = [], []
    for seed in range(3):
        given, wrong, predicted = made(seed, growing=growing)
        mine.append(average_precision_score(wrong, mohs.judge_targets(predicted, given).p_mislabeled))
        theirs.append(average_precision_score(wrong, -get_label_quality_scores(given, predicted)))
    assert np.mean(mine) > np.mean(theirs) + (0.03 if growing else 0)


def test_the_judgment_of_targets_and_their_table() -> None:
    given, wrong, predicted = made(0, growing=False)
    given[5] = np.nan
    judgment = mohs.judge_targets(np.stack([predicted, predicted]), given)
    assert wrong[judgment.flagged].mean() > 0.7
    assert abs(judgment.rate - wrong.mean()) < 0.06
    table = mohs.verdict(mohs.score_targets(predicted, given), judgment=judgment)
    assert table.column("verdict")[5].as_py() is None
    flagged = np.flatnonzero(judgment.flagged)
    assert [table.column("verdict")[i].as_py() for i in flagged] == ["mislabeled"] * len(flagged)
    expected = table.column("predicted").to_numpy()
    np.testing.assert_allclose(table.column("suggested_label").to_numpy()[flagged], expected[flagged])
    np.testing.assert_allclose(np.delete(judgment.suggested, [*flagged, 5]), np.delete(given, [*flagged, 5]))
    assert table.column("residual").to_numpy()[flagged].min() > 2
    assert "predicted" in table.column("why")[int(flagged[0])].as_py()


def test_expected_targets_undo_predictions_that_are_too_near_the_mean() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=300)
    table = mohs.score_targets(0.5 * y + 0.05 * rng.normal(size=300) + 3, y)
    np.testing.assert_allclose(table.column("predicted").to_numpy(), y, atol=0.4)


def test_exact_predictions_and_too_few_rows() -> None:
    y = np.arange(50.0)
    y[7] = 40
    judgment = mohs.judge_targets(np.arange(50.0), y)
    assert judgment.flagged.tolist() == [i == 7 for i in range(50)]
    with pytest.raises(ValueError, match="at least 10 are needed"):
        mohs.judge_targets(np.arange(5.0), np.arange(5.0))
    with pytest.raises(ValueError, match="must have shape"):
        mohs.judge_targets(np.zeros((5, 2)), y)
