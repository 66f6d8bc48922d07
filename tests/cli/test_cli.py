"""The command line as a person meets it: run as a process, read from its streams and exit codes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mohs
from mohs.cli import app
from mohs.cli.listing import KINDS

needs_charts = pytest.mark.skipif(importlib.util.find_spec("vl_convert") is None, reason="needs the report extra")


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mohs", *words], capture_output=True, text=True, check=False, env=env)


def test_help_and_version() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "emphasis" in shown.stdout
    assert run("--version").stdout.strip() == f"mohs {mohs.__version__}"


def test_list_losses(mohs_command: Callable[..., Any]) -> None:
    text = mohs_command("list", "losses").stdout
    assert all(name in text for name in mohs.LOSSES)
    rows = {row["name"]: row for row in json.loads(mohs_command("list", "--json").stdout)}
    assert set(rows) == set(mohs.LOSSES)
    assert rows["gradient_rescaling"]["focus"] == "0.33"
    assert rows["gce"]["settings"] == "q=0.7"
    assert all(row["formula"] and row["for"] for row in rows.values())
    assert rows["forward"]["settings"] == "transition=required"


@pytest.mark.parametrize(
    ("kind", "names"),
    [("regularizers", {"adr", "amc"}), ("heads", {"arcface", "avh"}), ("schedules", {"ramp_up"}), ("scores", {"avh", "aum"})],
)
def test_list_the_rest(kind: str, names: set[str]) -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", kind, "--json"]).stdout)
    assert names <= {row["name"] for row in rows}
    assert all(row["formula"] and row["for"] for row in rows)
    told = CliRunner().invoke(app, ["list", kind]).stdout
    assert all(name in told for name in names)


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        ("models", "cnn", "width=16"),
        ("data", "cifar10", "MOHS_DATA"),
        ("noises", "symmetric", "rate=required"),
        ("augmentations", "crop_flip", "padding=4"),
        ("optimizers", "sgd", "momentum=0.9"),
        ("lr_schedules", "cosine", "warmup=0.0"),
        ("attacks", "pgd", "steps="),
        ("degradations", "blur", "sigma=required"),
        ("measures", "ece", "bins=15"),
        ("selections", "lrent", "softness="),
    ],
)
def test_list_names_for_training_and_studies(kind: str, name: str, settings: str) -> None:
    found = CliRunner().invoke(app, ["list", kind, "--json"])
    assert found.exit_code == 0
    rows = {row["name"]: row for row in json.loads(found.stdout)}
    assert settings in rows[name]["settings"]
    assert all(row["for"] for row in rows.values())
    assert not any("\n" in text for row in rows.values() for text in row.values())
    assert name in CliRunner().invoke(app, ["list", kind]).stdout


def test_help_names_every_kind() -> None:
    told = " ".join(CliRunner().invoke(app, ["list", "--help"]).stdout.split())
    assert all(kind in told for kind in KINDS)


def test_list_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = json.loads(CliRunner().invoke(app, ["list", "recipes", "--json"]).stdout)
    assert any(row["name"].endswith("recipes/gr/table3.toml") for row in rows)  # of the source tree
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/a.toml").write_text('study = {paper = "Nobody, Table 1", what = "does it run?", seeds = 2}\n[[row]]\n')
    (tmp_path / "recipes/b.toml").write_text("study =")
    (tmp_path / "recipes/c.toml").write_text("[run]")
    (tmp_path / "recipes/d.toml").write_text('study = {like = "a.toml", paper = "Nobody, Table 2", what = "and elsewhere?"}\n')
    (tmp_path / "recipes/e.toml").write_text('study = {like = "missing.toml", paper = "", what = ""}\n')
    a, b, c, d, e = json.loads(CliRunner().invoke(app, ["list", "recipes", "--json"]).stdout)
    assert (a["name"], a["formula"], a["for"]) == ("recipes/a.toml", "Nobody, Table 1", "does it run?")
    assert a["settings"] == "1 row(s), 2 seeds, by test_accuracy"
    assert b["for"].startswith("not a readable recipe (Invalid value")
    assert c["for"] == "not a readable recipe ('study')"
    assert (d["for"], d["settings"]) == ("and elsewhere?", "1 row(s), 3 seeds, by test_accuracy")  # rows of a.toml
    assert e["for"].startswith("not a readable recipe (")


def test_emphasis_as_json(mohs_command: Callable[..., Any]) -> None:
    got = json.loads(
        mohs_command("emphasis", "cross_entropy", "gradient_rescaling:beta=12,lam=1", "encouraging:log_end=1", "--json").stdout
    )
    assert [curve["loss"] for curve in got] == ["cross_entropy", "gradient_rescaling:beta=12,lam=1", "encouraging:log_end=1"]
    at = dict(zip(got[0]["p"], got[0]["emphasis"], strict=True))
    assert at[0.25] == pytest.approx(0.75)
    assert got[1]["focus"] == pytest.approx(0.5, abs=1e-5)
    assert got[2]["focus"] is None


def test_emphasis_as_a_table(mohs_command: Callable[..., Any]) -> None:
    shown = mohs_command("emphasis", "mae", "mse:mirror=True", "--relative")
    assert shown.returncode == 0
    assert "relative to its peak" in shown.stdout
    assert "1.00" in shown.stdout


@needs_charts
def test_emphasis_writes_a_chart(mohs_command: Callable[..., Any], tmp_path: Path) -> None:
    for name, head in (("w.svg", b"<svg"), ("w.png", b"\x89PNG")):
        shown = mohs_command("emphasis", "cross_entropy", "focal", "--out", str(tmp_path / name))
        assert shown.returncode == 0
        assert f"wrote {tmp_path / name}" in shown.stderr
        assert (tmp_path / name).read_bytes().startswith(head)
    assert "focal" in (tmp_path / "w.svg").read_text()
    assert mohs_command("emphasis", "focal", "--quiet", "--out", str(tmp_path / "q.svg")).stderr == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["emphasis", "ember"], "unknown loss 'ember'; known: cross_entropy"),
        (["emphasis", "gce:q=2"], "q must be between 0 and 1, got 2"),
        (["emphasis", "gce:q=much"], "gce: q must be a finite number, got 'much'"),
        (["emphasis", "gce:q"], "expected key=value"),
        (["emphasis", "gce:beta=1"], "gce has no field 'beta'"),
        (["emphasis", "encouraging:start=x"], "encouraging: start must be a finite number, got 'x'"),
        (["emphasis", "--out", "w.pdf"], "charts are written as .svg or .png"),
        (["emphasis", "--out", "no/such/w.svg"], "the folder no/such does not exist"),
        (["list", "cheese"], "cannot list 'cheese'; known: losses, regularizers"),
        (["grind"], "No such command 'grind'"),
    ],
)
def test_usage_errors_are_one_line_and_code_2(words: list[str], message: str, mohs_command: Callable[..., Any]) -> None:
    shown = mohs_command(*words)
    assert shown.returncode == 2
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr
    assert shown.stdout == ""


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "vl_convert.py").write_text("raise ModuleNotFoundError('no', name='vl_convert')")
    shown = run("emphasis", "gce", "--out", str(tmp_path / "w.svg"), env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert shown.returncode == 4
    assert "vl_convert is not installed: pip install 'mohs[report]'" in shown.stderr
