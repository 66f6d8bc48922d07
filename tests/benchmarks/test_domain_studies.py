"""The drivers of the studies of new domains, at smoke scale: they run, add to their results, and the means can be judged."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mohs.study.collect import by_seed, read_results
from mohs.study.judge import judge

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


Drive = Callable[..., str]


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Drive:
    """A driver's `main` with these words, in this process; what it printed."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def called(name: str, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, "--scale", "smoke", *words])
        importlib.import_module(name).main()
        return capsys.readouterr().out

    return called


def test_adaptation(tmp_path: Path, drive: Drive) -> None:
    words = ["--methods", "CBST", "CBST + AVH", "--rounds", "1", "--workers", "1", "--out", str(tmp_path)]
    drive("adapt_study", *words, "--seeds", "0")
    shown = drive("adapt_study", *words, "--seeds", "1")
    assert "mean: CBST + AVH − CBST = " in shown
    results = read_results(tmp_path / "adapt.csv")
    sides = [by_seed(results, f"mean: {method}", "test_accuracy") for method in ("CBST + AVH", "CBST")]
    assert judge(*sides).n == 2
    assert set(by_seed(results, "digits->digits:blur=1: source only", "test_accuracy")) == {0, 1}
    first = {row: by_seed(results, f"mean: {row}", "first_selected") for row in ("CBST", "CBST + AVH")}
    assert all(value > 0 for own in first.values() for value in own.values())
    assert list(tmp_path.glob("adapt-only-by-angle-*.png"))


def test_leaving_one_domain_out(tmp_path: Path, drive: Drive) -> None:
    words = ["--seeds", "0", "1", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    shown = drive("pacs_study", *words)
    assert "mean: AVH − cross-entropy = " in shown
    results = read_results(tmp_path / "pacs.csv")
    assert {one["head_scale"] for one in results if str(one["row"]).startswith("digits: AVH")} <= {5.0, 10.0, 20.0}
    assert len(results) == (2 + 1) * 6 * 2
