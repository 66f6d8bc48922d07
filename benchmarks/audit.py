"""What `mohs.audit` finds and costs: digits with 10 % wrong labels, and 50,000 synthetic embeddings of dimension 512.

    python benchmarks/audit.py [--seeds 4] [--examples 50000] [--out results/benchmarks/audit.json]

Embeddings are Gaussian with unit variance around ten class centers, which are drawn with a standard deviation of 0.17 per
dimension; 10 % of the labels are moved to another class at random. Memory is the peak of this process, data included.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import mohs
from mohs.audit.pipeline import known_wrong
from mohs.data.noise import symmetric_noise

from machine import machine

CLASSES, WIDTH, APART, WRONG = 10, 512, 0.17, 0.1


def embeddings(examples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features (N, 512), given labels and true labels (N,)."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(CLASSES, (examples,), generator=generator)
    centers = APART * torch.randn(CLASSES, WIDTH, generator=generator)
    features = centers[truth] + torch.randn(examples, WIDTH, generator=generator)
    return features, symmetric_noise(truth, rate=WRONG, num_classes=CLASSES, seed=seed), truth


def line(name: str, seed: int, done: mohs.AuditResult, found: dict[str, Any], began: float) -> dict[str, Any]:
    hits, flagged, wrong = found["flagged and wrong"], found["flagged"], found["labels made wrong"]
    return {
        "data": name,
        "seed": seed,
        "examples": len(done.table),
        **found,
        "precision": round(hits / max(flagged, 1), 4),
        "recall": round(hits / max(wrong, 1), 4),
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "report_kb": round(done.report.stat().st_size / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seeds):
            began = time.perf_counter()
            done = mohs.audit(out=Path(folder) / f"digits-{seed}", seed=seed, device="cpu")
            found = {name: done.facts[name] for name in ("labels made wrong", "flagged", "flagged and wrong")}
            rows.append(line("digits", seed, done, found, began))
        features, given, truth = embeddings(args.examples, 0)
        began = time.perf_counter()
        done = mohs.audit((features, given), out=Path(folder) / "embeddings")
        rows.append(line("embeddings", 0, done, known_wrong(given.tolist(), truth.tolist(), done.table), began))
    text = json.dumps({"machine": machine(), "rows": rows}, indent=1)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
