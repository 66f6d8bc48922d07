from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import average_precision_score
from torch import Tensor

import mohs
from mohs._core.errors import DataError
from mohs.hardness.judgment import judge_labels
from mohs.hardness.table import VERDICTS, column
from mohs.hardness.verdict import verdict
from mohs.train.folds import assign_folds, default_batch, learning_rate, out_of_fold

IRIS, SPECIES = (torch.tensor(a) for a in load_iris(return_X_y=True))
PIXELS, DIGITS = (torch.tensor(a) for a in load_digits(return_X_y=True))
QUICK = {"epochs": 4, "landmarks": 32}


def moved(clean: Tensor, rate: float, seed: int, *, shift: int | None = None) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    classes = int(clean.max()) + 1
    wrong = torch.rand(len(clean), generator=g) < rate
    by = torch.randint(1, classes, clean.shape, generator=g) if shift is None else shift
    return torch.where(wrong, (clean + by) % classes, clean)


@given(st.lists(st.integers(0, 4), min_size=3, max_size=80), st.integers(2, 3), st.integers(0, 5))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_folds_are_even_within_each_class(labels: list[int], folds: int, seed: int) -> None:
    y = torch.tensor(labels)
    fold = assign_folds(y, folds=folds, seed=seed)
    assert torch.equal(fold, assign_folds(y, folds=folds, seed=seed))
    for rows in [torch.ones_like(y, dtype=torch.bool), *(y == k for k in y.unique())]:
        sizes = torch.bincount(fold[rows], minlength=folds)
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("loss", ["gce", "gradient_rescaling", "self_paced"])
def test_no_head_is_trained_on_the_labels_it_predicts(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two labels of one fold changed: its own head does not move, the others do."""
    y = SPECIES.clone()
    before = out_of_fold(IRIS, y, loss=loss, **QUICK)
    rows = (before.fold == 2).nonzero().squeeze(1)
    a, b = rows[y[rows] == 0][0], rows[y[rows] == 1][0]
    swapped = y.clone()
    swapped[a], swapped[b] = y[b], y[a]
    monkeypatch.setattr(
        sys.modules["mohs.train.folds"], "assign_folds", lambda labels, **_: before.fold
    )  # the same folds for both
    after = out_of_fold(IRIS, swapped, loss=loss, **QUICK)
    assert torch.equal(after.weight[2], before.weight[2])
    assert torch.equal(after.logits[rows], before.logits[rows])
    assert not torch.equal(after.weight[0], before.weight[0])


def test_heads_trained_together_match_heads_trained_alone() -> None:
    """An obvious loop: one head, its own rows, the same batches and steps."""
    made = out_of_fold(IRIS, SPECIES, loss="gce", **QUICK, batch_size=32, seed=3)
    x, loss = made.map(IRIS), mohs.GeneralizedCrossEntropyLoss()
    for f in (0, 4):
        order = torch.Generator().manual_seed(3)
        weight = (1e-3 * torch.randn(3, 32, generator=order)).requires_grad_()
        bias = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.AdamW([{"params": [weight]}, {"params": [bias], "weight_decay": 0.0}], weight_decay=0.01)
        for epoch in range(4):
            batches = torch.randperm(150, generator=order).split(32)
            for i, batch in enumerate(batches):
                mine = batch[made.fold[batch] != f]
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(epoch + (i + 0.5) / len(batches), 4)
                optimizer.zero_grad()
                loss(x[mine] @ weight.T + bias, SPECIES[mine]).backward()
                optimizer.step()
        assert torch.allclose(made.weight[f], weight, atol=1e-4)
        held = made.fold == f
        assert torch.allclose(made.logits[held], (x[held] @ weight.T + bias).detach(), atol=1e-3)


def test_table_has_the_last_epoch_and_the_dynamics() -> None:
    names = ["setosa", "versicolor", "virginica"]
    made = out_of_fold(IRIS.numpy(), SPECIES.numpy(), classes=names, **QUICK)
    assert {
        "label",
        "predicted",
        "margin",
        "avh",
        "aum",
        "mean_margin",
        "variability",
        "first_learned",
        "forgetting",
        "mohs",
    } <= set(made.table.column_names)
    np.testing.assert_allclose(column(made.table, "margin"), mohs.margin(made.logits, SPECIES), rtol=1e-5)
    assert column(made.table, "id").tolist() == list(range(150))
    assert column(made.table, "label").tolist() == [names[i] for i in SPECIES]
    assert column(made.table, "epochs").tolist() == [4] * 150
    f = int(made.fold[7])
    expected = mohs.avh(made.map(IRIS[7:8]), made.weight[f], SPECIES[7:8])
    assert column(made.table, "avh")[7] == pytest.approx(float(expected), abs=1e-5)
    judged = verdict(made.table, judgment=made.judgment)
    assert set(column(judged, "verdict")) <= set(VERDICTS)
    np.testing.assert_allclose(column(judged, "p_mislabeled"), judge_labels(made.logits, SPECIES).p_mislabeled)
    assert len(mohs.verdict(made.table, by="aum")) == 150


def test_rare_classes_are_predicted_and_lone_ones_named() -> None:
    y = ["a"] * 60 + ["b"] * 60 + ["c"] * 2 + ["d"]
    x = torch.randn(123, 4, generator=torch.Generator().manual_seed(1))
    made = out_of_fold(x, y, **QUICK)
    assert made.lone == ["d"]
    assert made.logits.isfinite().all()
    assert np.flatnonzero(np.isnan(made.judgment.p_mislabeled)).tolist() == [122]
    assert verdict(made.table, judgment=made.judgment).column("verdict").to_pylist()[122] is None
    assert made.fold[120] != made.fold[121]


def test_stopped_and_resumed_is_the_same_to_the_bit() -> None:
    states, ticks = [], []
    loss = mohs.SelfPacedLoss()
    whole = out_of_fold(IRIS, SPECIES, loss=loss, **QUICK, on_epoch=states.append, progress=lambda i, n: ticks.append((i, n)))
    assert ticks == [(1, 4), (2, 4), (3, 4), (4, 4)]
    again = out_of_fold(IRIS, SPECIES, loss=loss, **QUICK, state=states[1])
    assert torch.equal(whole.logits, again.logits)
    assert whole.table.equals(again.table)
    assert out_of_fold(IRIS, SPECIES, loss=loss, **QUICK, state=states[3]).table.equals(whole.table)
    with pytest.raises(ValueError, match="state is from another call"):
        out_of_fold(IRIS, SPECIES, loss=loss, epochs=5, landmarks=32, state=states[1])


def test_sample_weights_reach_the_heads() -> None:
    weight = torch.ones(150)
    weight[SPECIES == 2] = 0
    made = out_of_fold(IRIS, SPECIES, loss="cross_entropy", sample_weight=weight, **QUICK)
    plain = out_of_fold(IRIS, SPECIES, loss="cross_entropy", **QUICK)
    assert (made.bias[:, 2] < made.bias[:, :2].amin(1) - 0.1).all()
    assert not (plain.bias[:, 2] < plain.bias[:, :2].amin(1) - 0.1).all()


def test_a_plain_torch_loss_and_labels_with_gaps() -> None:
    made = out_of_fold(IRIS, SPECIES * 10 - 3, loss=torch.nn.CrossEntropyLoss(), **QUICK)
    assert made.classes == [-3, 7, 17]
    assert (made.logits.argmax(1) == SPECIES).double().mean() > 0.85


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((IRIS, SPECIES), {"folds": 1}, "folds must be at least 2 and at most 150, the number of rows, got 1"),
        ((IRIS[:3], SPECIES[::50]), {"folds": 5}, "at most 3"),
        ((IRIS, SPECIES), {"epochs": 0}, "epochs must be at least 1, got 0"),
        ((IRIS, SPECIES), {"batch_size": -2}, "batch_size must be at least 1, got -2"),
        ((IRIS, SPECIES), {"loss": "ember"}, "unknown loss 'ember'"),
        ((IRIS, SPECIES[:9]), {}, r"labels must have shape \(150,\)"),
    ],
)
def test_bad_arguments(arguments: tuple[Tensor, Tensor], options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        out_of_fold(*arguments, **options)  # type: ignore[arg-type]


def test_bad_data() -> None:
    broken = IRIS.clone()
    broken[17, 2] = torch.inf
    with pytest.raises(DataError, match=r"features\[17\] holds NaN or infinity"):
        out_of_fold(broken, SPECIES)
    with pytest.raises(DataError, match="fewer than 2 classes"):
        out_of_fold(IRIS, torch.zeros(150, dtype=torch.int64))
    with pytest.raises(DataError, match=r"labels\[1\] is empty"):
        out_of_fold(IRIS[:2], np.array(["a", None], dtype=object), folds=2)
    with pytest.raises(DataError, match="integers or names"):
        out_of_fold(IRIS, SPECIES.double())
    with pytest.raises(DataError, match="labels hold no class twice"):
        out_of_fold(IRIS[:3], ["a", "b", "c"], folds=2)


def test_batches_grow_with_the_data() -> None:
    assert [default_batch(n) for n in (10, 150, 1797, 50_000, 10**6)] == [16, 16, 112, 500, 10_000]


@pytest.mark.parametrize(("seed", "shift"), [(0, None), (1, None), (2, 1)])
def test_finds_wrong_digits(seed: int, shift: int | None) -> None:
    y = moved(DIGITS, 0.1, seed, shift=shift)
    made = out_of_fold(PIXELS, y, seed=seed)
    wrong, p, flagged = (y != DIGITS).numpy(), made.judgment.p_mislabeled, made.judgment.flagged
    assert wrong[flagged].mean() > 0.9
    assert (wrong & flagged).sum() > 0.9 * wrong.sum()
    assert average_precision_score(wrong, p) > 0.98
    assert abs(made.judgment.rate - wrong.mean()) < 0.015
    assert made.judgment.low <= wrong.mean() <= made.judgment.high
    alone = np.asarray(mohs.verdict(made.table).column("verdict").to_pylist()) == "mislabeled"  # from the table alone
    assert wrong[alone].mean() > 0.8
    assert (wrong & alone).sum() > 0.8 * wrong.sum()


def test_clean_digits_are_not_flagged() -> None:
    made = out_of_fold(PIXELS, DIGITS)
    assert made.judgment.flagged.mean() < 0.003
    assert (made.judgment.p_mislabeled > 0.5).mean() < 0.003


def test_finds_wrong_usps_digits() -> None:
    folder = os.environ.get("MOHS_DATA")
    if folder is None or not (Path(folder) / "usps.npz").is_file():
        pytest.skip("MOHS_DATA does not name a folder with usps.npz")
    data = np.load(Path(folder) / "usps.npz")
    x, clean = torch.tensor(data["test_x"].reshape(-1, 256) / 2000), torch.tensor(data["test_y"].astype(np.int64))
    y = moved(clean, 0.1, 0)
    made = out_of_fold(x, y)
    wrong, flagged = (y != clean).numpy(), made.judgment.flagged
    assert wrong[flagged].mean() > 0.8
    assert (wrong & flagged).sum() > 0.8 * wrong.sum()
