"""Forward + backward of every loss in two versions of mohs, interleaved in one run: is the new version as fast as the old one?

    python benchmarks/losses_before_after.py OLD_SRC [NEW_SRC] [--blocks 30] [--shapes 128x10 ...] [--losses gce ...]
        [--title "Losses before and after ..."] [--out results/losses_before_after.md]

OLD_SRC and NEW_SRC are the `src` folders of two checkouts (`git worktree add`). Each version runs in a process of its own, with
the same inputs and one thread. The processes take turns: a turn is a block of steps that takes about 20 ms, or one step if that
takes longer, and the version that goes first alternates. A ratio is the median over the blocks of new / old, so that a slow phase
of the machine affects both sides. `F.cross_entropy`, which is the same code in both, shows how far noise alone moves a ratio; it
also takes turns with the loss within a block, whose times are medians over chunks of about 1 ms, and "× CE" is the median over
the blocks of the loss / it.
The C library keeps freed memory (`MALLOC_*`, see `regularizers.py`): page faults would otherwise outweigh the arithmetic.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SHAPES = ((128, 10), (4096, 1000), (1024, 10_000))
CONTROL, MODULE = "F.cross_entropy", "nn.CrossEntropyLoss"
BLOCK, CHUNKS = 0.02, 20  # seconds; and the parts of a block between which the loss and the control take turns
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


def shape_of(text: str) -> tuple[int, int]:
    """The shape of "128x10"."""
    rows, classes = text.split("x")
    return int(rows), int(classes)


def names_at(classes: int) -> list[str]:
    """The losses measured with this number of classes, PyTorch's first."""
    import mohs

    return [CONTROL, MODULE, *(name for name in mohs.LOSSES if classes <= MOST_CLASSES.get(name, classes))]


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
        loss, control = loss_of(name, classes), loss_of(CONTROL, classes)
        pipe.send(None)
        while steps := pipe.recv():
            chunk = max(1, steps // CHUNKS)
            pairs = [
                tuple(seconds(function, logits, labels, chunk) for function in (loss, control)) for _ in range(0, steps, chunk)
            ]
            pipe.send(tuple(statistics.median(times) for times in zip(*pairs, strict=True)))


def loss_of(name: str, classes: int) -> Callable[..., Any]:
    """The loss of this name, as a user calls it."""
    import torch

    import mohs

    if name == CONTROL:
        return torch.nn.functional.cross_entropy
    return torch.nn.CrossEntropyLoss() if name == MODULE else mohs.create_loss(name, **settings(name, classes))


def seconds(loss: Callable[..., Any], logits: Any, labels: Any, steps: int) -> float:
    """Seconds per step, forward and backward."""
    began = time.perf_counter()
    for _ in range(steps):
        logits.grad = None
        loss(logits, labels).backward()
    return (time.perf_counter() - began) / steps


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

    def seconds(self, steps: int) -> tuple[float, float]:
        """Of a step of the loss, and of the control next to it."""
        self.pipe.send(steps)
        loss, control = self.pipe.recv()
        return float(loss), float(control)

    def finish(self) -> None:
        self.pipe.send(0)


def measure(old: Version, new: Version, name: str, shape: tuple[int, int], blocks: int) -> dict[str, float]:
    """Milliseconds per step of both versions, their ratios to the control, and the median ratio new / old with its quartiles."""
    for version in (old, new):
        version.prepare(name, shape)
    warm = [version.seconds(3) for version in (old, new)]
    steps = max(1, round(BLOCK / min(warm)[0]))
    pairs = []
    for turn in range(blocks + 1):
        order = (old, new) if turn % 2 else (new, old)
        took = {version: version.seconds(steps) for version in order}
        pairs.append((took[old], took[new]))
    pairs = pairs[1:]  # the first block is warm-up
    for version in (old, new):
        version.finish()
    low, middle, high = statistics.quantiles([b[0] / a[0] for a, b in pairs], n=4)
    found = {"ratio": middle, "low": low, "high": high}
    for version, blocks_of in zip(("old", "new"), zip(*pairs, strict=True), strict=True):
        found[version] = statistics.median(loss for loss, _ in blocks_of) * 1e3
        found[f"{version}_ce"] = statistics.median(loss / control for loss, control in blocks_of)
    return found


def _cell(found: dict[str, float]) -> tuple[str, str, str]:
    old, new = (f"{found[version]:.3f} ({found[f'{version}_ce']:.2f})" for version in ("old", "new"))
    return old, new, f"{found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def table(rows: dict[tuple[str, tuple[int, int]], dict[str, float]]) -> str:
    """Markdown: one row per loss, three columns per shape."""
    shapes = list(dict.fromkeys(shape for _, shape in rows))
    head = "".join(f" {n:,} × {k:,}: old, ms (× CE) | new, ms (× CE) | ratio (quartiles) |" for n, k in shapes)
    lines = [f"| loss |{head}", "|---|" + "---:|---:|---:|" * len(shapes)]
    for name in dict.fromkeys(name for name, _ in rows):
        cells = [rows.get((name, shape)) for shape in shapes]
        texts = [" | ".join(_cell(cell)) if cell else "– | – | –" for cell in cells]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="src folder of the old version")
    parser.add_argument("new", nargs="?", default=str(Path(__file__).parent.parent / "src"), help="src folder of the new version")
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--commits", nargs=2, metavar=("OLD", "NEW"), default=("?", "?"), help="commits to name in the table")
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, help="rows x classes")
    parser.add_argument("--losses", nargs="+", help="default: all")
    parser.add_argument("--title", default="Losses before and after the restructuring")
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
    for shape in given.shapes:
        for name in (name for name in names_at(shape[1]) if name in (CONTROL, MODULE, *(given.losses or [name]))):
            rows[name, shape] = found = measure(old, new, name, shape, given.blocks)
            print(f"{shape[0]:>5} x {shape[1]:<6} {name:<20} " + "  ".join(f"{k} {v:.3f}" for k, v in found.items()), flush=True)
    for version in (old, new):
        version.pipe.send(None)
    ratios = [row["ratio"] for (name, _), row in rows.items() if name not in (CONTROL, MODULE)]
    control = [row["ratio"] for (name, _), row in rows.items() if name == CONTROL]
    about = machine()
    text = f"""# {given.title}

Forward + backward of every loss, old version (commit {given.commits[0]}) against new version (commit {given.commits[1]}), by
`benchmarks/losses_before_after.py`: n = {given.blocks} blocks per loss and shape, interleaved, float32, CPU, one thread,
warm allocator. {about["cpu"]}; torch {about["torch"]}, Python {about["python"]}, {about["date"]}.

Ratio: median over the blocks of new / old; below 1 the new version is faster. × CE: the median over the blocks of the loss /
`F.cross_entropy`, which takes turns with it. Over all {len(ratios)} pairs the median ratio is
{statistics.median(ratios):.2f}, the largest {max(ratios):.2f}. The control, the same `F.cross_entropy` in both processes, has
ratios of {min(control):.2f} to {max(control):.2f}. `forward` and `backward` are not measured with over 1,000 classes, where their
transition matrix alone takes 400 MB.

{table(rows)}
"""
    if given.out:
        given.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
