"""What an audit costs besides the training that it contains: seconds of `mohs.audit(..., embed="none")` by step.

    python benchmarks/audit_cost.py [--data cifar10] [--limit N] [--epochs N] [--model SPEC] [--out NAME]

The audit is the one that `mohs audit cifar10 --embed none` runs, with its report. `training` is the sum of the epochs as the
audit itself records it: steps, their capture as graphs, refinement of the targets and evaluation. `ratio` is the whole over it,
and `ratio to train` the whole over the call of `mohs.train`, which also starts up, copies the state for checkpoints and writes
the results. Steps within another are indented; what a step does besides them is in its own seconds. A thread writes the
checkpoints meanwhile; `Saving.wait` is the time that training waits for it. Writes NAME.json with hardware and versions, and
NAME.csv.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import mohs
from kernels import Row, show, write

from machine import machine

STEPS = {
    "mohs.workflow": ("run_audit", "write_report"),
    "mohs.audit.pipeline": ("audited_data", "run_name", "judge_images", "thumbnails_of", "save_audit", "load_audit"),
    "mohs.audit.judge_images": (
        "train", "score_network", "with_dynamics", "fold_scores", "judge_examples", "verdict", "estimate_from",
        "course_by_hardness", "unseen", "evidence_table", "other_issues",
    ),
    "mohs.train.start": ("resolve", "build"),
    "mohs.train.graph": ("Captured",),
    "mohs.train.loop": ("refine", "evaluate", "end_epoch", "host_copy", "Saving.wait", "finish"),
    "mohs.train.trained": ("load_run",),
    "mohs.audit.other_issues": ("hashes_of", "find_issues", "leaks_between"),
    "mohs.issues.find_issues": (
        "exact_copies", "aligned_view", "candidate_pairs", "duplicates", "image_defects", "outliers", "weak_groups",
        "class_overlap", "order_dependence",
    ),
    "mohs.audit.score_network": ("measure", "many_nearest", "on_map"),
    "mohs.train.fold_heads": ("_heads", "_best", "fit_noise", "ambiguous_share"),
}  # fmt: skip


class Stopwatch:
    """Seconds spent in functions, in the order of their first calls."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], float] = {}
        self.stack: list[str] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **named: Any) -> Any:
            _wait()
            self.stack.append(name)
            place, began = tuple(self.stack), time.perf_counter()
            self.rows.setdefault(place, 0.0)
            try:
                return function(*args, **named)
            finally:
                _wait()
                self.rows[place] += time.perf_counter() - began
                self.stack.pop()

        return run


def _wait() -> None:
    """Wait for the GPU, so that its work counts where it was asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--limit", type=int, help="number of examples, for a trial")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path, help="file name without its suffix")
    given = parser.parse_args()
    watch = Stopwatch()
    for module, names in STEPS.items():
        held = import_module(module)
        for name in names:
            *within, own = name.split(".")
            owner = getattr(held, within[0]) if within else held
            timed = watch.timed(name, getattr(owner, own))
            setattr(owner, own, timed)
            judges = getattr(held, "JUDGES", {})
            judges.update({kind: timed for kind, judge in judges.items() if judge.__name__ == name})
    options = {name: value for name in ("epochs", "model") if (value := getattr(given, name)) is not None}
    data: Any = given.data
    if given.limit is not None:
        whole = mohs.open_data(given.data)
        rows = torch.randperm(len(whole.train), generator=torch.Generator().manual_seed(0))[: given.limit]
        data = mohs.Data(whole.train.take(rows), None, whole.test)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        result = mohs.audit(data, embed="none", out=Path(folder) / "audit", **options)
        whole_seconds = time.perf_counter() - began
    training = float(result.facts["seconds of training"])
    table: list[Row] = [
        {"step": "whole", "seconds": round(whole_seconds, 2)},
        {"step": "training", "seconds": training},
        {"step": "ratio", "seconds": round(whole_seconds / training, 3)},
    ]
    trained = [taken for place, taken in watch.rows.items() if place[-1] == "train"]
    if trained:
        table.append({"step": "ratio to train", "seconds": round(whole_seconds / trained[0], 3)})
    table += [{"step": "  " * len(place) + place[-1], "seconds": round(taken, 2)} for place, taken in watch.rows.items()]
    for row in table:
        show(row)
    if given.out:
        about = {
            "data": given.data,
            "examples": len(result.table),
            "epochs": result.facts["epochs"],
            "model": result.facts["model"],
        }
        write(table, machine() | about, given.out)


if __name__ == "__main__":
    main()
