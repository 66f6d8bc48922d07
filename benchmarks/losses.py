"""Forward + backward of every loss against `F.cross_entropy`, interleaved in one run: time and peak extra memory.

    python benchmarks/losses.py [--rounds 40] [--threads 2] [--out results/benchmarks/losses-cpu.json]

A time is the median over rounds; a ratio is the median of the ratios within a round, so that a slow phase of the
machine affects both sides; `ratio_of_least` compares the shortest times, which is more reliable on a shared machine.
Memory is the peak allocation beyond the logits, from torch's profiler.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # before torch: silences the profiler's messages about missing GPUs

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

import mohs

from machine import machine

SHAPES = ((128, 10), (4096, 1000), (512, 32000))
Step = Callable[[], None]


def candidates() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The timed losses by name."""
    named: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"F.cross_entropy": cross_entropy}
    family = [name for name, loss in mohs.LOSSES.items() if hasattr(loss, "curve") or name == "mse"]  # losses of p alone
    named |= {name: mohs.create_loss(name) for name in family}
    named |= {
        "mse, mirror": mohs.MeanSquaredErrorLoss(mirror=True),
        "mse, sigmoid": mohs.MeanSquaredErrorLoss(activation="sigmoid"),
        "mse, sigmoid, mirror": mohs.MeanSquaredErrorLoss(activation="sigmoid", mirror=True),
        "encouraging, normal": mohs.EncouragingLoss(log_end=1),
        "gradient_rescaling, mean": mohs.GradientRescalingLoss(normalize="mean"),
        "F.cross_entropy, smoothing": partial(cross_entropy, label_smoothing=0.1),
        "cross_entropy, smoothing": mohs.CrossEntropyLoss(label_smoothing=0.1),
        "encouraging, smoothing": mohs.EncouragingLoss(label_smoothing=0.1),
    }
    return named


def step(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> Step:
    """One forward and backward pass; the gradient is discarded."""

    def run() -> None:
        logits.grad = None
        loss(logits, labels).backward()

    return run


def timings(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds by name and round; every candidate runs once per round, after two warm-up rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, run in steps.items():
            began = time.perf_counter()
            run()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def peak_memory(run: Step, logits: Tensor | None = None) -> int:
    """Peak bytes allocated by a step."""
    run()
    if logits is not None:
        logits.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    held = most = 0
    for event in sorted(
        (e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    ):
        held += event.nbytes()
        most = max(most, held)
    return most


def measure(shape: tuple[int, int], rounds: int) -> list[dict[str, float | str]]:
    """One row per loss at one shape."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator).requires_grad_()
    labels = torch.randint(shape[1], shape[:1], generator=generator)
    steps = {name: step(loss, logits, labels) for name, loss in candidates().items()}
    seconds = timings(steps, rounds)
    base, base_memory = seconds["F.cross_entropy"], peak_memory(steps["F.cross_entropy"], logits)
    return [
        {
            "loss": name,
            "shape": f"{shape[0]}x{shape[1]}",
            "ms": round(median(taken) * 1e3, 3),
            "ratio": round(median(a / b for a, b in zip(taken, base, strict=True)), 3),
            "ratio_of_least": round(min(taken) / min(base), 3),
            "memory_ratio": round(peak_memory(steps[name], logits) / base_memory, 3),
        }
        for name, taken in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = [row for shape in SHAPES for row in measure(shape, given.rounds)]
    for row in rows:
        times = f"{row['ms']:>9} ms  time x {row['ratio']:<6} (least x {row['ratio_of_least']:<6})"
        print(f"{row['shape']:>10}  {row['loss']:<26} {times} memory x {row['memory_ratio']}")
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({"machine": machine(), "rounds": given.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
