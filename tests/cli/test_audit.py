"""`mohs audit` as a person meets it: streams, files, gates and exit codes, and Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from mohs._core.errors import DataError
from mohs.cli import app, main

RUNNER = CliRunner()
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 digits as features, every tenth label wrong."""
    pixels, labels = load_digits(return_X_y=True)
    given = np.where(np.arange(300) % 10 == 0, (labels[:300] + 1) % 10, labels[:300])
    file = tmp_path_factory.mktemp("data") / "few.npz"
    np.savez(file, features=pixels[:300].astype(np.float32), labels=given)
    return file


def picture(file: Path, shade: int = 0) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(file.name)).integers(0, 99, (8, 8, 3), dtype=np.uint8) + np.uint8(shade)
    Image.fromarray(pixels).save(file)


def test_gates_json_and_cleanlab_columns(embeddings: Path, tmp_path: Path) -> None:
    words = ["audit", str(embeddings), "--out", str(tmp_path / "out"), "--json", "--cleanlab"]
    shown = RUNNER.invoke(app, [*words, "--gate", "mislabeled<0.02", "--gate", "noise<90%"])
    assert shown.exit_code == 1, shown.output
    told = json.loads(shown.stdout)
    assert told["gates_broken"] == ["mislabeled<0.02"]
    assert 0.02 < told["shares"]["mislabeled"] < 0.2
    assert Path(told["report"]).is_file()
    with Path(told["table"]).open() as file:
        rows = list(csv.DictReader(file))
    flagged = [row for row in rows if row["is_label_issue"] == "true"]
    assert len(flagged) == round(300 * told["shares"]["mislabeled"])
    assert all(float(row["label_score"]) < 0.5 for row in flagged)
    assert all(row["given_label"] == row["label"] and row["predicted_label"] == row["predicted"] for row in rows)
    assert told["loss"] is None  # no network was trained
    assert RUNNER.invoke(app, [*words, "--gate", "mislabeled<0.5"]).exit_code == 0  # the second time: nothing is trained
    words.remove("--json")
    assert "gate passed: mislabeled<0.5 (measured: 0." in RUNNER.invoke(app, [*words, "--gate", "mislabeled<0.5"]).stdout
    steps = [line.split()[0] for line in shown.stderr.splitlines() if "/6 " in line]
    assert [step for step in steps if step != "2/6"] == ["1/6", "3/6", "4/6", "5/6", "6/6"]  # features need no embedding


def test_what_was_read_is_told_with_its_doubts(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7};{i % 5},5;{'xy'[i % 2]};{['cat', 'dog', 'cat', 'Dog'][i % 4]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"a;b;code;label\n{rows}3;4,5;x;\n")
    words = [sys.executable, "-m", "mohs", "audit", "rows.csv", "--out", "out", "--issues", "none"]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    lines = shown.stderr.splitlines()
    assert shown.returncode == 0, shown.stderr
    assert lines[0].startswith("Warning: rows: 1 class(es) with several spellings, such as 'Dog' and 'dog': they are judged as")
    assert lines[1].endswith("of 3 classes; 1 left out (the first: rows.csv, line 62: no label)")
    assert "Note: fields are separated by semicolons" in lines
    assert "Note: decimal commas (3,14) were read as numbers" in lines


def test_constant_columns_are_counted(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{'rgb'[i % 3]},one,two,{'xy'[i % 2]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"a,b,same,equal,label\n{rows}")
    words = ["audit", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "out"), "--issues", "constant_column"]
    assert "other issues: constant columns (2)\n" in RUNNER.invoke(app, words).stdout


def test_splits_that_are_not_judged_are_named(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{i % 5},{'xy'[i % 2]},{('train', 'train', 'test')[i % 3]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"a,b,label,split\n{rows}")
    shown = RUNNER.invoke(app, ["audit", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "out")])
    assert "40 rows of 2 features of 2 classes; only the train split is judged, not test (20)" in shown.stderr, shown.output


def test_quiet_prints_nothing_and_keeps_the_gate(embeddings: Path, tmp_path: Path) -> None:
    words = ["audit", str(embeddings), "--out", str(tmp_path / "out"), "--quiet"]
    shown = RUNNER.invoke(app, [*words, "--gate", "easy>0.999"])
    assert (shown.exit_code, shown.output) == (1, "")


def test_hostile_names_and_files_that_are_not_images(tmp_path: Path) -> None:
    for shade, name in enumerate(("<script>alert(1)", "猫\u202eabc", "=1+1")):
        for i in range(5):
            picture(tmp_path / "data" / name / f"im'\"<i>{i}.png", 70 * shade)
        (tmp_path / "data" / name / "notes.txt").write_text("no image")
    whole = (tmp_path / "data" / "=1+1" / "im'\"<i>0.png").read_bytes()
    (tmp_path / "data" / "=1+1" / "cut.png").write_bytes(whole[: len(whole) // 2])
    words = ["audit", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--epochs", "2", "--device", "cpu"]
    shown = RUNNER.invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "15 images (3 × 8 × 8) of 3 classes; 4 left out (the first: " in shown.stderr
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "\u202e" not in page
    assert "notes.txt" in page
    assert "cut.png" in page


@pytest.mark.parametrize(
    ("make", "words", "code", "message"),
    [
        (None, ["nowhere"], 3, "nowhere: no such file or folder, and not a known name"),
        ("empty", ["data"], 3, "data: the folder is empty; put each class's images in a folder of its own"),
        ("single", ["data"], 3, "a single class folder, 'cat': a classifier needs at least 2"),
        ("table", ["rows.csv"], 3, "none of the 2 files in column 'path' exists"),
        (None, ["--gate", "cheese<1"], 2, "gate 'cheese<1': expected NAME<NUMBER"),
        (None, ["--epochs", "0"], 2, "epochs must be at least 1, got 0"),
        (None, ["--model", "ember"], 2, "unknown model 'ember'; known: linear"),
        ("file", ["--out", "file/out"], 4, "cannot be written (Not a directory): give another folder with out (--out)"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    make: str | None,
    words: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if make == "empty":
        (tmp_path / "data").mkdir()
    elif make == "single":
        picture(tmp_path / "data" / "cat" / "1.png")
    elif make == "table":
        (tmp_path / "rows.csv").write_text("path,label\na.png,x\nb.png,y\n")
    elif make == "file":
        (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mohs", "audit", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, errors = capsys.readouterr()
    assert ended.value.code == code, errors
    assert message in errors
    assert errors.count("\nmohs: ") + errors.startswith("mohs: ") == 1
    assert out == ""


def test_precision_bounds_what_is_flagged(embeddings: Path, tmp_path: Path) -> None:
    shares = []
    for precision in ("0.6", "0.97"):
        words = ["audit", str(embeddings), "--runs", str(tmp_path), "--precision", precision, "--json"]
        shown = RUNNER.invoke(app, words)
        assert shown.exit_code == 0, shown.output
        shares.append(json.loads(shown.stdout)["shares"]["mislabeled"])
    assert shares[0] >= shares[1] > 0
    assert len(list(tmp_path.iterdir())) == 2


def test_ctrl_c_says_how_to_resume(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mohs", "audit", "--embed", "none", "--out", str(tmp_path / "out"), "--epochs", "3000"]
    listen = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests that run in the background ignore it otherwise
    begun = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, preexec_fn=listen)
    assert begun.stderr is not None
    for line in begun.stderr:
        if line.startswith("3/6 judge"):
            break
    begun.send_signal(signal.SIGINT)
    out, errors = begun.communicate(timeout=60)
    assert begun.returncode == 130
    assert "mohs: interrupted; run the same command again to resume" in errors
    assert "Traceback" not in errors
    assert out == ""


def test_groups_are_named_counted_and_checked(tmp_path: Path) -> None:
    rng, own = np.random.default_rng(0), np.repeat(np.arange(30), 4)
    lines = [f"{x:.3f},{y:.3f},t{tree},{'ab'[tree % 2]}" for (x, y), tree in zip(rng.normal(size=(120, 2)), own, strict=True)]
    file = tmp_path / "trees.csv"
    file.write_text("\n".join(["x,y,tree,label", *lines]))
    words = ["audit", str(file), "--issues", "none", "--out", str(tmp_path / "out")]
    shown = RUNNER.invoke(app, [*words, "--group", "tree", "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["groups"] == 30
    assert "Note: 30 groups of 120 examples stay whole in cross-validation and splits" in shown.stderr
    page = (tmp_path / "out" / "report.html").read_text()
    assert "30 groups of 120 examples stay whole" in page
    words[-1] = str(tmp_path / "rows")
    shown = RUNNER.invoke(app, [*words, "--json"])
    assert "groups" not in json.loads(shown.stdout)
    assert "Note: column 'tree' has 30 values with 4 rows each" in shown.stderr
    assert "add --group tree" in shown.stderr
    with pytest.raises(
        DataError, match=r"trees\.csv: no column 'patient' for the groups \(--group\); its columns: x, y, tree, label"
    ):
        RUNNER.invoke(app, [*words, "--group", "patient"], catch_exceptions=False)
    with pytest.raises(ValueError, match="--stream judges features or logits in files: leave --group out"):
        RUNNER.invoke(app, [*words, "--group", "tree", "--stream"], catch_exceptions=False)
    assert "Column of groups, such as patients or videos" in " ".join(RUNNER.invoke(app, ["audit", "--help"]).stdout.split())
