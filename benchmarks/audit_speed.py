"""`mohs.audit` of embeddings against cleanlab's Datalab with all its issue types, on the same data, one thread.

    OMP_NUM_THREADS=1 python benchmarks/audit_speed.py [--examples 50000] [--width 512] --out results/audit/speed.json

Synthetic embeddings of 10 classes, 10 % symmetric noise. Seconds are those of the processor (`time.process_time`), so that a
shared machine counts little. Datalab needs predicted probabilities: it gets those of the audit, for free.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import mohs

from machine import machine

CLASSES, RATE = 10, 0.1


def embeddings(examples: int, width: int) -> tuple[Any, Any, Any]:
    """Features (N, D), given and true labels (N,)."""
    random = np.random.default_rng(0)
    truth = random.integers(CLASSES, size=examples)
    features = random.normal(size=(CLASSES, width))[truth] / 2 + random.normal(size=(examples, width))
    moved = random.random(examples) < RATE
    given = np.where(moved, (truth + random.integers(1, CLASSES, examples)) % CLASSES, truth)
    return features.astype(np.float32), given, truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=50_000, help="number of examples")
    parser.add_argument("--width", type=int, default=512, help="number of features")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args()
    torch.set_num_threads(1)
    features, given, truth = embeddings(options.examples, options.width)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = mohs.audit((features, given), out=folder, device="cpu")
        ours = time.process_time() - began
    flagged = np.array(result.table.column("verdict").to_pylist()) == "mislabeled"
    wrong = given != truth
    row: dict[str, Any] = {
        "examples": options.examples, "width": options.width, "mohs_seconds": round(ours, 1),
        "precision": float(wrong[flagged].mean()), "recall": float(flagged[wrong].mean()),
    }  # fmt: skip
    from cleanlab import Datalab

    probs, _ = result.held_out
    began = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        lab = Datalab({"label": given}, label_name="label", verbosity=0)
        lab.find_issues(features=features, pred_probs=probs / probs.sum(1, keepdims=True))
    row["datalab_seconds"] = round(time.process_time() - began, 1)
    row["datalab_issues"] = list(lab.get_issue_summary()["issue_type"])
    row["ratio"] = round(row["mohs_seconds"] / row["datalab_seconds"], 3)
    print(row)
    if options.out:
        options.out.write_text(json.dumps({"machine": machine(), "rows": [row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
