"""`mohs doctor` as a person meets it, and with packages that are missing or broken."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import mohs
from mohs.cli import environment as examination
from mohs.cli import self_test
from mohs.cli.doctor import doctor
from mohs.cli.environment import EXTRAS, REQUIRED, Package, check_package, examine

app = typer.Typer()
app.command()(doctor)
PROJECT = tomllib.loads((Path(mohs.__file__).parents[2] / "pyproject.toml").read_text())["project"]


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!\[;]", one)[0] for one in requirements}


@pytest.fixture
def broken_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "broken_beyond_repair.py").write_text("raise RuntimeError('operator torchvision::nms\\n  does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "broken_beyond_repair"


def test_this_installation_is_fine() -> None:
    done = run()
    assert done.exit_code == 0, done.stdout
    assert f"mohs {mohs.__version__}" in done.stdout
    assert "all requirements work" in done.stdout
    assert "cross-entropy equals torch's to 1e-5 on cpu" in done.stdout
    assert "one epoch on digits" in done.stdout
    assert "60 rows written and read" in done.stdout
    assert re.search(r"a page of \d\.\d MB with", done.stdout)


def test_json_output_holds_the_same() -> None:
    told = json.loads(run("--json", "--no-self-test").stdout)
    assert told["fine"] is True
    assert told["checks"] == []
    assert told["machine"]["cores"] >= 1
    assert {one["name"] for one in told["packages"]} == set(REQUIRED)
    assert {one["name"]: one["state"] in ("ok", "missing", "broken") for one in told["extras"]} == dict.fromkeys(EXTRAS, True)
    assert run("--quiet", "--no-self-test").stdout == ""


def test_doctor_lists_the_requirements_of_the_project() -> None:
    assert set(REQUIRED) == names(PROJECT["dependencies"])
    for name, (packages, _) in EXTRAS.items():
        assert set(packages) == names(PROJECT["optional-dependencies"][name]), name


def test_a_package_is_imported_not_only_located(broken_package: str) -> None:
    assert check_package("no-such-package", "no_such_package") == Package("no-such-package", None)
    found = check_package("no-such-package", broken_package)
    assert not found.works
    assert found.problem == "RuntimeError: operator torchvision::nms does not exist"
    assert check_package("torch", "torch").works


def test_packages_print_no_messages_when_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "loud_package.py").write_text("import logging\nlogging.getLogger('loud').info('loading')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with caplog.at_level("INFO"):
        assert check_package("loud-package", "loud_package").works
        logging.getLogger("loud").info("later")
    assert caplog.messages == ["later"]


def test_a_broken_requirement_exits_with_4_and_is_named(broken_package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "REQUIRED", {**REQUIRED, "ember": "no_such_package", "cinder": broken_package})
    done = run("--no-self-test")
    assert done.exit_code == 4
    assert "MISSING  ember" in done.stdout
    assert "BROKEN   cinder" in done.stdout
    assert "a requirement is missing or broken" in done.stdout
    assert "ember is required but is not installed: pip install --upgrade --force-reinstall ember" in done.stdout
    assert "cinder is required but does not import: pip install" in done.stdout


def test_extras_are_not_needed_and_have_advice(broken_package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extras = {"embers": ({"ember": "no_such_package"}, "embers"), "cinders": ({"cinder": broken_package}, "cinders")}
    monkeypatch.setattr(examination, "EXTRAS", extras)
    health = examine(test=False)
    assert health.fine
    assert [extra.state for extra in health.extras] == ["missing", "broken"]
    assert health.advice == [
        "for embers (ember): pip install 'mohs[embers]'",
        "cinder is installed but does not import: pip install 'mohs[cinders]' --upgrade --force-reinstall",
    ]


def test_a_failed_self_test_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(self_test, "CHECKS", {"disk": fail, "table": self_test.CHECKS["table"]})
    done = run()
    assert done.exit_code == 4
    assert "FAILED   disk       OSError: [Errno 28] No space left on device" in done.stdout
    assert "ok       table" in done.stdout
    assert "the self-test of disk failed" in done.stdout


def test_machines_with_and_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def refuse() -> int:
        raise RuntimeError("driver too old")

    monkeypatch.setenv("MOHS_DATA", "/some/folder")
    monkeypatch.setattr(torch.cuda, "device_count", refuse)
    done = run("--no-self-test")
    assert "GPU: none available to torch: RuntimeError: driver too old" in done.stdout
    assert "data sets by name: in /some/folder (MOHS_DATA)" in done.stdout
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (10**9, 4 * 10**9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "A card")
    assert "GPU: A card, 1 of 4 GB free" in run("--no-self-test").stdout
