"""What the networks that judge labels are given, and how they judge."""

from __future__ import annotations

import numpy as np
import pytest

from mohs.hardness.judgment import judge_labels
from mohs.hardness.learned_odds import CUT, SIGNS, Refit, _networks, learned_wrong, signs_of


def made(n: int = 400, k: int = 4, wrong: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confident log-probabilities of the true class (N, K), labels of which a share is wrong, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(k, size=n)
    scores = rng.normal(size=(n, k)) + 6 * np.eye(k)[truth]
    scores -= np.log(np.exp(scores).sum(1, keepdims=True))
    labels = np.where(rng.random(n) < wrong, (truth + rng.integers(1, k, n)) % k, truth)
    return scores, labels, truth


def signs(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    p = np.exp(scores)
    right = p[np.arange(len(labels)), labels]
    return signs_of(p, labels, rule=1 - right, apparent=1 - right, refit=Refit(p, 16), rate=0.1, kappa=0.1)


def test_the_networks_by_hand() -> None:
    scores, labels, _ = made()
    x, net = signs(scores, labels), _networks()
    found = learned_wrong(x)
    for row in (0, 7, 123):
        z = ((x[row] - net["mean"]) / net["deviation"]).clip(-CUT, CUT)
        odds = [
            v @ np.tanh(w @ z + b) + c for w, b, v, c in zip(net["weight"], net["bias"], net["out"], net["out_bias"], strict=True)
        ]
        assert found[row] == pytest.approx(1 / (1 + np.exp(-np.mean(odds))), rel=1e-9)


def test_signs_by_hand() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    labels, rule = np.array([0, 1, 1, 2]), np.array([0.1, 0.6, 0.1, 0.2])
    refit = Refit(np.array([[0.9, 0.05, 0.05], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]), 2)
    found = dict(zip(SIGNS, signs_of(p, labels, rule=rule, apparent=rule, refit=refit, rate=0.2, kappa=0.5).T, strict=True))
    assert found["rule"][1] == pytest.approx(np.log(0.6 / 0.4))
    assert found["margin"][1] == pytest.approx(np.log(0.3 / 0.6))
    assert found["refit margin"][1] == pytest.approx(np.log(0.7 / 0.2))
    assert found["agreement"].tolist() == [1, 0, 1, 1]
    assert found["disagreement"][0] == 0.25
    assert found["moved"][0] == 0.25
    assert found["confusion"][1] == pytest.approx(np.log(1.5 / 3))  # one of two examples predicted 0 is labeled 1
    assert found["direction"][1] == pytest.approx(np.log(1.5 / 0.5))  # none goes back
    assert found["all direction"][0] == pytest.approx(0.25)
    assert found["class size"][1] == pytest.approx(np.log(1.5 / 2.5))


def test_confident_contradictions_are_wrong_labels() -> None:
    scores, labels, truth = made()
    judgment = judge_labels(scores, labels, refit=Refit(np.exp(scores), 16))
    wrong = labels != truth
    assert judgment.p_mislabeled[wrong].mean() > 0.8
    assert judgment.p_mislabeled[~wrong].mean() < 0.03
    assert wrong[judgment.flagged].mean() > 0.9


def test_order_of_classes_and_rows_does_not_matter() -> None:
    scores, labels, _ = made()
    expected = judge_labels(scores, labels, refit=Refit(np.exp(scores), 16)).p_mislabeled
    rows, classes = np.random.default_rng(1).permutation(len(labels)), np.array([2, 0, 3, 1])
    moved = scores[rows][:, classes]
    found = judge_labels(moved, np.argsort(classes)[labels[rows]], refit=Refit(np.exp(moved), 16)).p_mislabeled
    np.testing.assert_allclose(found, expected[rows], atol=0.02)


def test_few_examples_are_judged_by_the_rule() -> None:
    scores, labels, _ = made(n=100)
    alone, learned = judge_labels(scores, labels), judge_labels(scores, labels, refit=Refit(np.exp(scores), 16))
    np.testing.assert_array_equal(alone.p_mislabeled, learned.p_mislabeled)


def test_a_judge_without_skill_is_not_believed() -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(4, size=400), np.log(rng.dirichlet(np.ones(4), 400))
    alone, learned = judge_labels(scores, labels), judge_labels(scores, labels, refit=Refit(np.exp(scores), 16))
    np.testing.assert_array_equal(alone.p_mislabeled, learned.p_mislabeled)
    assert learned.flagged.mean() <= 0.02


def test_rows_without_scores_are_not_judged() -> None:
    scores, labels, _ = made()
    scores[5] = np.nan
    judgment = judge_labels(scores, labels, refit=Refit(np.nan_to_num(np.exp(scores)), 16))
    assert np.isnan(judgment.p_mislabeled[5])
    assert not judgment.flagged[5]
    assert not np.isnan(np.delete(judgment.p_mislabeled, 5)).any()
