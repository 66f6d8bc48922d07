"""`mohs predict` as a person meets it: what it writes, what it prints, and how it fails."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mohs.train.loop import train


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run on two classes of numbers, and a file of new rows."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(200, 2))
    with Path("train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["x", "y", "label"], *([*row, "up" if sum(row) > 0 else "down"] for row in x.tolist())])
    with Path("new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "y", "x"], ["p", 0.1, 3], ["q", 0.1, -3], ["r", 0.2, 2]])
    train("train.csv", out=Path("run"), epochs=60, optimizer="sgd:lr=0.1", validation=0, device="cpu")
    return tmp_path


def test_predictions_are_written_and_summarized(here: Path, mohs_command: Callable[..., Any]) -> None:
    done = mohs_command("predict", "run", "new.csv", "--probs")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 predictions: up 2, down 1\ntable: predictions.csv\n"
    with Path("predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["predicted"]) for row in rows] == [("p", "up"), ("q", "down"), ("r", "up")]
    assert all(float(row["p_up"]) + float(row["p_down"]) == pytest.approx(1, abs=1e-5) for row in rows)
    told = json.loads(mohs_command("predict", "run", "new.csv", "--out", "p.parquet", "--json").stdout)
    assert told == {"out": "p.parquet", "rows": 3, "classes": {"up": 2, "down": 1}, "left_out": []}
    assert mohs_command("predict", "run", "new.csv", "--quiet").stdout == ""  # predictions of the same inputs are replaced


def test_other_files_are_not_overwritten(here: Path, mohs_command: Callable[..., Any]) -> None:
    Path("other.csv").write_text("id,x,y\np,1,2\ns,1,3\n")
    assert mohs_command("predict", "run", "other.csv").returncode == 0
    Path("notes.csv").write_text("name,kind\nrex,dog\n")
    for name in ("predictions.csv", "notes.csv", "other.csv"):
        before = Path(name).read_text()
        done = mohs_command("predict", "run", "new.csv", "--out", name)
        assert (done.returncode, Path(name).read_text()) == (3, before)
        where = f"{name} exists and does not hold predictions of these inputs: give another file with out (--out)"
        assert where in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere", "new.csv"], 3, "nowhere"),
        (["run", "nowhere.csv"], 3, "nowhere.csv: no such file or folder"),
        (["run", "train.csv", "--out", "labels.txt"], 2, "labels.txt"),
        (["run", "bad.csv"], 3, "bad.csv: no column 'y'; its columns: x, z"),
        (["run", "new.csv", "--device", "tpu"], 2, "tpu"),
        (
            ["run", "new.csv", "train.csv"],
            3,
            "new.csv: several inputs must be image files; give one folder, .zip or file of rows",
        ),
        (["run", "new.csv", "gone.png"], 3, "new.csv: several inputs must be image files"),
    ],
)
def test_errors_name_the_problem(here: Path, mohs_command: Callable[..., Any], words: list[str], code: int, message: str) -> None:
    Path("bad.csv").write_text("x,z\n1,2\n")
    done = mohs_command("predict", *words)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("predictions.csv").exists()
