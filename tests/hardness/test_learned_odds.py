"""What the networks that judge labels are given, and how they judge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from mohs.hardness.judgment import fit_rule, judge_labels
from mohs.hardness.learned_odds import (
    CUT,
    FEW,
    KINDS,
    LEAST,
    SIGNS,
    SUMMARY,
    Refit,
    equal_rows,
    judged_by,
    learned_wrong,
    networks,
    risks_of,
    signs_of,
    summary,
    table_signs,
    twins_of,
    with_summary,
)
from mohs.train.fold_heads import fold_scores


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


@pytest.mark.parametrize("kind", [*KINDS, FEW])
def test_the_networks_by_hand(kind: str) -> None:
    scores, labels, _ = made(LEAST - 1 if kind == FEW else LEAST)
    x, net = signs(scores, labels), networks(kind)
    refit = Refit(np.exp(scores), 16, "table" if kind == FEW else kind, np.arange(len(labels)) // 3)
    more = [[]] * len(labels) if kind == "embedding" else table_signs(np.exp(scores), labels, refit)
    found = learned_wrong(x, np.exp(scores), labels, refit)
    for row in (0, 7, 123):
        z = ((np.concatenate([x[row], summary(x), more[row]]) - net["mean"]) / net["deviation"]).clip(-CUT, CUT)
        odds = []
        for i in range(len(net["last_bias"])):
            first = np.tanh(net["first_weight"][i] @ z + net["first_bias"][i])
            second = np.tanh(net["second_weight"][i] @ first + net["second_bias"][i])
            odds.append(net["last_weight"][i, 0] @ second + net["last_bias"][i, 0])
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


def test_summary_by_hand() -> None:
    x = np.zeros((4, len(SIGNS)))
    x[:, :6] = [[0, -1, 3, 5, -4, -6], [3, 1, -3, -5, -2, -1], [-3, -1, -1, 2, -1, -3], [-1, -1, 1, -1, -3, -2]]
    found = summary(x)
    assert found.shape == (SUMMARY,)
    assert found[[2, 5]].tolist() == [0.0, 0.5]  # medians of both margins
    assert found[[6, 8]].tolist() == [-2.5, -2.5]  # medians of both doubts
    assert found[10:16].tolist() == [0.25, 0.25, 0.25, 0.25, 0.25, 0.25]  # both against, the first, the refit; far below 0
    assert found[16] == pytest.approx((0.5 + 1 / (1 + np.exp(-3)) + 1 / (1 + np.exp(3)) + 1 / (1 + np.exp(1))) / 4)
    assert found[17:20].tolist() == [0.25, 0.25, 0.25]
    assert found[20:].tolist() == [-2.0, -2.5]  # doubt of the refit where the first is against, and the other way round


def test_confident_contradictions_are_wrong_labels() -> None:
    scores, labels, truth = made()
    judgment = judge_labels(scores, labels, refit=Refit(np.exp(scores), 16))
    wrong = labels != truth
    assert judgment.p_mislabeled[wrong].mean() > 0.8
    assert judgment.p_mislabeled[~wrong].mean() < 0.03
    assert wrong[judgment.flagged].mean() > 0.9


def test_each_kind_has_networks_of_its_own() -> None:
    scores, labels, _ = made()
    found = [judge_labels(scores, labels, refit=Refit(np.exp(scores), 16, kind)).p_mislabeled for kind in KINDS]
    for one, other in itertools.combinations(found, 2):
        assert np.abs(one - other).max() > 1e-3


def test_risks_against_a_loop() -> None:
    """Shares of contradictions by confidence, counted one example at a time."""
    rng = np.random.default_rng(3)
    n, k = 90, 3
    p, refit = (rng.dirichlet(np.ones(k), n) for _ in range(2))
    labels = rng.integers(k, size=n)
    found = risks_of(p, labels, refit)
    top = p.argmax(1)
    against = [int(top[i] != labels[i]) for i in range(n)]
    for first, confidence in ((0, p.max(1)), (4, refit.max(1))):
        order = sorted(range(n), key=lambda i: confidence[i])
        place = {row: at for at, row in enumerate(order)}
        for row in range(n):
            start = min(max(place[row] - 10, 0), n - 21)  # 20 others
            near = (sum(against[order[at]] for at in range(start, start + 21)) - against[row] + 0.5) / 21
            half = [against[i] for i in range(n) if place[i] / (n - 1) >= 0.5]
            assert found[row, first] == pytest.approx(np.log(near))
            assert found[row, first + 1] == pytest.approx(place[row] / (n - 1))
            assert found[row, first + 3] == pytest.approx(np.log((sum(half) + 0.5) / (len(half) + 1) / near))
    least = sorted(range(n), key=lambda i: p[i].max())[:18]
    assert found[:, 11] == pytest.approx(np.log((sum(against[i] for i in least) + 0.5) / 19))
    risk = (sum(against) + 0.5) / (n + 1)
    own = [against[i] for i in range(n) if labels[i] == labels[0]]
    assert found[0, 9] == pytest.approx(np.log((sum(own) + 5 * risk) / (len(own) + 5)))


def test_random_mistakes_show_where_the_models_are_sure() -> None:
    """The same share of contradictions, spread evenly or where the models doubt: the latter leaves few among sure ones."""
    rng = np.random.default_rng(0)
    sure = rng.uniform(0.5, 1, 1000)
    p = np.column_stack([sure, 1 - sure])
    evenly, doubtful = rng.random(1000) < 0.1, rng.random(1000) < 0.4 * (1 - sure)
    floors = [risks_of(p, wrong.astype(int), p)[0, 15] for wrong in (evenly, doubtful)]  # the surest fifth
    assert floors[0] > np.log(0.05)
    assert floors[1] < np.log(0.05)


def test_twins_against_a_loop() -> None:
    """Labels of rows with equal features, counted one example at a time."""
    rng = np.random.default_rng(4)
    features, labels = rng.integers(3, size=(60, 3)).astype(np.float32), rng.integers(3, size=60)
    groups = equal_rows(features)
    found = twins_of(groups, labels)
    twins = [[j for j in range(60) if j != i and (features[i] == features[j]).all()] for i in range(60)]
    for i, own in enumerate(twins):
        assert [j for j in range(60) if j != i and groups[j] == groups[i]] == own
        commonest = max((sum(labels[j] == c for j in own) for c in range(3)), default=0)
        same = sum(labels[j] == labels[i] for j in own)
        expected = [np.log1p(len(own)), (same + 0.5) / (len(own) + 1), (commonest + 0.5) / (len(own) + 1)]
        assert found[i, :3] == pytest.approx(expected)
    differ = sorted(
        np.mean([labels[a] != labels[b] for a, b in itertools.combinations([i, *own], 2)]) for i, own in enumerate(twins) if own
    )
    assert found[0, 3] == pytest.approx(np.log(len({tuple(row) for row in features}) / 60))
    assert found[0, 4:] == pytest.approx([len(differ) / 60, np.mean(differ), np.mean(differ[: -(-len(differ) // 3)])])


def test_rows_without_twins() -> None:
    found = twins_of(np.arange(8), np.arange(8) % 2)
    np.testing.assert_array_equal(found, np.broadcast_to([0, 0.5, 0.5, 0, 0, 0, 0], (8, 7)))


def test_equal_rows_by_value() -> None:
    groups = equal_rows(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [np.nan, 2.0], [np.nan, 2.0]]))
    assert groups[0] == groups[1]
    assert groups[3] == groups[4]
    assert len(set(groups.tolist())) == 3


def test_order_of_classes_and_rows_does_not_matter() -> None:
    scores, labels, _ = made()
    expected = judge_labels(scores, labels, refit=Refit(np.exp(scores), 16)).p_mislabeled
    rows, classes = np.random.default_rng(1).permutation(len(labels)), np.array([2, 0, 3, 1])
    moved = scores[rows][:, classes]
    found = judge_labels(moved, np.argsort(classes)[labels[rows]], refit=Refit(np.exp(moved), 16)).p_mislabeled
    np.testing.assert_allclose(found, expected[rows], atol=0.02)


def test_few_examples_have_networks_of_their_own() -> None:
    scores, labels, _ = made(n=LEAST - 1)
    judgment = judge_labels(scores, labels, refit=Refit(np.exp(scores), 16))
    rule = fit_rule(np.float32(scores[None]), labels)
    rows, probs = rule.judge(np.float32(scores[None]), labels), rule.model.probs(np.float32(scores[None]))
    refit = Refit(np.exp(scores), 16)
    x = signs_of(
        probs, labels, rule=rows.p_mislabeled, apparent=rows.apparent, refit=refit, rate=rule.model.rate, kappa=rule.kappa
    )
    expected = judged_by(networks(FEW), np.hstack([with_summary(x, summary(x)), table_signs(probs, labels, refit)]))
    np.testing.assert_allclose(judgment.p_mislabeled, expected, rtol=1e-6)


@pytest.mark.parametrize("n", [30, 60, 120])
def test_few_examples_of_overlapping_classes_are_hardly_flagged(n: int) -> None:
    """Logistic labels of two classes, none wrong: the rule flags 1.3 to 2 % of them."""
    flagged = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = torch.from_numpy(rng.normal(size=(n, 4)))
        labels = torch.from_numpy((rng.random(n) < 1 / (1 + np.exp(-2 * x[:, 0].numpy()))).astype(np.int64))
        heads = fold_scores({"features": x.float()}, labels, num_classes=2, kind="columns")
        found = judge_labels(heads.scores, labels, ambiguity=heads.ambiguity, refit=heads.refit)
        flagged.append(found.flagged.mean())
    assert np.mean(flagged) <= 0.01


def test_few_examples_of_clear_classes_are_judged_all_the_same() -> None:
    hits, flags, wrong = 0, 0, 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = np.arange(100) % 4
        x = torch.from_numpy(3 * np.eye(4, 16)[truth] + 0.5 * rng.normal(size=(100, 16))).float()
        labels = truth.copy()
        labels[:10] = (truth[:10] + rng.integers(1, 4, 10)) % 4
        heads = fold_scores({"features": x}, torch.from_numpy(labels), num_classes=4, kind="embedding")
        found = judge_labels(heads.scores, labels, ambiguity=heads.ambiguity, refit=heads.refit)
        hits, flags, wrong = hits + found.flagged[:10].sum(), flags + found.flagged.sum(), wrong + 10
    assert hits >= 0.8 * wrong
    assert hits >= 0.9 * flags


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


def test_twins_of_the_same_group_do_not_count() -> None:
    rng = np.random.default_rng(0)
    rows, labels, groups = rng.integers(6, size=60), rng.integers(3, size=60), rng.integers(15, size=60)
    found = twins_of(rows, labels, groups)
    for i in range(60):
        own = [j for j in range(60) if rows[j] == rows[i] and groups[j] != groups[i]]
        same = sum(labels[j] == labels[i] for j in own)
        assert found[i, :2] == pytest.approx([np.log1p(len(own)), (same + 0.5) / (len(own) + 1)])
    np.testing.assert_allclose(twins_of(rows, labels, np.arange(60)), twins_of(rows, labels), rtol=0, atol=0)
    p, refit = np.full((60, 3), 1 / 3), Refit(np.full((60, 3), 1 / 3), 4, "table", rows, groups)
    np.testing.assert_array_equal(table_signs(p, labels, refit)[:, -found.shape[1] :], found)
