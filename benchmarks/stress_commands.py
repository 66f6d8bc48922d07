"""The commands that the stress test kills and whose folders it damages, on small data, and the digest of what each made.

A `Scenario` is a command, the folder it writes, and commands that only read that folder. `result` is a digest of what counts:
weights, tables, histories and findings, without times and versions.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

TIMES = ("seconds", "date", "versions", "git", "hardware", "run", "audit", "seconds of training", "notes")
CONFIG = """
epochs = 4
batch = 32
model = "mlp:hidden=8"
trace = true
trace_test = true
regularizers = [{name = "early_learning", weight = 3.0}]
ema = 0.9
open = {test = 0.2}
"""
RECIPE = """
[study]
id = "stress/study"
paper = "none"
what = "a small study"
seeds = 1
[base]
data = "DATA"
model = "mlp:hidden=8"
epochs = 2
batch = 32
[[row]]
label = "cross-entropy"
[[row]]
label = "gce"
loss = "gce"
against = "cross-entropy"
[[measure]]
name = "ece"
"""


@dataclass(frozen=True)
class Scenario:
    """A command that writes `folder`, commands that read it, and the digest of what counts in it."""

    name: str
    command: list[str]
    folder: Path
    result: Callable[[Path], str]
    readers: Sequence[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Ran:
    """How a command ended: exit code (None: an exception), what it wrote to stderr, and the seconds it took."""

    code: int | None
    errors: str
    seconds: float


def run_command(command: Sequence[str]) -> Ran:
    """Run a command line of mohs in this process."""
    from mohs.cli import main

    began, before = time.perf_counter(), sys.argv
    errors, output = io.StringIO(), io.StringIO()
    sys.argv = ["mohs", *command]
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
            main()
        code: int | None = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception:
        code = None
        errors.write(traceback.format_exc())
    finally:
        sys.argv = before
    return Ran(code, errors.getvalue(), time.perf_counter() - began)


def scenarios(root: Path) -> list[Scenario]:
    """All scenarios, with their data in `root`."""
    from sklearn.datasets import load_digits

    root.mkdir(parents=True, exist_ok=True)
    os.environ["MOHS_CACHE"] = str(root / "cache")
    pixels, labels = load_digits(return_X_y=True)
    pick = np.random.default_rng(0).permutation(len(labels))[:240]
    x, y = pixels[pick], labels[pick]
    wrong = y.copy()
    wrong[::12] = (wrong[::12] + 1) % 10
    np.savez(root / "features.npz", x=(x / 16).astype(np.float32), y=wrong)
    np.savez(root / "target.npz", x=(x / 20 + 0.1).astype(np.float32), y=y)
    np.savez(root / "images.npz", x=(x.reshape(-1, 1, 8, 8) * 15).astype(np.uint8), y=wrong)
    rng = np.random.default_rng(1)
    np.savez(root / "logits.npz", logits=rng.normal(size=(500, 5)), labels=rng.integers(5, size=500))
    (root / "run.toml").write_text(CONFIG)
    (root / "recipe.toml").write_text(RECIPE.replace("DATA", str(root / "features.npz")))
    (root / "texts.csv").write_text("text,label\n" + "".join(f"some words {i} of class {i % 2},{i % 2}\n" for i in range(60)))
    cpu = ["--device", "cpu", "--quiet"]
    features, images = str(root / "features.npz"), str(root / "images.npz")

    def at(name: str) -> Path:
        return root / "made" / name

    train = ["train", features, "--config", str(root / "run.toml"), "--out", str(at("train")), *cpu]
    audit = ["audit", features, "--out", str(at("audit")), *cpu]
    network = ["audit", images, "--embed", "none", "--model", "mlp:hidden=8", "--epochs", "3", "--out", str(at("network")), *cpu]
    adapt = ["adapt", "--source", features, "--target", str(root / "target.npz"), "--rounds", "1", "--epochs", "2"]
    adapt += ["--model", "mlp:hidden=8", "--out", str(at("adapt")), *cpu]
    study = ["study", str(root / "recipe.toml"), "--runs", str(at("study") / "runs"), "--out", str(at("study") / "out"), *cpu]
    compare = ["compare", features, "--loss", "cross_entropy", "--loss", "gce", "--seeds", "1", "--epochs", "2"]
    compare += ["--model", "mlp:hidden=8", "--runs", str(at("compare")), *cpu]
    embed = ["embed", str(root / "texts.csv"), "--with", "tfidf", "--cache", str(at("embed") / "cache")]
    embed += ["--out", str(at("embed") / "features.npz"), *cpu]
    score = ["score", str(root / "logits.npz"), "--out", str(at("score") / "hardness.parquet"), "--quiet"]
    return [
        Scenario("train", train, at("train"), run_result, [["compare", str(at("train")), str(at("train"))]]),
        Scenario("audit", audit, at("audit"), audit_result, [["report", str(at("audit")), "--quiet"]]),
        Scenario("audit --embed none", network, at("network"), audit_result, [["report", str(at("network")), "--quiet"]]),
        Scenario("adapt", adapt, at("adapt"), adapt_result),
        Scenario("study", study, at("study"), study_result, [[*study, "--collect-only"]]),
        Scenario("compare", compare, at("compare"), runs_result),
        Scenario("embed", embed, at("embed"), embed_result),
        Scenario("score", score, at("score"), lambda folder: table_digest(folder / "hardness.parquet")),
    ]


def run_result(folder: Path) -> str:
    """Weights, history and dynamics of a run."""
    from safetensors.numpy import load_file

    parts = [digest(sorted((name, value.tobytes()) for name, value in load_file(folder / "model.safetensors").items()))]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    parts.append(digest([plain(line) for line in lines]))
    parts += [table_digest(folder / name) for name in ("dynamics.parquet",) if (folder / name).exists()]
    for name in ("trace.safetensors", "targets.safetensors"):
        if (folder / name).exists():
            parts.append(digest(sorted((key, value.tobytes()) for key, value in load_file(folder / name).items())))
    return digest(parts)


def audit_result(folder: Path) -> str:
    """Table, findings, pictures and evidence of an audit."""
    words = json.loads((folder / "findings.json").read_text())
    with np.load(folder / "findings.npz") as file:
        arrays = sorted((name, file[name].tobytes()) for name in file.files)
    others = [table_digest(folder / name) for name in ("thumbnails.parquet", "evidence.parquet") if (folder / name).exists()]
    return digest([table_digest(folder / "hardness.parquet"), plain(words), arrays, others])


def adapt_result(folder: Path) -> str:
    """Rounds, predictions and the last weights of an adaptation."""
    lines = [plain(json.loads(line)) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return digest([lines, table_digest(folder / "target.parquet"), run_result(folder / "round-1")])


def study_result(folder: Path) -> str:
    """The results of a study, without provenance."""
    import csv

    (found,) = (folder / "out").rglob("*.csv")
    with found.open() as file:
        return digest([plain(row) for row in csv.DictReader(file)])


def runs_result(folder: Path) -> str:
    """All runs of a comparison."""
    return digest([run_result(one.parent) for one in sorted(folder.glob("*/DONE"))])


def embed_result(folder: Path) -> str:
    """The features written."""
    with np.load(folder / "features.npz") as file:
        return digest(sorted((name, file[name].tobytes()) for name in file.files))


def table_digest(path: Path) -> str:
    """The values of a Parquet file."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    return digest([table.column_names, [repr(column.to_pylist()) for column in table.columns]])


def plain(value: Any) -> Any:
    """The value without times and versions, at any depth."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if key not in TIMES and not str(key).endswith("version")}
    return [plain(one) for one in value] if isinstance(value, list) else value


def digest(value: Any) -> str:
    """A short hash of a value."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
