"""Forward + backward of the regularizers against `F.cross_entropy`, interleaved in one run.

    python benchmarks/regularizers.py [--rounds 40] [--threads 2] [--repeats 5] [--out results/benchmarks/regularizers-cpu.json]

On logits: ADR and the entropy penalty at 4096 x 1000. On features: AMC and the Euclidean form on 128 x 128 features, against
cross-entropy at 128 x 10. `ratio` is the median of the ratios within a round; `ratio_of_least` compares the shortest times, which
is more reliable on a shared machine. At 4096 x 1000 the result depends on the C library's allocator: memory fetched from the
system costs more than the arithmetic, and which arrays are fetched varies between processes; therefore each repeat is a process
of its own. To fix the behavior, set MALLOC_MMAP_THRESHOLD_=1000000 (cold: all arrays are fetched), or
MALLOC_MMAP_THRESHOLD_=268435456 with MALLOC_TRIM_THRESHOLD_=2073741824 (warm: none is); the results record the setting.
"""

from __future__ import annotations

import argparse
import json
import os
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import torch
from torch.nn.functional import cross_entropy

from mohs.losses.adr import ADR, EntropyPenalty
from mohs.losses.amc import AMC, EuclideanContrastive

from losses import Step, step, timings
from machine import machine


def on_logits() -> dict[str, Step]:
    """The steps at 4096 x 1000, cross-entropy first."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4096, 1000, generator=generator).requires_grad_()
    labels = torch.randint(1000, (4096,), generator=generator)
    regularizers = {"ADR": ADR(), "ADR, variance": ADR(phi="variance"), "EntropyPenalty": EntropyPenalty()}
    steps = {"F.cross_entropy 4096x1000": step(cross_entropy, logits, labels)}
    return steps | {name: step(lambda z, _, r=r: r(z), logits, labels) for name, r in regularizers.items()}


def on_features() -> dict[str, Step]:
    """The steps on 128 x 128 features, cross-entropy at 128 x 10 first."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(128, 10, generator=generator).requires_grad_()
    features = torch.randn(128, 128, generator=generator).requires_grad_()
    labels = torch.randint(10, (128,), generator=generator)
    steps = {"F.cross_entropy 128x10": step(cross_entropy, logits, labels)}
    return steps | {type(r).__name__: step(r, features, labels) for r in (AMC(), EuclideanContrastive())}


def measure(steps: dict[str, Step], rounds: int) -> list[dict[str, float | str]]:
    """One row per regularizer, each timed against cross-entropy alone, so that other candidates' arrays do not interfere."""
    base, *others = steps
    rows: list[dict[str, float | str]] = []
    for name in others:
        seconds = timings({base: steps[base], name: steps[name]}, rounds)
        ratio = median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))
        least = min(seconds[name]) / min(seconds[base])
        row = {"ms": median(seconds[name]) * 1e3, "least_ms": min(seconds[name]) * 1e3, "ratio": ratio, "ratio_of_least": least}
        rows.append({"name": name, "against": base} | {key: round(value, 3) for key, value in row.items()})
    return rows


def repeat(rounds: int, threads: int) -> list[dict[str, float | str]]:
    """All rows once."""
    torch.set_num_threads(threads)
    return measure(on_logits(), rounds) + measure(on_features(), 20 * rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with get_context("spawn").Pool(1, maxtasksperchild=1) as fresh:
        rows = [row for _ in range(given.repeats) for row in fresh.apply(repeat, (given.rounds, given.threads))]
    for row in sorted(rows, key=lambda row: str(row["name"])):
        print(
            f"{row['name']:<22} {row['ms']:>9} ms  time x {row['ratio']:<6} (least x {row['ratio_of_least']}) of {row['against']}"
        )
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        allocator = {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}
        result = {"machine": machine(), "allocator": allocator, "rounds": given.rounds, "rows": rows}
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
