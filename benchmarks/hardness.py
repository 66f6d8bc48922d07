"""The cost of scoring: AVH against the matrix product, the Recorder against the `aum` package, and cost per example as N grows.

    python benchmarks/hardness.py [--rounds 15] [--scale 1] [--out results/benchmarks/hardness-cpu.json]

One thread. Candidates run in alternating blocks, and a ratio is the median of the ratios within a round, so that a slow phase of
the machine affects both sides. Memory is the peak allocation beyond the inputs, from torch's profiler. `--scale 0.02` reduces the
numbers of examples for a trial that takes seconds; its ratios are not comparable with the targets.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # before torch: silences the profiler's messages about missing GPUs

import torch
from aum import AUMCalculator

from mohs.hardness.angular import avc, avh
from mohs.hardness.neighbors import nearest
from mohs.hardness.recorder import Recorder
from mohs.hardness.score import score_features

from losses import Step, peak_memory, timings
from machine import machine

UPDATES = 30  # in a block
Row = dict[str, float | str]


def ratio(above: list[float], below: list[float]) -> float:
    return round(median(a / b for a, b in zip(above, below, strict=True)), 3)


def angles(rounds: int, scale: float = 1) -> list[Row]:
    """AVH and AVC of 20,000 × 512 features against 1,000 classes."""
    n = round(20_000 * scale)
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(n, 512, generator=generator), torch.randn(1_000, 512, generator=generator)
    y = torch.randint(1_000, (n,), generator=generator)
    steps: dict[str, Step] = {"product": lambda: x @ w.T, "avh": lambda: avh(x, w, y), "avc": lambda: avc(x, w)}
    seconds = timings(steps, rounds)
    return [
        {
            "what": f"{name} {n}x512, 1000 classes",
            "ms": round(median(seconds[name]) * 1e3, 1),
            "against": "the matrix product",
            "ratio": ratio(seconds[name], seconds["product"]),
            "target": "<= 1.3",
            "extra_mb": round(peak_memory(steps[name]) / 2**20, 1),
        }
        for name in ("avh", "avc")
    ]


def recorders(rounds: int, batch: int, folder: str) -> list[Row]:
    """Blocks of updates of all dynamics, and of AUM alone, against the `aum` package."""
    generator = torch.Generator().manual_seed(0)
    total = batch * UPDATES
    ids = torch.randperm(total, generator=generator).split(batch)
    logits = torch.randn(UPDATES, batch, 10, generator=generator).unbind()
    labels = torch.randint(10, (UPDATES, batch), generator=generator).unbind()
    names = [part.tolist() for part in ids]  # its users pass lists; the conversion is not timed
    peer, ours, alone = AUMCalculator(folder), Recorder(total), Recorder(total, track=("aum",))

    def block(update: Callable[[int], object]) -> Step:
        return lambda: [update(i) for i in range(UPDATES)]

    seconds = timings(
        {
            "peer": block(lambda i: peer.update(logits[i], labels[i], names[i])),
            "all dynamics": block(lambda i: ours.update(ids[i], logits[i], labels[i])),
            "AUM alone": block(lambda i: alone.update(ids[i], logits[i], labels[i])),
        },
        rounds,
    )
    targets = {("all dynamics", 128): ">= 5", ("all dynamics", 4096): ">= 15", ("AUM alone", 128): ">= 25"}
    return [
        {
            "what": f"Recorder.update {batch}x10, {name}",
            "us": round(median(seconds[name]) / UPDATES * 1e6, 1),
            "against": "the throughput of aum 1.0.2",
            "ratio": ratio(seconds["peer"], seconds[name]),
            "target": targets.get((name, batch), ""),
        }
        for name in ("all dynamics", "AUM alone")
    ]


def growth(rounds: int, scale: float = 1) -> list[Row]:
    """Cost per example with a million examples against ten thousand."""
    generator = torch.Generator().manual_seed(0)
    small, large = round(10_000 * scale), round(1_000_000 * scale)
    x, w = torch.randn(large, 64, generator=generator), torch.randn(10, 64, generator=generator)
    y = torch.randint(10, (large,), generator=generator)
    steps: dict[str, Step] = {
        "small": lambda: [score_features(x[i : i + small], w, y[i : i + small]) for i in range(0, 10 * small, small)],
        "large": lambda: score_features(x, w, y),
    }
    seconds = timings(steps, rounds)
    each = {"small": [s / (10 * small) for s in seconds["small"]], "large": [s / large for s in seconds["large"]]}
    return [
        {
            "what": f"score_features, per example of {large:,} (64 features, 10 classes)",
            "us": round(median(each["large"]) * 1e6, 3),
            "against": f"per example of {small:,}",
            "ratio": ratio(each["large"], each["small"]),
            "target": "<= 1.2",
        }
    ]


def neighbors(scale: float = 1) -> list[Row]:
    """Exact nearest neighbors of 50,000 × 512, once."""
    n = round(50_000 * scale)
    x = torch.randn(n, 512, generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    nearest(x)
    return [{"what": f"nearest {n}x512, exact", "s": round(time.perf_counter() - began, 1), "target": "< 60"}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--scale", type=float, default=1, help="factor of the numbers of examples")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            *angles(given.rounds, given.scale),
            *recorders(given.rounds, 128, folder),
            *recorders(given.rounds, 4096, folder),
            *growth(max(3, given.rounds // 3), given.scale),
            *neighbors(given.scale),
        ]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items() if value != ""))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({"machine": machine(), "rounds": given.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
