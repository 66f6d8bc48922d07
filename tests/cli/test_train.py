"""`mohs train` as a person uses it: what its options make of the run, and domains to train and test on."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from mohs.cli import main
from mohs.cli.train import train
from mohs.data.open_data import open_data
from mohs.train.resolve import prepare_data
from mohs.train.run import Run
from mohs.train.run_data import opened
from mohs.train.trained import load_run

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


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"what": "embedding", "epoch": 0, "step": 3}, "interrupted before training began; run the same command again"),
        (
            {"epoch": 0, "step": 3},
            "interrupted before the end of the first epoch: nothing is kept; run the same command again to",
        ),
        ({"epoch": 2, "step": 3}, "interrupted after 2 of 5 epochs, which are kept: run the same command again to resume"),
        ({"epoch": 2}, "interrupted after 3 of 5 epochs, which are kept: run the same command again to resume"),
    ],
)
def test_ctrl_c_says_what_is_kept(event: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, watch: Any, **how: Any) -> None:
        watch(event)
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("mohs.train.loop"), "train", interrupted)
    done = CliRunner().invoke(app, ["digits", "--epochs", "5"])
    assert done.exit_code == 130
    assert f"mohs: {message}" in done.stderr


def test_ctrl_c_elsewhere_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("mohs.train.run_data"), "opened", interrupted)
    monkeypatch.setattr("sys.argv", ["mohs", "train"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "mohs: interrupted; run the same command again to resume\n"


def test_whole_groups_are_held_out() -> None:
    rng, own = np.random.default_rng(0), np.repeat(np.arange(40), 5)
    lines = [f"{x:.3f},{tree},{'ab'[tree % 2]}" for x, tree in zip(rng.normal(size=200), own, strict=True)]
    Path("trees.csv").write_text("\n".join(["x,tree,label", *lines]))
    done = mohs("trees.csv", "--group", "tree", "--epochs", "1", "--device", "cpu", "--json")
    about = json.loads((Path(done["folder"]) / "run.json").read_text())
    assert about["run"]["open"]["group"] == "tree"
    assert about["data"]["examples"] == {"train": 180, "val": 20}
    data = prepare_data(Run(data="trees.csv"), open_data("trees.csv", group="tree"))
    assert data.val is not None
    assert data.val.groups is not None
    assert data.train.groups is not None
    assert not torch.isin(data.val.groups, data.train.groups).any()
    with_test = opened(Run(data="trees.csv", open={"group": "tree", "test": 0.2}))
    assert with_test.test is not None
    assert with_test.test.groups is not None
    assert with_test.train.groups is not None
    assert not torch.isin(with_test.test.groups, with_test.train.groups).any()
    again = mohs("trees.csv", "--epochs", "1", "--device", "cpu", "--json")
    assert again["folder"] != done["folder"]  # another run
    Path("new.csv").write_text("x\n1\n-1\n")
    assert load_run(done["folder"]).predict("new.csv").num_rows == 2  # groups are no feature
