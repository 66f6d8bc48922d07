"""`mohs compare` as a person uses it."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from mohs._core.errors import DataError
from mohs.cli.compare import compare

app = typer.Typer()
app.command()(compare)
QUICK = ("--model", "cnn:width=8", "--epochs", "3", "--seeds", "2", "--device", "cpu")
needs_charts = pytest.mark.skipif(importlib.util.find_spec("vl_convert") is None, reason="needs the report extra")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mohs(*words: str) -> Result:
    return CliRunner().invoke(app, words)


@needs_charts
def test_losses_are_compared_and_drawn_and_their_runs_too(here: Path) -> None:
    losses = ("--loss", "cross_entropy", "--loss", "gce:q=0.5", "--noise", "symmetric:rate=0.2")
    done = mohs("digits", *losses, *QUICK, "--out", "compare.svg")
    assert done.exit_code == 0, done.exception
    assert "gce:q=0.5" in done.stdout
    assert "[4/4] gce:q=0.5, seed 1:" in done.stderr
    assert (here / "compare.svg").read_text().startswith("<svg")
    told = json.loads(mohs(*losses, *QUICK, "--json", "--quiet").stdout)
    assert [(one["name"], one["n"]) for one in told] == [("cross_entropy", 2), ("gce:q=0.5", 2)]
    assert told[0]["difference"] is None
    assert told[1]["difference"] == pytest.approx(told[1]["mean"] - told[0]["mean"])
    runs = [str(next(here.glob(f"runs/digits-cnn-{loss}-s0-*"))) for loss in ("cross_entropy", "gce")]
    shown = mohs(*runs)
    assert shown.exit_code == 0, shown.exception
    assert "test examples that both runs held out" in shown.stdout
    assert "McNemar" in shown.stdout
    pair = json.loads(mohs(*runs, "--json").stdout)
    assert pair["accuracy_a"] == pytest.approx(told[0]["values"]["0"], abs=1e-6)


def test_equal_differences_are_too_few_seeds_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    from mohs.cli.compare import _plain, _print_table
    from mohs.studies.compare import SettingCompared

    first = SettingCompared("ce", {0: 0.5, 1: 0.6}, 0, mean=0.55, sd=0.07)
    same = SettingCompared("gce", {0: 0.6, 1: 0.7}, 0, 0.65, 0.07, 0.0, 1.0, 0.1, -math.inf, math.inf, 0.5, "draw")
    _print_table([first, same])
    told = " ".join(capsys.readouterr().out.split())
    assert "accuracy on held-out examples in % (labels as given)" in told
    assert "+10.00 0.5 draw" in told
    assert "inf" not in told
    assert _plain({"low": -math.inf, "mean": 0.5}) == {"low": None, "mean": 0.5}


@needs_charts
def test_errors_name_the_problem(here: Path) -> None:
    for words, error, message in (
        (("a", "b"), DataError, "a does not hold a run"),
        (("a",), ValueError, "give two run folders, or --loss at least twice"),
        (("--loss", "gce"), ValueError, "got 1 loss(es), 0 recipe(s) and 0 argument(s)"),
        (("a", "b", "--loss", "gce", "--loss", "mae"), ValueError, "got 2 loss(es), 0 recipe(s) and 2 argument(s)"),
        (("--loss", "gce", "--loss", "gce"), ValueError, "--loss gce is given twice"),
        (("--recipe", "robust", "--recipe", "robust"), ValueError, "--recipe robust is given twice"),
        (("--loss", "gce", "--loss", "gcee"), ValueError, "unknown loss 'gcee'"),
        (("a", "b", "--out", "x.svg"), ValueError, "two runs have no chart"),
        (("--out", "x.pdf"), ValueError, "charts are written as .svg or .png"),
        (("nowhere", "--loss", "gce", "--loss", "mae"), DataError, "nowhere: no such file or folder"),
    ):
        problem = mohs(*words).exception
        assert isinstance(problem, error), words
        assert message in str(problem), words
    assert not (here / "runs").exists()


def test_without_arguments_runs_a_demonstration_on_digits() -> None:
    from mohs.cli.compare import DEMONSTRATION, settings_of

    settings = settings_of([], DEMONSTRATION, [], model=None, epochs=5)
    assert list(settings) == ["cross_entropy", "gradient_rescaling"]
    assert all((run.data, run.epochs) == ("digits", 5) for run in settings.values())


def test_recipes_are_compared_with_a_plain_and_a_robust_loss_on_one_budget() -> None:
    from mohs.cli.compare import LOSSES_TO_BEAT, settings_of

    settings = settings_of(["digits"], LOSSES_TO_BEAT, ["robust", "robust-two"], epochs=None)
    assert {name: run.epochs for name, run in settings.items()} == dict.fromkeys(
        ["cross_entropy", "gce:q=0.7", "robust", "robust-two"], 60
    )
    told = mohs("digits", "--recipe", "robust", "--model", "linear", "--epochs", "2", "--seeds", "1", "--json", "--quiet")
    assert told.exit_code == 0, told.exception
    assert [one["name"] for one in json.loads(told.stdout)] == ["cross_entropy", "gce:q=0.7", "robust"]


def test_groups_are_part_of_the_runs(here: Path) -> None:
    rows = [f"{i % 7}.5,{i % 3 - (i // 5) % 2}.25,t{i // 5},{'ab'[(i // 5) % 2]}" for i in range(200)]
    (here / "trees.csv").write_text("\n".join(["x,y,tree,label", *rows]))
    losses = ("--loss", "cross_entropy", "--loss", "gce:q=0.5", "--epochs", "2", "--seeds", "2", "--device", "cpu")
    done = mohs("trees.csv", "--group", "tree", *losses)
    assert done.exit_code == 0, done.exception
    runs = [json.loads(file.read_text()) for file in (here / "runs").glob("*/run.json")]
    assert len(runs) == 4
    assert all(one["run"]["open"] == {"group": "tree", "test": 0.2} for one in runs)
    assert all(one["data"]["examples"]["test"] % 5 == 0 for one in runs)
