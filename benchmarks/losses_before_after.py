"""Forward + backward of every loss in two versions of mohs, interleaved in one run: is the new version as fast as the old one?

    python benchmarks/losses_before_after.py OLD_SRC [NEW_SRC] [--blocks 30] [--out results/losses_before_after.md]

OLD_SRC and NEW_SRC are the `src` folders of two checkouts (`git worktree add`). Each version runs in a process of its own, with
the same inputs and one thread. The processes take turns: a turn is a block of steps that takes about 20 ms, or one step if that
takes longer, and the version that goes first alternates. A ratio is the median over the blocks of new / old, so that a slow phase
of the machine affects both sides. `F.cross_entropy`, which is the same code in both, shows how far noise alone moves a ratio.
The C library keeps freed memory (`MALLOC_*`, see `regularizers.py`): page faults would otherwise outweigh the arithmetic.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

SHAPES = ((128, 10), (4096, 1000), (1024, 10_000))
CONTROL = "F.cross_entropy"
BLOCK = 0.02  # seconds
MOST_CLASSES = {"forward": 1000, "backward": 1000}  # a transition matrix is K × K; `backward` inverts it


def settings(name: str, classes: int) -> dict[str, object]:
    """The arguments that a loss requires."""
    import torch

    if name in MOST_CLASSES:
        rate = 0.2
        return {"transition": torch.full((classes, classes), rate / (classes - 1)).fill_diagonal_(1 - rate)}
    if name in ("ldam", "logit_adjusted"):
        return {"counts": torch.arange(classes, 0, -1)}
    return {"num_classes": classes} if name == "online_smoothing" else {}


def names_at(classes: int) -> list[str]:
    """The losses measured with this number of classes, the control first."""
    import mohs

    return [CONTROL, *(name for name in mohs.LOSSES if classes <= MOST_CLASSES.get(name, classes))]


def serve(source: str, pipe: Connection) -> None:
    """Run in a child process: set up one loss at one shape, then time blocks of steps on request."""
    sys.path.insert(0, source)
    import torch

    import mohs

    assert Path(mohs.__file__).is_relative_to(source), f"{mohs.__file__} is not below {source}"
    torch.set_num_threads(1)
    pipe.send(None)
    while (order := pipe.recv()) is not None:
        name, rows, classes = order
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(rows, classes, generator=generator).requires_grad_()
        labels = torch.randint(classes, (rows,), generator=generator)
        loss = torch.nn.functional.cross_entropy if name == CONTROL else mohs.create_loss(name, **settings(name, classes))
        pipe.send(None)
        while steps := pipe.recv():
            began = time.perf_counter()
            for _ in range(steps):
                logits.grad = None
                loss(logits, labels).backward()
            pipe.send((time.perf_counter() - began) / steps)


class Version:
    """One version of mohs in a process of its own."""

    def __init__(self, source: str) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(source, other), daemon=True)
        self.process.start()
        self.pipe.recv()

    def prepare(self, name: str, shape: tuple[int, int]) -> None:
        self.pipe.send((name, *shape))
        self.pipe.recv()

    def seconds(self, steps: int) -> float:
        self.pipe.send(steps)
        return float(self.pipe.recv())

    def finish(self) -> None:
        self.pipe.send(0)


def measure(old: Version, new: Version, name: str, shape: tuple[int, int], blocks: int) -> dict[str, float]:
    """Milliseconds per step of both versions, and the median ratio with its quartiles."""
    for version in (old, new):
        version.prepare(name, shape)
    warm = [version.seconds(3) for version in (old, new)]
    steps = max(1, round(BLOCK / min(warm)))
    pairs = []
    for turn in range(blocks + 1):
        order = (old, new) if turn % 2 else (new, old)
        took = {version: version.seconds(steps) for version in order}
        pairs.append((took[old], took[new]))
    pairs = pairs[1:]  # the first block is warm-up
    for version in (old, new):
        version.finish()
    low, middle, high = statistics.quantiles([b / a for a, b in pairs], n=4)
    before, after = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    return {"old": before, "new": after, "ratio": middle, "low": low, "high": high}


def table(rows: dict[tuple[str, tuple[int, int]], dict[str, float]]) -> str:
    """Markdown: one row per loss, three columns per shape."""
    head = "".join(f" {n} × {k:,}: old, ms | new, ms | ratio (quartiles) |" for n, k in SHAPES)
    lines = [f"| loss |{head}", "|---|" + "---:|---:|---:|" * len(SHAPES)]
    for name in dict.fromkeys(name for name, _ in rows):
        cells = [rows.get((name, shape)) for shape in SHAPES]
        texts = [
            f"{c['old']:.3f} | {c['new']:.3f} | {c['ratio']:.2f} ({c['low']:.2f} to {c['high']:.2f})" if c else "– | – | –"
            for c in cells
        ]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="src folder of the old version")
    parser.add_argument("new", nargs="?", default=str(Path(__file__).parent.parent / "src"), help="src folder of the new version")
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--commits", nargs=2, metavar=("OLD", "NEW"), default=("?", "?"), help="commits to name in the table")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "268435456",
        "MALLOC_TRIM_THRESHOLD_": "2073741824",
    }  # read by the child processes when they start
    old, new = (Version(str(Path(source).resolve())) for source in (given.old, given.new))
    sys.path.insert(0, given.new)
    from machine import machine

    rows = {}
    for shape in SHAPES:
        for name in names_at(shape[1]):
            rows[name, shape] = found = measure(old, new, name, shape, given.blocks)
            print(f"{shape[0]:>5} x {shape[1]:<6} {name:<20} " + "  ".join(f"{k} {v:.3f}" for k, v in found.items()), flush=True)
    for version in (old, new):
        version.pipe.send(None)
    ratios = [row["ratio"] for (name, _), row in rows.items() if name != CONTROL]
    control = [row["ratio"] for (name, _), row in rows.items() if name == CONTROL]
    about = machine()
    text = f"""# Losses before and after the restructuring

Forward + backward of every loss, old version (commit {given.commits[0]}) against new version (commit {given.commits[1]}), by
`benchmarks/losses_before_after.py`: n = {given.blocks} blocks per loss and shape, interleaved, float32, CPU, one thread,
warm allocator. {about["cpu"]}; torch {about["torch"]}, Python {about["python"]}, {about["date"]}.

Ratio: median over the blocks of new / old; below 1 the new version is faster. Over all {len(ratios)} pairs the median ratio is
{statistics.median(ratios):.2f}, the largest {max(ratios):.2f}. The control, the same `F.cross_entropy` in both processes, has
ratios of {min(control):.2f} to {max(control):.2f}. `forward` and `backward` are not measured with 10,000 classes, where their
transition matrix alone takes 400 MB.

{table(rows)}
"""
    if given.out:
        given.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
