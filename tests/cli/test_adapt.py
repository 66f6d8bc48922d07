"""`mohs adapt` as a person meets it: run as a process, read from its streams and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

Shown = tuple[int, str, str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Shown]:
    """The command in this process, as importing torch for each would take longer than the tests: code, stdout, stderr."""
    from mohs.cli import app, main
    from mohs.cli.adapt import adapt

    if "adapt" not in [command.name for command in app.registered_commands]:
        app.command("adapt")(adapt)

    def called(*words: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["mohs", "adapt", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return called


def test_without_data_adapts_digits_to_rotated_digits(tmp_path: Path, run: Callable[..., Shown]) -> None:
    words = ["--epochs", "6", "--rounds", "2", "--device", "cpu", "--out", str(tmp_path / "a")]
    code, shown, said = run(*words)
    assert code == 0, said
    first, *lines = shown.splitlines()
    assert first.split() == ["round", "selected", "right", "target", "source"]
    assert float(lines[2].split()[3]) > float(lines[0].split()[1])
    assert "round 1: " in said
    assert (tmp_path / "a" / "only-here.png").read_bytes().startswith(b"\x89PNG")
    again = json.loads(run(*words, "--json", "--take", "target_entropy")[1])
    assert [line["round"] for line in again["rounds"]] == [0, 1, 2]
    assert Path(again["network"]).name in ("round-0", "round-1", "round-2")
    assert run(*words, "--quiet") == (0, "", "")


def test_a_target_without_labels(tmp_path: Path, run: Callable[..., Shown]) -> None:
    from PIL import Image

    images = (load_digits().images[:200] * 15.9).astype(np.uint8)
    np.savez(tmp_path / "new.npz", x=images)
    (tmp_path / "scans" / "page").mkdir(parents=True)
    for i, pixels in enumerate(images[:40]):
        Image.fromarray(pixels).save(tmp_path / "scans" / "page" / f"{i:02}.png")
    for name in ("new.npz", "scans"):
        words = ["--target", str(tmp_path / name), "--unlabeled", "--epochs", "1", "--rounds", "1", "--device", "cpu"]
        code, shown, said = run(*words, "--portion", "0.5", "0", "0.5", "--out", str(tmp_path / f"out-{name}"), "--json")
        assert code == 0, said
        line = json.loads(shown)["rounds"][1]
        assert line["selected"] > 0
        assert "true" not in line


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--selection", "cbts"], 2, "unknown selection 'cbts'; known: cbst"),
        (["--target", "digits:squeeze=2"], 2, "unknown shift 'squeeze'; known: invert, rotate"),
        (["--target", "digits:rotate=much"], 2, "rotate needs a number, got 'much'"),
        (["--take", "luck"], 2, "take must be one of last, source_accuracy"),
        (["--portion", "0.6", "0", "0.5"], 2, "portion: most must be between 0.6 and 1, got 0.5"),
        (["--rounds", "0"], 2, "rounds must be an integer of at least 1"),
        (["--target", "no/such"], 3, "no such file or folder"),
        (["--target", "no/such", "--unlabeled"], 3, "no/such: no such file or folder"),
        (["--target", __file__, "--unlabeled"], 3, "inputs without labels are a folder or .zip of images"),
        (["--selection", "lrent", "--loss", "taylor"], 2, "lrent trains with soft labels, but the loss is taylor"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, run: Callable[..., Shown], words: list[str], code: int, message: str) -> None:
    found, shown, said = run(*words, "--out", str(tmp_path / "x"), "--device", "cpu")
    assert found == code, said
    assert message in said
    assert len(said.splitlines()) == 1
    assert shown == ""
    assert not (tmp_path / "x").exists()
