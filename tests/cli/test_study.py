"""`mohs study` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from mohs._core.errors import DataError
from mohs.cli.study import study

app = typer.Typer()
app.command()(study)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_study: str) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes" / "toy").mkdir(parents=True)
    (tmp_path / "recipes" / "toy" / "table1.toml").write_text(small_study)
    return tmp_path


def mohs(*words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--device", "cpu"])


def test_a_study_writes_its_results_and_its_page(here: Path) -> None:
    done = mohs("recipes/toy/table1.toml")
    assert done.exit_code == 0, done.exception
    assert "toy/table1" in done.stdout
    assert "GCE against CE" in done.stdout
    assert "[4/4] toy/table1: GCE, seed 1:" in done.stderr
    assert (here / "results/toy/table1.csv").read_text().startswith("study,row,seed,")
    assert (here / "results/toy/table1.md").read_text().startswith("# does it run?")
    again = mohs("recipes", "--collect-only", "--out", "elsewhere", "--json")
    (told,) = json.loads(again.stdout)
    assert (told["study"], told["runs"], told["failed"]) == ("toy/table1", 4, 0)
    assert (here / "elsewhere/toy/table1.csv").read_text() == (here / "results/toy/table1.csv").read_text()


def test_a_smoke_run_does_not_touch_results(here: Path) -> None:
    done = mohs("recipes/toy", "--scale", "smoke", "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert not (here / "results").exists()
    assert (here / "runs/smoke/toy/table1.csv").exists()


def test_a_plan_trains_nothing(here: Path) -> None:
    (told,) = json.loads(mohs("recipes", "--dry-run", "--json", "--seeds", "3").stdout)
    assert (told["rows"], told["seeds"], told["runs"], told["to_train"]) == (2, 3, 6, 6)
    assert told["seconds"] > 0
    assert not (here / "runs").exists()
    assert mohs("recipes", "--quiet").exit_code == 0
    plain = mohs("recipes", "--dry-run").stdout
    assert "to train   0" in plain


def test_errors_name_the_problem(here: Path) -> None:
    (here / "empty").mkdir()
    for words, error, message in (
        ((), ValueError, "no study given"),
        (("none.toml",), ValueError, "none.toml: no such recipe"),
        (("empty",), ValueError, "no recipe"),
        (("recipes", "--scale", "tiny"), ValueError, "scale must be one of full, smoke"),
        (("recipes", "--collect-only"), DataError, "no runs of this study in runs"),
    ):
        problem = mohs(*words).exception
        assert isinstance(problem, error)
        assert message in str(problem)


def test_claims_are_checked_before_they_are_written(here: Path) -> None:
    from mohs.studies.claims import read_register

    if not any(claim.recipe or claim.test for claim in read_register()):
        pytest.skip("the register has no claims yet")
    problem = mohs("--claims").exception  # nothing that the register names is in this empty folder
    assert isinstance(problem, DataError)
    assert "the register of claims has problems" in str(problem)
    assert not (here / "docs").exists()
