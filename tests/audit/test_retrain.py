"""Training again on corrected labels: what is trained on, what is held out, and the command from audit to comparison."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from mohs._core.errors import DataError
from mohs.audit.decisions import apply_decisions
from mohs.audit.pipeline import demonstration, run_audit
from mohs.audit.result import load_audit
from mohs.audit.retrain import audited_run, checked_data, retrain
from mohs.cli.apply import apply
from mohs.data.corrections import with_labels
from mohs.data.examples import Data
from mohs.data.open_data import open_data
from mohs.data.split import split
from mohs.evaluate.outputs import predict
from mohs.train.run_data import TEST_SEED, TEST_SHARE
from mohs.train.trained import load_run

app = typer.Typer()
app.command("apply")(apply)
app.command("nothing")(lambda: None)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration, with few epochs."""
    folder = tmp_path_factory.mktemp("retrain") / "audit"
    run_audit(out=folder, embed="none", loss="gce", epochs=8, model="cnn:width=8", device="cpu")
    return folder


@pytest.fixture
def here(audited: Path, tmp_path: Path) -> Path:
    shutil.copytree(audited, tmp_path / "audit")
    return tmp_path / "audit"


def decide(folder: Path, to: Path, *, exclude: int = 2) -> list[dict[str, str]]:
    """Accept all suggestions but the first few, which are excluded."""
    findings = load_audit(folder)
    flagged = [row for row in findings.table.to_pylist() if row["verdict"] == "mislabeled"]
    rows = [
        {"id": str(row["id"]), "data_hash": findings.data_hash, "label": str(row["label"])}
        | ({"decision": "exclude", "new_label": ""} if i < exclude else {"decision": "accept", "new_label": ""})
        for i, row in enumerate(flagged)
    ]
    with to.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["apply", *map(str, words), "--device", "cpu"])


def test_both_are_trained_without_the_held_out_examples(here: Path, tmp_path: Path) -> None:
    findings, data = load_audit(here), demonstration(0)
    labels, applied = apply_decisions(findings.table, decide(here, tmp_path / "d.csv"), findings.data_hash)
    done = retrain(here, labels, data, device="cpu")
    assert (done.changed, done.excluded) == (applied.changed, 2)
    rest, held = split(data.train, TEST_SHARE, TEST_SEED)
    about = json.loads((done.before / "run.json").read_text())
    assert about["data"]["fingerprint"] == rest.fingerprint()
    corrected, kept = with_labels(data.train, labels)
    usable = set(kept.tolist())
    places = torch.tensor([key for key in held.keys if key in usable])
    assert done.compared.n == len(places)
    assert done.compared.on == "held-out"
    test = corrected.take(places)
    for side, accuracy in ((done.after, done.compared.accuracy_a), (done.before, done.compared.accuracy_b)):
        guess = predict(load_run(side).network, test).logits.argmax(1)
        assert accuracy == pytest.approx(float((guess == test.labels).double().mean()))
    again = retrain(here, labels, data, device="cpu")
    assert again == done
    own = load_run(done.after).run
    assert (own.epochs, own.model, own.loss) == tuple(getattr(audited_run(here), name) for name in ("epochs", "model", "loss"))


def test_the_test_set_of_the_data_is_used(tmp_path: Path) -> None:
    train, test = split(demonstration(0).train, 0.3, 1)
    data = Data(train, None, test)
    made = run_audit(data, out=tmp_path / "audit", embed="none", epochs=2, model="cnn:width=4", device="cpu")
    labels, _ = apply_decisions(made.table, [], made.data_hash)
    done = retrain(made.folder, labels, data, device="cpu")
    assert (done.before, done.compared.on, done.compared.n) == (made.folder / "run", "test", len(test))
    assert (done.changed, done.excluded) == (0, 0)
    assert done.compared.difference == 0  # the same labels, settings and seed


def test_the_command(here: Path, tmp_path: Path) -> None:
    decide(here, tmp_path / "d.csv")
    done = call(here, tmp_path / "d.csv", "--retrain")
    assert done.exit_code == 0, done.exception
    assert "labels changed (" in done.stdout
    assert "2 examples excluded; accuracy on the" in done.stdout
    assert "%  before  " in done.stdout
    assert "McNemar's exact p = " in done.stdout
    told = json.loads(call(here, "--retrain", "--json").stdout)  # of the labels that were written
    assert told["retrained"]["excluded"] == 2
    after, before = told["retrained"]["after"], told["retrained"]["before"]
    assert f"{100 * after['accuracy']:6.2f} %  after   {after['run']}" in done.stdout
    assert told["retrained"]["difference"] == pytest.approx(after["accuracy"] - before["accuracy"])
    assert len(list((here / "retrained").iterdir())) == 2
    other = call(here, "--retrain", "--data", "digits").exception
    assert isinstance(other, DataError)
    assert "digits is not the audited data, or has changed since: give the audited data with --data" in str(other)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--retrain"], "labels.csv does not exist: name the label file with --to, or give decisions.csv too"),
        (["--retrain", "--undo"], "--retrain cannot be combined with --undo"),
        (["d.csv", "--retrain", "--dry-run"], "--retrain cannot be combined with --dry-run"),
        ([], "decisions.csv to apply, or --undo"),
    ],
)
def test_bad_calls(here: Path, words: list[str], message: str) -> None:
    failed = call(here, *words).exception
    assert isinstance(failed, ValueError)
    assert message in str(failed)


def test_what_cannot_be_trained_again_is_said(here: Path, tmp_path: Path) -> None:
    data = demonstration(0)
    (here / "run" / "DONE").unlink()
    with pytest.raises(DataError, match="this audit judged by a network that is not in its folder"):
        audited_run(here)
    with pytest.raises(DataError, match="2 labels for the 1797 examples of digits: they belong to other data"):
        with_labels(data.train, pa.table({"label": [1, 2], "decision": ["", ""]}))
    wrong: Any = pa.table({"label": ["x"] * 1797, "decision": [""] * 1797})
    with pytest.raises(DataError, match="the label 'x' is not one of the 10 classes"):
        with_labels(data.train, wrong)
    with pytest.raises(DataError, match="is not the audited data"):
        checked_data(data, "0123")


@pytest.mark.parametrize("kind", ["table", "features"])
def test_an_audit_that_judged_without_a_network_is_compared_by_a_model_on_its_features(tmp_path: Path, kind: str) -> None:
    random = np.random.default_rng(0)
    true = random.integers(0, 2, 400)
    x = (2 * true - 1)[:, None] * [1.5, 0.5] + random.normal(size=(400, 2))
    given = np.where(np.arange(400) % 10 == 0, 1 - true, true)
    rows = [[*map(str, row), *(["red" if one else "blue"] if kind == "table" else []), "ab"[label]] for row, one, label in
            zip(x.round(4).tolist(), true ^ (random.random(400) < 0.2), given, strict=True)]  # fmt: skip
    with (tmp_path / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["x", "y", *(["color"] if kind == "table" else []), "label"], *rows])
    made = run_audit(str(tmp_path / "data.csv"), out=tmp_path / "audit", device="cpu")
    decide(made.folder, tmp_path / "d.csv", exclude=0)
    done = call(made.folder, tmp_path / "d.csv", "--retrain", "--json")
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)["retrained"]
    assert told["changed"] > 20
    assert told["n"] == 80
    assert min(told["before"]["accuracy"], told["after"]["accuracy"]) > 0.8
    about = json.loads((Path(told["after"]["run"]) / "run.json").read_text())
    assert (about["inputs"]["kind"], about["run"]["embed"]) == (kind, "columns" if kind == "table" else "auto")


def test_whole_groups_are_held_out(tmp_path: Path) -> None:
    rng, own = np.random.default_rng(0), np.repeat(np.arange(30), 4)
    data = open_data((rng.normal(size=(120, 4)).astype(np.float32) + (own % 2)[:, None], own % 2), group=own)
    made = run_audit(data, out=tmp_path / "audit", device="cpu", issues="none")
    labels, _ = apply_decisions(made.table, [], made.data_hash)
    done = retrain(made.folder, labels, data, device="cpu")
    _, held = split(data.train, TEST_SHARE, TEST_SEED)
    assert done.compared.n == len(held)
    assert held.groups is not None
    assert torch.bincount(held.groups)[held.groups].unique().tolist() == [4]
