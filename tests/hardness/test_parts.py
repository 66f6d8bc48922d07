"""Examples with several labels (classes, tokens, pixels): rows, judgment by cleanlab's probabilities, and the worst part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

import mohs
from mohs.hardness.label_rows import smooth_grid
from mohs.hardness.parts import parts_of

Array = np.ndarray[Any, Any]


def several_labels(seed: int, *, n: int = 500, classes: int = 6, missing: float = 0.2, extra: float = 0.02) -> tuple[Array, ...]:
    """True and given labels (N, K), and the out-of-fold probabilities of a logistic regression per class."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 12))
    z = x @ rng.normal(size=(12, classes)) - 1.5
    truth = (rng.random(z.shape) < 1 / (1 + np.exp(-3 * z))).astype(int)
    drawn = rng.random(z.shape)
    given = np.where(truth == 1, drawn >= missing, drawn < extra).astype(int)
    model = LogisticRegression(max_iter=200)
    probs = [cross_val_predict(model, x, given[:, k], method="predict_proba")[:, 1] for k in range(classes)]
    return truth, given, np.stack(probs, 1)


def sentences(seed: int, *, number: int = 150, classes: int = 4) -> tuple[list[Array], ...]:
    """True and given labels of tokens, and out-of-sample probabilities; a tenth of the sentences has one or two wrong tokens."""
    rng = np.random.default_rng(seed)
    truth, given, probs = [], [], []
    for _ in range(number):
        y = rng.choice(classes, size=rng.integers(3, 25), p=[0.7, 0.1, 0.1, 0.1])
        g = y.copy()
        if rng.random() < 0.15:
            at = rng.choice(len(y), rng.integers(1, 3), replace=False)
            g[at] = (g[at] + rng.integers(1, classes, len(at))) % classes
        z = 2.2 * np.eye(classes)[y] + rng.normal(size=(len(y), classes))
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        truth.append(y), given.append(g), probs.append(p)
    return truth, given, probs


def images(seed: int, *, number: int = 60, size: int = 24, classes: int = 3, noise: float = 1.2) -> tuple[Array, ...]:
    """True and given labels (N, H, W) and probabilities (N, K, H, W); a third of the images lacks an object."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:size, :size]
    truth = np.zeros((number, size, size), int)
    given = truth.copy()
    for i in range(number):
        masks = []
        for _ in range(3):
            y, x, r = *rng.uniform(3, size - 3, 2), rng.uniform(2, 5)
            masks.append(((rows - y) ** 2 + (columns - x) ** 2 < r * r, rng.integers(1, classes)))
            truth[i][masks[-1][0]] = masks[-1][1]
        given[i] = truth[i]
        if i % 3 == 0:
            given[i][masks[-1][0]] = 0
    z = np.eye(classes)[truth] + noise * rng.normal(size=(*truth.shape, classes))
    z = 3 * gaussian_filter(z, (0, 1, 1, 0))
    return truth, given, np.moveaxis(np.exp(z) / np.exp(z).sum(-1, keepdims=True), -1, 1)


def precision(wrong: Any, doubt: Any) -> float:
    return float(average_precision_score(np.ravel(wrong), np.ravel(doubt)))


def test_several_classes_are_binary_rows() -> None:
    logits, labels = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]]), np.array([[1, 0, 1], [0, -100, 1]])
    parts = parts_of(logits, labels)
    assert parts.logits.tolist() == [[0, 2], [0, -1], [0, 0.5], [0, 0], [0, -2]]
    assert parts.labels.tolist() == [1, 0, 1, 0, 1]
    assert parts.ids(np.arange(2)).tolist() == [0, 1, 2, 3, 5]
    table = mohs.score_logits(logits, labels, classes=["cat", "dog", "fox"], ids=["a", "b"])
    assert table.column("id").to_pylist() == ["a:0", "a:1", "a:2", "b:0", "b:2"]
    assert table.column("part").to_pylist() == ["cat", "dog", "fox", "cat", "fox"]
    assert table.column("label").to_pylist() == ["yes", "no", "yes", "no", "yes"]
    np.testing.assert_allclose(table.column("margin").to_numpy(), [2, 1, 0.5, 0, -2])  # z_k against 0


def test_a_label_of_several_classes_is_0_or_1() -> None:
    with pytest.raises(ValueError, match=r"labels\[0, 1\] is 2"):
        mohs.score_logits(np.zeros((2, 2)), np.array([[1, 2], [0, 1]]))


def test_sequences_of_different_lengths() -> None:
    logits = [np.eye(3)[[0, 1]], np.eye(3)[[2, 2, 1]]]
    table = mohs.score_logits(logits, [[0, 2], [2, -100, 1]])
    assert table.column("id").to_pylist() == [0, 1, 3, 5]
    assert table.column("example").to_pylist() == [0, 0, 1, 1]
    assert table.column("part").to_pylist() == [0, 1, 0, 2]
    worst = mohs.by_example(table)
    assert worst.column("id").to_pylist() == [0, 1]
    assert worst.column("part").to_pylist() == [1, 0]
    with pytest.raises(ValueError, match="sequence 1"):
        mohs.score_logits(logits, [[0, 2], [2, 1]])


def test_an_empty_sequence_has_no_rows() -> None:
    parts = parts_of([torch.zeros(2, 3), torch.zeros(0, 3), torch.zeros(1, 3)], [[0, 1], [], [2]])
    assert (parts.labels.tolist(), parts.example.tolist(), parts.place.tolist()) == ([0, 1, 2], [0, 0, 2], [0, 1, 0])


def test_a_model_of_several_classes_is_scored_like_its_logits() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 3), torch.randn(10, 4)
    labels = torch.randint(2, (10, 3))
    made = mohs.score(model, torch.utils.data.TensorDataset(x, labels), classes=["a", "b", "c"], batch_size=4)
    assert made.equals(mohs.score_logits(model(x), labels, classes=["a", "b", "c"]))


def test_the_recorder_of_several_classes() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 5, 3), torch.randint(2, (5, 3))
    recorder = mohs.Recorder(5, positions=3)
    for z in logits:
        recorder.update(range(5), z, labels)
    table = recorder.table(classes=["no", "yes"])
    expected = torch.where(labels == 1, logits.mean(0), -logits.mean(0))
    np.testing.assert_allclose(table.column("mean_margin").to_numpy(), expected.flatten(), atol=1e-6)
    assert mohs.by_example(table).column("id").to_pylist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="without a head"):
        mohs.Recorder(5, torch.nn.Linear(2, 3), positions=3).update(range(5), logits[0], labels, torch.randn(5, 2))


def test_by_example_takes_the_part_that_is_most_probably_wrong() -> None:
    _, given, probs = several_labels(0)
    judgment = mohs.judge_labels(probs, given)
    table = mohs.verdict(mohs.score_logits(np.log(probs / (1 - probs)), given), judgment=judgment)
    worst = mohs.by_example(table)
    doubt = judgment.p_mislabeled.reshape(given.shape)
    np.testing.assert_allclose(worst.column("p_mislabeled").to_numpy(), doubt.max(1))
    np.testing.assert_array_equal(worst.column("part").to_numpy(), doubt.argmax(1))
    with pytest.raises(ValueError, match="examples already"):
        mohs.by_example(worst)


@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_labels_of_several_classes_are_found_better_than_by_cleanlab(seed: int) -> None:
    from cleanlab.multilabel_classification import get_label_quality_scores

    truth, given, probs = several_labels(seed)
    wrong = truth != given
    judgment = mohs.judge_labels(probs, given)
    doubt = judgment.p_mislabeled.reshape(given.shape)
    theirs = get_label_quality_scores([np.flatnonzero(row).tolist() for row in given], probs)
    assert precision(wrong.any(1), doubt.max(1)) > precision(wrong.any(1), -theirs) + 0.05
    assert precision(wrong, doubt) > precision(wrong, -np.where(given == 1, probs, 1 - probs)) + 0.1
    assert wrong.ravel()[judgment.flagged].mean() > 0.7
    assert abs(judgment.rate - wrong.mean()) < 0.02


@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_tokens_are_found_better_than_by_cleanlab(seed: int) -> None:
    from cleanlab.token_classification.rank import get_label_quality_scores

    truth, given, probs = sentences(seed)
    wrong = [t != g for t, g in zip(truth, given, strict=True)]
    judgment = mohs.judge_labels(probs, given)
    table = mohs.verdict(mohs.score_logits([np.log(p) for p in probs], given), judgment=judgment)
    doubt = mohs.by_example(table).column("p_mislabeled")
    theirs, tokens = get_label_quality_scores([g.tolist() for g in given], probs)
    of_example = [one.any() for one in wrong]
    assert precision(of_example, doubt) > precision(of_example, -theirs) + 0.02
    every = np.concatenate(wrong)
    assert precision(every, judgment.p_mislabeled) > precision(every, -np.concatenate(tokens)) + 0.05


def test_wrong_pixels_are_found_better_than_by_cleanlab() -> None:
    from cleanlab.segmentation.rank import get_label_quality_scores

    truth, given, probs = images(0)
    wrong = truth != given
    judgment = mohs.judge_labels(probs, given)
    doubt = judgment.p_mislabeled.reshape(given.shape)
    theirs, pixels = get_label_quality_scores(given, probs, verbose=False)
    assert precision(wrong, doubt) > precision(wrong, -pixels) + 0.1
    assert precision(wrong.any((1, 2)), doubt.max((1, 2))) > precision(wrong.any((1, 2)), -theirs) - 0.005


def test_smoothing_counts_given_pixels_only() -> None:
    given = np.ones((2, 4, 4), bool)
    given[0, 0, 1] = False
    values = np.random.default_rng(0).random(given.sum())
    grid = np.zeros(given.shape)
    grid[given] = values
    near = given[0, :3, :3]
    expected = np.sqrt(grid[0, 0, 0] * grid[0, :3, :3][near].mean())
    made = smooth_grid(given, values)
    assert made[0] == pytest.approx(expected)
    np.testing.assert_allclose(smooth_grid(given, np.full(given.sum(), 0.3)), 0.3)


def test_two_models_and_unknown_labels_of_several_classes() -> None:
    _, given, probs = several_labels(0, n=300, classes=4)
    known = given.copy()
    known[:5, 0] = -100
    judgment = mohs.judge_labels(np.stack([probs, 0.5 * probs + 0.25]), known)
    assert judgment.p_mislabeled.shape == (300 * 4 - 5,)
