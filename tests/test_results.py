"""Results name the code that made them: a commit, the hash of a tree, or a mark that it cannot be traced."""

from __future__ import annotations

import csv
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
TABLES = sorted(RESULTS.rglob("*.csv"))
BENCHMARKS = sorted(RESULTS.rglob("*.json"))
COMMIT, TREE = re.compile(r"[0-9a-f]{7,40}"), re.compile(r"tree:[0-9a-f]{12}")
WITHIN = re.compile(r"[0-9a-f]{12} in ([0-9a-f]{12})")  # a commit that was replaced, and the one that has its changes
LOST = re.compile(r"unknown|[0-9a-f]{7,40}(\+|-dirty)|no column")  # no commit, or that of a tree with modifications
UNTRACEABLE = {  # rows made before the code was recorded; run them again, and shrink this list: it may not grow
    "adr/figure3.csv": 15, "adr/table2-fashion.csv": 10, "adr/table3.csv": 18, "adr/table4-fashion.csv": 6, "adr/table4.csv": 18,
    "amc/figure6.csv": 20, "amc/table1-cifar10.csv": 20, "amc/table1-mnist.csv": 24,
    "audit/ambiguity.csv": 36, "avh/cifar10h-bins.csv": 60, "avh/cifar10h-tests.csv": 63,
    "avh/cifar10h.csv": 441, "avh/degradation-contrast.csv": 12, "avh/degradation-noise.csv": 12, "avh/figure3.csv": 10,
    "avh/human.csv": 30, "avh/table3.csv": 9, "avh/table5.csv": 36, "el/ece.csv": 9, "el/energy.csv": 9, "el/figure4.csv": 9,
    "el/gradients.csv": 9, "el/margins.csv": 9, "el/table1-cifar10.csv": 6, "el/table2.csv": 15, "el/table3-fashion.csv": 24,
    "el/table4.csv": 12, "el/table5-small.csv": 1, "gr/figure5-fashion.csv": 8, "gr/table11-fashion.csv": 1, "gr/table2.csv": 9,
    "gr/table3-fashion.csv": 38, "gr/table4-fashion.csv": 12, "gr/table8-fashion.csv": 12,
    "noise_rate.csv": 375, "train/resnet20.csv": 51, "wrong_labels.csv": 112,
    "benchmarks/audit.json": 1, "benchmarks/hardness-cpu.json": 1,
    "benchmarks/regularizers-cpu-fresh-arrays.json": 1, "benchmarks/regularizers-cpu-kept-arrays.json": 1,
    "benchmarks/train-slower-host.json": 1, "benchmarks/train.json": 1,
    "train/resnet20.json": 1,
}  # fmt: skip


def named(path: Path) -> list[str]:
    """The code that every row of a results file names; "" where it names none, "no column" where the file has none for it."""
    if path.suffix == ".json":
        return [str(json.loads(path.read_text())["machine"].get("commit", ""))]
    with path.open(newline="", encoding="utf-8") as file:
        return [row.get("git", "no column") for row in csv.DictReader(file)]


@pytest.mark.parametrize("path", [*TABLES, *BENCHMARKS], ids=lambda path: path.relative_to(RESULTS).as_posix())
def test_every_row_names_its_code_or_is_marked(path: Path) -> None:
    found = named(path)
    assert found, "a results file without rows"
    unnamed = [name for name in found if not any(kind.fullmatch(name) for kind in (COMMIT, TREE, WITHIN, LOST))]
    assert not unnamed, f"{len(unnamed)} rows name neither commit nor tree: {unnamed[:3]}"
    lost = sum(LOST.fullmatch(name) is not None for name in found)
    assert lost <= UNTRACEABLE.get(path.relative_to(RESULTS).as_posix(), 0), "run it with the package's files committed"


def test_the_list_of_untraceable_rows_names_files_that_are_there() -> None:
    assert {path.relative_to(RESULTS).as_posix() for path in (*TABLES, *BENCHMARKS)} >= set(UNTRACEABLE)


def test_commits_are_in_the_history() -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no full history here")
    names = {WITHIN.sub(r"\1", name) for path in (*TABLES, *BENCHMARKS) for name in named(path)}
    commits = {name for name in names if COMMIT.fullmatch(name)}
    asked = "".join(f"{commit}^{{commit}}\n" for commit in sorted(commits))
    command = ["git", "-C", str(ROOT), "cat-file", "--batch-check"]
    answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in answer if " commit " not in line] == []


def test_the_table_of_human_agreement_is_made_of_the_long_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, script = tmp_path / "human.csv", ROOT / "benchmarks/human_table.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--tables", str(RESULTS / "avh"), "--out", str(out)])
    runpy.run_path(str(script), run_name="__main__")
    assert out.read_text() == (RESULTS / "avh/human.csv").read_text()
