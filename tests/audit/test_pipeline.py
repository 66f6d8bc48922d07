"""The audit as a whole: wrong labels are found, nothing finished is lost, and what cannot be audited is said to be so."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mohs._core.errors import DataError, RunError
from mohs.audit.judge_features import default_epochs as features_epochs
from mohs.audit.judge_features import references
from mohs.audit.judge_images import default_batch, default_epochs
from mohs.audit.pipeline import Audit, audit, demonstration
from mohs.audit.result import load_audit
from mohs.data.examples import Data, Examples
from mohs.data.noise import add_noise

ROW = ("p_easy", "p_hard", "p_ambiguous", "p_mislabeled", "margin")


def few(count: int = 120) -> Examples:
    return demonstration(0).train.take(torch.arange(count))


def as_features(examples: Examples) -> Examples:
    assert isinstance(examples.inputs, torch.Tensor)
    return Examples(examples.inputs.flatten(1).float() / 255, examples.labels, examples.classes, truth=examples.truth)


def precision_and_recall(done: Audit) -> tuple[float, float]:
    facts = done.findings.facts
    return facts["flagged and wrong"] / facts["flagged"], facts["flagged and wrong"] / facts["labels made wrong"]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("kind", "epochs"), [("images", 12), ("features", 10)])
def test_a_tenth_of_wrong_digits_is_found(kind: str, epochs: int, seed: int, tmp_path: Path) -> None:
    data = demonstration(seed).train
    done = audit(data if kind == "images" else as_features(data), out=tmp_path, epochs=epochs, seed=seed, device="cpu")
    precision, recall = precision_and_recall(done)
    assert precision >= 0.8
    assert recall >= 0.8
    assert data.truth is not None
    hits = (data.labels != data.truth).numpy() & (np.array(done.table.column("verdict").to_pylist()) == "mislabeled")
    suggested = np.array(done.table.column("suggested_label").to_pylist())
    assert (suggested[hits] == data.truth.numpy()[hits]).mean() > 0.8
    assert 0.05 < done.shares["noise"] < 0.15
    assert done.report.stat().st_size < 5e6


class Stop:
    """Raises at the n-th word or step that it is told."""

    def __init__(self, when: Callable[[Any], bool]) -> None:
        self.when = when

    def __call__(self, told: Any) -> None:
        if self.when(told):
            raise KeyboardInterrupt


STEPS = ("emphasis", "scores", "verdict", "report")
STOPS = {
    "at the first epoch's end": {"watch": Stop(lambda e: "step" not in e or e["step"] == e["steps"])},
    "in the second epoch": {"watch": Stop(lambda e: e.get("epoch") == 1)},
    **{f"at the {step}": {"tell": Stop(lambda text, step=step: f" {step}: " in text)} for step in STEPS},
}


@pytest.mark.parametrize("kind", ["images", "features"])
def test_interrupted_anywhere_and_run_again_it_ends_the_same(kind: str, tmp_path: Path) -> None:
    data = few() if kind == "images" else as_features(few())
    options: dict[str, Any] = {"epochs": 3, "device": "cpu"}
    whole = audit(data, out=tmp_path / "whole", **options).table
    for name, stop in STOPS.items():
        out = tmp_path / name.replace(" ", "_").replace("'", "")
        with pytest.raises(KeyboardInterrupt):
            audit(data, out=out, **stop, **options)
        again = audit(data, out=out, **options).table
        for column in ROW:
            np.testing.assert_allclose(again.column(column).to_numpy(), whole.column(column).to_numpy(), err_msg=name)
        assert again.column("verdict").equals(whole.column("verdict")), name
        assert not list(out.glob("**/*.part*")), name
    told: list[str] = []
    audit(data, out=out, tell=told.append, **options)  # done: nothing is trained again
    assert [line.split()[1] for line in told if line[1:3] == "/7"] == ["data:", "report:"]


def test_a_damaged_end_is_made_anew(tmp_path: Path) -> None:
    data = as_features(few())
    done = audit(data, out=tmp_path, epochs=2)
    (tmp_path / "findings.json").write_text("{")
    assert audit(data, out=tmp_path, epochs=2).table.column("verdict").equals(done.table.column("verdict"))


def test_another_audits_folder_is_refused(tmp_path: Path) -> None:
    data = as_features(few())
    audit(data, out=tmp_path, epochs=1)
    with pytest.raises(RunError, match=r"holds another audit \(audit-data-.*data or settings differ\): choose another folder"):
        audit(data, out=tmp_path, epochs=2)
    assert load_audit(tmp_path).facts["epochs"] == 1


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/out: cannot be written \(Not a directory\): give another folder with out"):
        audit(as_features(few()), out=tmp_path / "file" / "out", epochs=1)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="cannot be written"):
        audit(as_features(few()), out=tmp_path / "out", epochs=1)


def test_class_names_that_are_numbers_keep_their_names(tmp_path: Path) -> None:
    data = few()
    x, y = as_features(data).inputs, data.labels.numpy() + 7
    done = audit((x.numpy(), y), out=tmp_path, epochs=3)  # type: ignore[union-attr]
    assert done.table.column("label").to_pylist() == y.tolist()
    assert set(done.table.column("predicted").to_pylist()) <= set(range(7, 17))
    assert done.findings.facts["neighbors"] == "exact"


def test_a_class_of_one_example_is_not_judged(tmp_path: Path) -> None:
    data = few()
    y = np.where(np.arange(120) == 5, "alone", np.where(data.labels.numpy() < 5, "low", "high"))
    done = audit((as_features(data).inputs.numpy(), y), out=tmp_path, epochs=3)  # type: ignore[union-attr]
    assert done.table.column("verdict")[5].as_py() is None
    assert done.findings.facts["classes of one example, not judged"] == "alone"
    assert "1 could not be scored" in done.report.read_text()


def test_labels_without_sense_bring_a_caution(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    told: list[str] = []
    done = audit((random.random((90, 5)), random.integers(0, 6, 90)), out=tmp_path, epochs=3, tell=told.append)
    assert any(line.startswith("Caution: The model agrees with only") for line in told)
    assert "Do not act on these verdicts without looking" in done.report.read_text()


def test_many_classes_of_two_images(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (60, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    done = audit(Data(Examples(images, torch.arange(60) // 2, list(range(30)))), out=tmp_path, epochs=2, device="cpu")
    assert len(done.table) == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "ember"}, "unknown loss 'ember'; known: cross_entropy"),
        ({"loss": "gce:q=2"}, "q must be between 0 and 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"folds": 1}, "folds must be at least 2"),
        ({"model": "resnet20"}, "model='resnet20' is for images: features are judged by linear heads; leave it out"),
    ],
)
def test_wishes_are_checked_before_any_work(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    def no_training(event: Any) -> None:
        raise AssertionError("it was trained")

    with pytest.raises(ValueError, match=message):
        audit(as_features(few()), out=tmp_path, watch=no_training, **options)
    if "model" not in options and "folds" not in options:
        with pytest.raises(ValueError, match=message):
            audit(few(), out=tmp_path, watch=no_training, device="cpu", **options)


def test_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a single class"):
        audit((np.ones((4, 2)), np.zeros(4, int)), out=tmp_path)


def test_sizes() -> None:
    assert [references(n) for n in (10, 50_000, 60_000, 250_000, 1_000_000)] == [10, 50_000, 41_666, 10_000, 10_000]
    assert [default_epochs(n, gpu=False) for n in (100, 30_000, 10**6)] == [30, 20, 10]
    assert [features_epochs(n) for n in (100, 50_000)] == [20, 12]
    assert [default_batch(n) for n in (2, 400, 1797, 10**6)] == [8, 28, 128, 128]


def test_wrong_labels_of_other_rates_keep_the_order(tmp_path: Path) -> None:
    """Where every fourth label is wrong the emphasis changes, and the wrong labels still stand first."""
    clean = demonstration(0).train
    assert clean.truth is not None
    data = as_features(add_noise(clean.relabeled(clean.truth), {"name": "symmetric", "rate": 0.25}, seed=0))
    done = audit(data, out=tmp_path, epochs=10)
    assert done.findings.chosen.startswith("gradient_rescaling")
    precision, recall = precision_and_recall(done)
    assert precision >= 0.8
    assert recall >= 0.8
