"""`mohs train` as a person uses it: what its options make of the run, and domains to train and test on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from mohs.cli.train import train

app = typer.Typer()
app.command()(train)
QUICK = ("--model", "cnn:width=4", "--epochs", "1", "--device", "cpu", "--json")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def mohs(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_plan_reflects_the_options() -> None:
    told = mohs(
        "digits", *QUICK, "--dry-run", "--loss", "gce:q=0.5", "--regularizer", "adr:weight=0.05", "--noise", "symmetric:rate=0.2"
    )
    assert told["run"]["loss"] == {"name": "gce", "q": 0.5}
    assert told["run"]["regularizers"] == [{"name": "adr", "weight": 0.05}]
    assert told["run"]["noise"]["rate"] == 0.2
    assert told["estimate"]["seconds"] > 0
    assert not Path("runs").exists()


def test_a_held_out_domain_is_the_test_set() -> None:
    plan = mohs("digits+digits:invert", "--without", "digits:invert", *QUICK, "--dry-run")
    assert plan["run"]["open"] == {"without": "digits:invert"}
    done = mohs("digits+digits:invert", "--without", "digits:invert", *QUICK)
    about = json.loads((Path(done["folder"]) / "run.json").read_text())
    assert about["data"]["examples"]["test"] + about["data"]["examples"]["train"] + about["data"]["examples"]["val"] == 1797
    with pytest.raises(ValueError, match="no domain 'usps' to leave out"):
        mohs("digits+digits:invert", "--without", "usps", *QUICK)


def test_a_pair_is_trained_on_the_first_and_tested_on_the_second() -> None:
    done = mohs("digits->digits:rotate=40", *QUICK)
    assert "test_accuracy" in done
    examples = json.loads((Path(done["folder"]) / "run.json").read_text())["data"]["examples"]
    assert examples["train"] + examples["val"] + examples["test"] == 1797  # each half once
    assert abs(examples["test"] - 898) < 20
    with pytest.raises(ValueError, match="a pair is written SOURCE->TARGET"):
        mohs("digits->", *QUICK)
