from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

import mohs
from mohs.hardness.judgment import judge_labels
from mohs.hardness.score import score_logits
from mohs.hardness.table import add_columns, column, make_table
from mohs.hardness.verdict import PROBABILITIES, probabilities, reasons, verdict, wrong_by_margin

Q = st.floats(0, 1)


@given(st.lists(st.tuples(Q, st.floats(0, 0.5), Q), min_size=1, max_size=20))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_probabilities_are_probabilities(rows: list[tuple[float, float, float]]) -> None:
    right, variability, rank = (np.array(x) for x in zip(*rows, strict=True))
    p = probabilities(right, variability, rank)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_allclose(p[:, 3], 1 - right)
    for (q, v, r), four in zip(rows, p, strict=True):  # the formulas, one example at a time
        a = 1 - (1 - 4 * q * (1 - q)) * (1 - (2 * v) ** 2)
        np.testing.assert_allclose(four, [q * (1 - a) * (1 - r**4), q * (1 - a) * r**4, q * a, 1 - q], atol=1e-12)


def test_wrong_by_margin_is_the_noise_model_on_two_numbers_per_example() -> None:
    """At the temperature and rate it finds: Bayes' rule, an example at a time."""
    random = np.random.default_rng(0)
    z = 3 * random.normal(size=(400, 4))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = np.where(random.random(400) < 0.2, random.integers(0, 4, 400), p.argmax(1))
    own, top = p[np.arange(400), y], p.max(1)
    margins = np.log(own / (1 - own))
    wrong, given = wrong_by_margin(margins, top, 4)
    assert ((wrong >= 0) & (wrong <= 1)).all()
    right = p.argmax(1) == y
    spread = np.where(right, (1 - own) / 3, (1 - own - top) / 2)  # the rest of the probability, evenly
    logs = np.log(np.stack([own, np.where(right, spread, top), spread, spread]).clip(1e-12))  # (4, N): a row per class
    taus = np.geomspace(0.2, 12, 40)
    errors = [np.abs(np.exp(logs[0] / tau) / np.exp(logs / tau).sum(0) - given).max() for tau in taus]
    assert min(errors) < 1e-6  # the calibrated probability is that of one of the temperatures


@pytest.mark.parametrize("classes", [2, 10])
def test_margins_alone_keep_their_order_on_each_side_of_zero(classes: int) -> None:
    for margins in ([-6.0, -5.0, -1.0, -0.2, 2.0, 4.0, 5.0, 9.0], [-9.0, 1.0, 2.0, 5.0, 6.0, 7.0, 8.0, 9.0]):
        values = np.array(margins)
        wrong, given = wrong_by_margin(values, None, classes)
        for side in (values < 0, values > 0):
            assert (np.diff(wrong[side]) <= 0).all()
            assert (np.diff(given[side]) >= 0).all()


def test_rows_without_a_margin_get_no_verdict() -> None:
    table = make_table({"id": [0, 1, 2], "margin": [3.0, math.nan, -3.0], "label": [0, 1, 1], "predicted": [0, None, 0]})
    judged = verdict(table)
    assert judged.column("verdict").to_pylist()[1] is None
    assert math.isnan(judged.column("p_easy")[1].as_py())
    assert judged.column("why").to_pylist()[1] == "not judged"
    assert judged.column("suggested_label").to_pylist()[1] == 1


def test_identical_values_and_empty_input() -> None:
    for margins in ([0.0, 0.0], [2.0, 2.0], [1.0], []):
        judged = verdict(make_table({"id": list(range(len(margins))), "margin": np.array(margins, dtype=float)}))
        assert len(judged) == len(margins)
        total = sum(column(judged, f"p_{name}") for name in PROBABILITIES)
        np.testing.assert_allclose(total, 1)


def test_facts_are_shown_in_words() -> None:
    table = make_table(
        {
            "id": [0, 1],
            "label": ["dog", "cat"],
            "predicted": ["cat", "cat"],
            "margin": [-12.34, 7.0],
            "neighbors": [0.1, 0.95],
            "first_learned": [20, 2],
            "forgetting": [0, 3],
            "epochs": [20, 20],
        }
    )
    assert verdict(table).column("why").to_pylist() == [
        "predicted cat, not dog (margin -12.3); 10% of its neighbors have its label; never learned in 20 epochs",
        "predicted as labeled (margin +7.0); 95% of its neighbors have its label; learned at epoch 2, forgotten 3 times since",
    ]


def test_probabilities_are_shown_instead_of_the_margin_where_they_are_known() -> None:
    table = make_table(
        {
            "id": [0, 1, 2],
            "label": ["dog", "cat", "emu"],
            "predicted": ["cat", "cat", "dog"],
            "margin": [-12.34, 2.2, 0.0],
            "confidence": [4.4e-6, 0.9, 0.375],
            "top_confidence": [0.997, 0.9, 0.5],
        }
    )
    assert verdict(table).column("why").to_pylist() == [
        "predicted cat (over 99%), not dog (under 1%)",
        "predicted as labeled (90%)",
        "predicted dog (50%), not emu (38%)",
    ]
    by_mean = verdict(add_columns(table, {"mean_margin": np.array([-3.0, 1.0, 0.5])}), by="mean_margin")
    assert by_mean.column("why").to_pylist()[0] == "predicted cat, not dog (mean margin -3.0)"


def test_a_judgment_is_taken_as_it_is() -> None:
    scores = np.array([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]] * 40)
    y = np.arange(120) % 3
    y[7], y[20] = 0, 1  # rows 7 and 20 look like classes 1 and 2
    scores[30] = np.nan
    scores[31] = [0.0, 0.1, 0.0]
    judgment = judge_labels(scores, y)
    table = mohs.score_logits(np.nan_to_num(scores), y, classes=["a", "b", "c"])
    judged = verdict(table, judgment=judgment)
    np.testing.assert_allclose(column(judged, "p_mislabeled"), judgment.p_mislabeled)
    verdicts = judged.column("verdict").to_pylist()
    assert [i for i, one in enumerate(verdicts) if one == "mislabeled"] == np.flatnonzero(judgment.flagged).tolist() == [7, 20]
    assert [i for i, one in enumerate(verdicts) if one == "cannot tell"] == np.flatnonzero(judgment.cannot_tell).tolist()
    assert verdicts[30] is None
    suggested = judged.column("suggested_label").to_pylist()
    assert (suggested[7], suggested[20]) == ("b", "c")
    assert [s for i, s in enumerate(suggested) if i not in (7, 20)] == [
        s for i, s in enumerate(table.column("label").to_pylist()) if i not in (7, 20)
    ]
    assert column(judged, "p_suggested")[7] == pytest.approx(judgment.p_suggested[7])
    assert judged.column("why").to_pylist()[7] == "predicted b (over 99%), not a (under 1%)"


TABLE = make_table({"id": [0], "margin": [1.0]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "mood"}, "by must be one of margin, mean_margin, aum"),
        ({"by": "aum"}, "no column 'aum'"),
        ({"precision": 0}, "precision must be over 0 and under 1, got 0"),
        ({"variability": [0.1, 0.1]}, r"variability must have shape \(1,\), one value per row of the table, got \(2,\)"),
        (
            {"judgment": judge_labels(np.eye(2), [0, 1])},
            "judgment must have one entry for each of the 1 rows",
        ),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verdict(TABLE, **options)


def out_of_fold_table(x: np.ndarray, y: np.ndarray) -> Any:
    """The table that a user of scikit-learn would make: logistic regression in five folds."""
    probs = cross_val_predict(LogisticRegression(max_iter=300), x, y, cv=5, method="predict_proba")
    return mohs.score_logits(np.log(probs.clip(1e-12)), y)


def spoilt(clean: np.ndarray, rate: float, seed: int) -> np.ndarray:
    random, k = np.random.default_rng(seed), clean.max() + 1
    return np.where(random.random(len(clean)) < rate, (clean + random.integers(1, k, len(clean))) % k, clean)


def is_flagged(judged: Any) -> np.ndarray:
    return np.asarray(judged.column("verdict").to_pylist()) == "mislabeled"


@pytest.mark.parametrize("seed", range(2))
def test_wrong_digits_from_out_of_fold_logits(seed: int) -> None:
    pixels, clean = load_digits(return_X_y=True)
    y = spoilt(clean, 0.1, seed)
    table, wrong = out_of_fold_table(pixels / 16, y), y != clean
    sets = [is_flagged(mohs.verdict(table, precision=precision)) for precision in (0.6, 0.8, 0.95)]
    assert wrong[sets[1]].mean() >= 0.75
    assert (wrong & sets[1]).sum() >= 0.8 * wrong.sum()
    assert sets[0].sum() >= sets[1].sum() >= sets[2].sum()
    assert not (sets[1] & ~sets[0]).any()
    assert is_flagged(mohs.verdict(out_of_fold_table(pixels / 16, clean))).mean() <= 0.005


@pytest.mark.parametrize(
    ("rate", "classes", "precision", "recall"), [(0.0, 8, 0.0, 0.0), (0.1, 8, 0.75, 0.72), (0.3, 30, 0.9, 0.7)]
)
def test_synthetic_classes_from_out_of_fold_logits(rate: float, classes: int, precision: float, recall: float) -> None:
    x, clean = make_classification(
        250 * min(classes, 12), 40, n_informative=20, n_redundant=0, n_classes=classes, n_clusters_per_class=1, class_sep=2.0,
        flip_y=0, random_state=0,
    )  # fmt: skip
    y = spoilt(clean, rate, 1)
    flagged, wrong = is_flagged(mohs.verdict(out_of_fold_table(x / x.std(), y))), y != clean
    if rate == 0:
        assert flagged.mean() <= 0.01
    else:
        assert wrong[flagged].mean() >= precision
        assert (wrong & flagged).sum() >= recall * wrong.sum()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3])
def test_finds_wrong_digits(seed: int, rate: float) -> None:
    """A robustly trained network's record, judged: most of what it flags is wrong, and most that is wrong is flagged."""
    torch.manual_seed(seed)
    pixels, digits = load_digits(return_X_y=True)
    x, clean = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(digits)
    moved = torch.rand(len(x)) < rate
    y = torch.where(moved, (clean + torch.randint(1, 10, clean.shape)) % 10, clean)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    loss, optimizer = mohs.GeneralizedCrossEntropyLoss(q=0.7), torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.1)
    recorder = mohs.Recorder(len(x))
    for _ in range(25):
        for ids in torch.randperm(len(x)).split(64):
            logits = net(x[ids])
            optimizer.zero_grad()
            loss(logits, y[ids]).backward()
            optimizer.step()
            recorder.update(ids, logits, y[ids])
    judged = mohs.verdict(recorder.table())
    wrong, p = (y != clean).numpy(), column(judged, "p_mislabeled")
    flagged = np.asarray(judged.column("verdict").to_pylist()) == "mislabeled"
    assert average_precision_score(wrong, p) > 0.93
    assert wrong[flagged].mean() > 0.8
    assert (wrong & flagged).sum() > 0.85 * wrong.sum()
    assert abs(p.mean() - rate) < 0.08
    right = np.asarray(judged.column("suggested_label").to_pylist()) == clean.numpy()
    assert right[flagged & wrong].mean() > 0.9


def test_a_data_frame_is_judged_as_its_table() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (60,), generator=generator)
    logits = torch.randn(60, 3, generator=generator) + 4 * torch.nn.functional.one_hot(labels, 3)
    logits[7] = torch.nan
    names = ["cat", "dog", "owl"]
    table = score_logits(logits, labels, classes=names)
    frame = table.to_pandas().set_index(pd.Index(range(100, 160)))
    judged = verdict(frame)
    expected = verdict(table)
    assert judged.column_names == expected.column_names
    for name in judged.column_names:
        known = [None if value != value else value for value in expected.column(name).to_pylist()]  # NaN: pandas' missing value
        assert [None if value != value else value for value in judged.column(name).to_pylist()] == known
    with pytest.raises(ValueError, match="must be an Arrow table or a pandas DataFrame, got dict"):
        verdict({"margin": [1.0]})


def test_large_numbers_are_told_without_an_exponent() -> None:
    numbers = {"label": [26_061.7, 0.2, 2e20], "predicted": [15_437.2, 0.12349, 1e20], "margin": [1.0, 1.0, 1.0]}
    told = [why.partition(" (")[0] for why in reasons(make_table(numbers), "margin")]
    assert told == ["predicted 15437, not 26062", "predicted 0.1235, not 0.2", "predicted 1e+20, not 2e+20"]
