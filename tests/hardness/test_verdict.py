from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import mohs
from mohs.hardness.table import column, make_table
from mohs.hardness.verdict import VERDICTS, label_right, probabilities, verdict

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


def test_label_right_follows_the_margin_and_not_the_temperature() -> None:
    margins = np.array([-6.0, -1.0, 0.0, 2.0, 4.0, 5.0, 9.0])
    q = label_right(margins)
    assert (np.diff(q) > 0).all()
    np.testing.assert_allclose(label_right(10 * margins), q)
    prior = 1 - q.mean()
    scale = np.median(np.abs(margins))
    np.testing.assert_allclose(q, 1 / (1 + np.exp(-4 * margins / scale + 0.5 * math.log(prior / (1 - prior)))), rtol=1e-6)


def test_rows_without_a_margin_get_no_verdict() -> None:
    table = make_table({"id": [0, 1, 2], "margin": [3.0, math.nan, -3.0], "label": [0, 1, 1], "predicted": [0, None, 0]})
    judged = verdict(table)
    assert judged.column("verdict").to_pylist()[1] is None
    assert math.isnan(judged.column("p_easy")[1].as_py())
    assert judged.column("why").to_pylist()[1] == "not scored"
    assert judged.column("suggested_label").to_pylist() == [0, 1, 0]


def test_all_alike_or_empty() -> None:
    for margins in ([0.0, 0.0], [2.0, 2.0], [1.0], []):
        judged = verdict(make_table({"id": list(range(len(margins))), "margin": np.array(margins, dtype=float)}))
        assert len(judged) == len(margins)
        total = sum(column(judged, f"p_{name}") for name in VERDICTS)
        np.testing.assert_allclose(total, 1)


def test_facts_are_told_in_words() -> None:
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
        "predicted cat, not dog (margin -12.3); 10% of its neighbors bear its label; never learned in 20 looks",
        "predicted as labeled (margin +7.0); 95% of its neighbors bear its label; learned at epoch 2, forgotten 3 times since",
    ]
    assert verdict(table).column("verdict").to_pylist()[0] == "mislabeled"
    assert verdict(table).column("suggested_label").to_pylist() == ["cat", "cat"]


@pytest.mark.parametrize(("by", "message"), [("mood", "by must be one of margin, mean_margin, aum"), ("aum", "no column 'aum'")])
def test_bad_input(by: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verdict(make_table({"id": [0], "margin": [1.0]}), by=by)


@pytest.mark.parametrize("seed", range(3))
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
    flagged = p > 0.5
    assert average_precision_score(wrong, p) > 0.93
    assert wrong[flagged].mean() > 0.8
    assert (wrong & flagged).sum() > 0.85 * wrong.sum()
    assert abs(p.mean() - rate) < 0.08
    right = np.asarray(judged.column("suggested_label").to_pylist()) == clean.numpy()
    assert right[flagged & wrong].mean() > 0.9
