"""`mohs report` and `mohs apply` as a person meets them: a run directory, a file of decisions, labels, and back."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

import mohs
from mohs._core.errors import DataError
from mohs.audit.result import AuditResult, save_audit
from mohs.cli.apply import apply
from mohs.cli.report import report
from mohs.hardness.table import make_table

app = typer.Typer()
app.command("apply")(apply)
app.command("report")(report)
HASH, CLASSES = "feedbeef00000001", ["cat", "dog", "cow"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    label = rng.integers(3, size=60)
    margin = np.where(np.arange(60) < 6, -5.0, rng.normal(6, 1, 60))
    predicted = np.where(margin < 0, (label + 1) % 3, label)
    columns = {"id": np.arange(60), "label": [CLASSES[i] for i in label], "predicted": [CLASSES[i] for i in predicted]}
    table = make_table({**columns, "margin": margin, "confidence": 1 / (1 + np.exp(-margin))}, classes=CLASSES)
    found = SimpleNamespace(  # what a judge would say: the six labels with a negative margin are wrong
        p_mislabeled=np.where(margin < 0, 0.95, 0.01),
        flagged=margin < 0,
        consensus=None,
        checks=None,
        cannot_tell=np.zeros(60, dtype=bool),
        suggested=np.where(margin < 0, (label + 1) % 3, label),
        p_suggested=np.full(60, 0.9),
    )
    table = mohs.verdict(table, judgment=found)
    return save_audit(AuditResult(table, "beasts", HASH, CLASSES), tmp_path_factory.mktemp("cli") / "run")


@pytest.fixture
def decisions(run: Path, tmp_path: Path) -> Path:
    from mohs.audit.result import load_audit

    table = load_audit(run).table
    rows = [row for row in table.to_pylist() if row["verdict"] == "mislabeled"]
    assert len(rows) == 6
    with (tmp_path / "decisions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "data_hash", "label", "decision", "new_label"])
        writer.writerows([row["id"], HASH, row["label"], "accept", row["suggested_label"]] for row in rows[:4])
        writer.writerow([rows[4]["id"], HASH, rows[4]["label"], "exclude", ""])
    return tmp_path / "decisions.csv"


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=True)


def labels(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["label"] for row in csv.DictReader(file)]


def test_apply_and_undo(run: Path, decisions: Path, tmp_path: Path) -> None:
    to = tmp_path / "labels.csv"
    shown = call("apply", run, decisions, "--to", to)
    assert shown.exit_code == 0, shown.output
    assert "4 of 60 labels changed (4 accept, 0 keep, 0 change, 1 exclude)" in shown.stdout
    with to.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "label", "previous", "decision"]
    assert sum(row["label"] != row["previous"] for row in rows) == 5
    assert call("apply", run, "--undo", "--to", to, "--json").stdout == json.dumps({"out": str(to), "undone": True}) + "\n"
    assert labels(to) == [row["previous"] for row in rows]


def test_a_file_in_the_way_is_kept_and_named(run: Path, decisions: Path, tmp_path: Path) -> None:
    file = tmp_path / "beasts.csv"
    file.write_text("name,kind\nrex,dog\n")
    words = ["apply", str(run), str(decisions), "--to", str(file)]
    assert f"the file that was there is kept: {file}.before (--undo restores it)" in CliRunner().invoke(app, words).stdout
    assert "is kept" not in CliRunner().invoke(app, words).stdout  # the second time its own labels are replaced
    assert Path(f"{file}.before").read_text() == "name,kind\nrex,dog\n"


def test_dry_run_writes_nothing_and_json_counts(run: Path, decisions: Path) -> None:
    shown = call("apply", run, decisions, "--dry-run", "--json")
    assert json.loads(shown.stdout) == {
        "out": None, "examples": 60, "accept": 4, "keep": 0, "change": 0, "exclude": 1, "changed": 4
    }  # fmt: skip
    assert not (run / "labels.csv").exists()
    assert "nothing was written" in call("apply", run, decisions, "--dry-run").stdout
    assert call("apply", run, decisions, "--quiet").stdout == ""
    assert (run / "labels.csv").exists()


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["{run}"], ValueError, "give either the decisions.log or decisions.csv to apply, or --undo"),
        (["{run}", "{decisions}", "--undo"], ValueError, "give either the decisions.log or decisions.csv to apply, or --undo"),
        (["{run}", "{decisions}", "--to", "labels.txt"], ValueError, "written as .parquet or .csv"),
        (["nowhere", "{decisions}"], DataError, "nowhere does not exist: give the folder of a finished audit"),
        (["{run}", "no-such.csv"], OSError, "no-such.csv"),
    ],
)
def test_bad_calls(run: Path, decisions: Path, words: list[str], kind: type[Exception], message: str) -> None:
    failed = call("apply", *(word.format(run=run, decisions=decisions) for word in words)).exception
    assert isinstance(failed, kind)
    assert message in str(failed)


def test_decisions_of_other_data_change_nothing(run: Path, decisions: Path, tmp_path: Path) -> None:
    decisions.write_text(decisions.read_text().replace(HASH, "elsewhere"))
    failed = call("apply", run, decisions, "--to", tmp_path / "labels.csv").exception
    assert isinstance(failed, DataError)
    assert str(failed).startswith(f"{decisions}, row 2 (id ")
    assert "was made for other data" in str(failed)
    assert not (tmp_path / "labels.csv").exists()


def test_report(run: Path, tmp_path: Path) -> None:
    shown = call("report", run)
    assert shown.exit_code == 0, shown.output
    assert "60 examples:" in shown.stdout
    assert "6 mislabeled" in shown.stdout
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    told = json.loads(call("report", run, "--out", tmp_path / "r.html", "--json").stdout)
    assert told["out"] == str(tmp_path / "r.html")
    assert told["bytes"] == (tmp_path / "r.html").stat().st_size
    assert told["verdicts"]["mislabeled"] == 6
    assert call("report", run, "--quiet").stdout == ""
    assert "ending .html" in str(call("report", run, "--out", "r.txt").exception)
    assert "does not exist" in str(call("report", tmp_path / "none").exception)


def test_data_that_were_moved_are_asked_for(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{i % 3}.{i},{'xyz'[i % 3]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"a,b,label\n{rows}")
    made = mohs.audit(tmp_path / "rows.csv", out=tmp_path / "run", issues="none")
    row = made.table.to_pylist()[0]
    line = f"{row['id']},{made.data_hash},{row['label']},keep,"
    (tmp_path / "d.csv").write_text(f"id,data_hash,label,decision,new_label\n{line}\n")
    (tmp_path / "rows.csv").rename(tmp_path / "moved.csv")
    failed = call("apply", tmp_path / "run", tmp_path / "d.csv", "--retrain").exception
    where = f"the audited data are no longer at {tmp_path / 'rows.csv'}: give their new location with --data"
    assert str(failed) == where
