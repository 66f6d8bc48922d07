"""The Triton kernels on a GPU: every curve, ADR and the fused head against PyTorch's and Liger's, and the limit set by memory.

    python benchmarks/kernels.py --part losses --part head --part identities --part scoring [--no-compiled] [--out NAME]
    python benchmarks/kernels.py --part losses --shape 4096x1000 --candidate self_paced --candidate gce --no-compiled

Forward + backward. A time is the median over rounds in which every candidate runs once, in blocks of calls between two
synchronizations, after one that is not timed, so that for small shapes it is the cost to the host; a ratio is the median of
the ratios within a round. `of_bandwidth` counts two reads and one write of the logits against a copy measured in the same run;
`device_ms` is the time of the kernels alone, by the profiler, for some. Liger's, quack's and cut cross-entropy's kernels are
timed where they can be imported.
Writes NAME.json with hardware and versions, and NAME.csv, after every row.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import mohs

from machine import machine

SHAPES = {
    "8192x32000": (8192, 32000, "bfloat16"),
    "65536x1000": (65536, 1000, "float32"),
    "4096x1000": (4096, 1000, "float32"),
    "128x10": (128, 10, "float32"),
}
LARGE = 5_000_000  # entries from which a step takes longer on the device than on the host
OPTIONAL = ("Liger cross-entropy", "quack cross-entropy", "F.cross_entropy, compiled", "gce, compiled")
PROFILED = ("F.cross_entropy", "Liger cross-entropy", "cross_entropy", "gce", "gradient_rescaling", "self_paced", "adr")
Row = dict[str, float | str]
Step = Callable[[], object]


def interleaved(steps: dict[str, Step], rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds per call by name and round."""
    for run in steps.values():
        for _ in range(3):
            run()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, run in steps.items():
            run()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(calls):
                run()
            torch.cuda.synchronize()
            taken[name].append((time.perf_counter() - began) / calls)
    return taken


def step(loss: Callable[..., Tensor], logits: Tensor, *labels: Tensor) -> Step:
    def run() -> None:
        logits.grad = None
        loss(logits, *labels).backward()

    return run


def fresh(loss: Callable[..., Tensor], overwritten: Tensor, labels: Tensor) -> Step:
    """For a loss that writes its gradient over the logits."""
    return lambda: loss(overwritten.detach().requires_grad_(), labels).backward()


def peer(module: str, name: str) -> Any:
    """A function or class of another package; None where it cannot be imported."""
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        print(f"{name} is not timed: {error}")
        return None


def on_device(run: Step, calls: int = 5) -> float:
    """Seconds per call of all kernels, by PyTorch's profiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(calls):
                run()
            torch.cuda.synchronize()
    return float(sum(event.self_device_time_total for event in seen.key_averages())) / calls / 1e6


def bandwidth() -> float:
    """Bytes per second of a copy, read and write counted."""
    x = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    taken = interleaved({"copy": lambda: y.copy_(x)}, 5, 10)["copy"]
    return 2 * x.numel() / median(taken)


def candidates(shape: str, *, compiled: bool = True) -> tuple[dict[str, Step], Tensor]:
    """Every curve and regularizer, and what they are compared with, at one shape; and the logits."""
    n, classes, dtype = SHAPES[shape]
    logits = torch.randn(n, classes, device="cuda", dtype=getattr(torch, dtype)).requires_grad_()
    labels = torch.randint(classes, (n,), device="cuda")
    smooth = {"label_smoothing": 0.1}
    steps = {"F.cross_entropy": step(F.cross_entropy, logits, labels)}
    if n * classes > LARGE and compiled:
        torch._dynamo.reset()
        steps["F.cross_entropy, compiled"] = step(torch.compile(F.cross_entropy), logits, labels)
        steps["gce, compiled"] = step(torch.compile(mohs.GeneralizedCrossEntropyLoss(), fullgraph=True), logits, labels)
    steps["F.cross_entropy, smoothing"] = step(partial(F.cross_entropy, **smooth), logits, labels)
    their = peer("liger_kernel.transformers", "LigerCrossEntropyLoss")
    if their is not None:
        steps["Liger cross-entropy"] = fresh(their(), logits.detach().clone(), labels)
    quack = peer("quack.cross_entropy", "cross_entropy")
    if quack is not None:
        steps["quack cross-entropy"] = step(lambda z, y: quack(z, y).mean(), logits, labels)
    for name, kind in mohs.LOSSES.items():
        if hasattr(kind, "curve"):
            steps[name] = step(mohs.create_loss(name).cuda(), logits, labels)
    steps["gradient_rescaling, mean"] = step(mohs.GradientRescalingLoss(normalize="mean"), logits, labels)
    steps["cross_entropy, smoothing"] = step(mohs.CrossEntropyLoss(**smooth), logits, labels)
    each = mohs.GeneralizedCrossEntropyLoss(reduction="none")
    steps["gce, reduction none"] = step(lambda z, y: each(z, y).sum(), logits, labels)
    steps["adr"] = step(mohs.ADR(), logits)
    steps["entropy_penalty"] = step(mohs.EntropyPenalty(), logits)
    return steps, logits


def losses(rounds: int, shapes: Sequence[str], names: Sequence[str], *, compiled: bool = True) -> Iterator[Row]:
    """The candidates of these names at these shapes, and `F.cross_entropy`; all if there is no name."""
    speed = bandwidth()
    yield {"part": "losses", "shape": "1 GiB", "candidate": "copy", "ms": round(2**31 / speed * 1e3, 4)}
    for shape in shapes:
        steps, logits = candidates(shape, compiled=compiled)
        steps = {name: run for name, run in steps.items() if not names or name in ("F.cross_entropy", *names)}
        for name, run in list(steps.items()):
            try:
                run()
            except Exception as error:
                if name not in OPTIONAL:
                    raise
                print(f"{name} is not timed: {error}")
                del steps[name]
        taken = interleaved(steps, rounds, 20 if logits.numel() > LARGE else 50)
        moved = 3 * logits.numel() * logits.element_size()
        for name, seconds in taken.items():
            low, _, high = quantiles(seconds, n=4)
            row: Row = {
                "part": "losses",
                "shape": f"{shape} {str(logits.dtype).removeprefix('torch.')}",
                "candidate": name,
                "ms": round(median(seconds) * 1e3, 4),
                "ms_low": round(low * 1e3, 4),
                "ms_high": round(high * 1e3, 4),
                "ratio": round(median(a / b for a, b in zip(seconds, taken["F.cross_entropy"], strict=True)), 3),
                "of_bandwidth": round(moved / median(seconds) / speed, 3),
            }
            if name in PROFILED:
                row["device_ms"] = round(on_device(steps[name]) * 1e3, 4)
            yield row


def compile_ahead(shapes: Sequence[str], processes: int) -> None:
    """Run the first step of every candidate in one of several processes, so that its kernels are in Triton's cache."""
    began = time.perf_counter()
    jobs = [(shape, share, processes) for shape in shapes for share in range(processes)]
    with torch.multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.starmap(_first_steps, jobs, chunksize=1)
    print(f"kernels compiled in {time.perf_counter() - began:.0f} s", flush=True)


def _first_steps(shape: str, share: int, of: int) -> None:
    torch.set_num_threads(1)
    steps, _ = candidates(shape, compiled=False)
    for name in list(steps)[share::of]:
        if name not in OPTIONAL:
            steps[name]()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def head(rounds: int) -> Iterator[Row]:
    """The fused head at 8192 × 4096 × 131,072 against Liger's, and ArcFace with 10⁶ identities."""
    n, d, classes = 8192, 4096, 131_072
    x = torch.randn(n, d, device="cuda", dtype=torch.bfloat16).requires_grad_()
    w = (torch.randn(classes, d, device="cuda", dtype=torch.bfloat16) / d**0.5).requires_grad_()
    y = torch.randint(classes, (n,), device="cuda")

    def run(loss: Callable[[], Tensor]) -> Step:
        def once() -> None:
            x.grad = w.grad = None
            loss().backward()

        return once

    steps = {}
    liger = peer("liger_kernel.transformers", "LigerFusedLinearCrossEntropyLoss")
    if liger is not None:
        fused = liger()
        steps["Liger fused linear cross-entropy"] = run(lambda: fused(w, x, y))
    cut = peer("cut_cross_entropy", "linear_cross_entropy")
    if cut is not None:
        steps["cut cross-entropy"] = run(lambda: cut(x, w, y))
    steps["linear_loss cross_entropy"] = run(lambda: mohs.linear_loss(x, w, y, loss="cross_entropy"))
    steps["linear_loss gce with statistics"] = run(lambda: mohs.linear_loss(x, w, y, loss="gce:q=0.7", return_stats=True)[0])
    steps["linear_loss gce, reduction none"] = run(lambda: mohs.linear_loss(x, w, y, loss="gce:q=0.7", reduction="none").mean())
    peaks = {}
    for name, once in list(steps.items()):
        try:
            once()
        except Exception as error:
            if name.startswith("linear_loss"):
                raise
            print(f"{name} is not timed: {error}")
            del steps[name]
            continue
        x.grad = w.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        once()
        peaks[name] = torch.cuda.max_memory_allocated()
    taken = interleaved(steps, rounds, 1)
    first = next(iter(taken))
    for name, seconds in taken.items():
        yield {
            "part": "head",
            "shape": f"{n}x{d}x{classes} bfloat16",
            "candidate": name,
            "ms": round(median(seconds) * 1e3, 2),
            "ms_low": round(min(seconds) * 1e3, 2),
            "ms_high": round(max(seconds) * 1e3, 2),
            "ratio": round(median(a / b for a, b in zip(seconds, taken[first], strict=True)), 3),
            "peak_gb": round(peaks[name] / 2**30, 3),
            "memory_ratio": round(peaks[name] / peaks[first], 3),
        }


def identities(rounds: int) -> Iterator[Row]:
    """ArcFace with a million identities: the plain head, and the fused one."""
    n, d, classes = 32_768, 512, 1_000_000
    arc = mohs.ArcFaceHead(d, classes, scale=64.0, margin=0.5).cuda()
    x, y = torch.randn(n, d, device="cuda").requires_grad_(), torch.randint(classes, (n,), device="cuda")
    fused = mohs.FusedHead(arc, "cross_entropy")
    for name, loss in (("fused", lambda: fused(x, y)), ("plain", lambda: mohs.CrossEntropyLoss()(arc(x, y), y))):
        row: Row = {"part": "head", "shape": f"{n}x{d}x{classes} float32", "candidate": f"ArcFace, {name}"}
        try:
            for _ in range(min(2, rounds)):
                x.grad = arc.weight.grad = None
                torch.cuda.reset_peak_memory_stats()
                torch.cuda.synchronize()
                began = time.perf_counter()
                loss().backward()
                torch.cuda.synchronize()
                row |= {"ms": round((time.perf_counter() - began) * 1e3, 1)}
            row["peak_gb"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        except torch.OutOfMemoryError:
            row["peak_gb"] = "out of memory"
        torch.cuda.empty_cache()
        yield row


def scoring(rounds: int) -> Iterator[Row]:
    """AVH of 262,144 × 512 features against 1,000 classes, against the bare product."""
    x, w = torch.randn(262_144, 512, device="cuda"), torch.randn(1000, 512, device="cuda")
    y = torch.randint(1000, (262_144,), device="cuda")
    out = torch.empty(262_144, 1000, device="cuda")
    taken = interleaved({"product": lambda: torch.mm(x, w.T, out=out), "avh": lambda: mohs.avh(x, w, y)}, rounds, 3)
    row: Row = {
        "part": "scoring",
        "shape": "262144x512x1000 float32",
        "candidate": "avh",
        "ms": round(median(taken["avh"]) * 1e3, 3),
    }
    row["ratio"] = round(median(a / b for a, b in zip(taken["avh"], taken["product"], strict=True)), 3)
    yield row


def show(row: Row) -> None:
    print("  ".join(f"{key} {value}" for key, value in row.items() if key != "part"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=["losses", "head", "identities", "scoring"], required=True)
    parser.add_argument("--rounds", type=int, default=15, help="at least 2")
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="of the losses; default: all")
    parser.add_argument("--candidate", action="append", help="of the losses, timed beside F.cross_entropy; default: all")
    parser.add_argument("--no-compiled", action="store_true", help="leave torch.compile out")
    parser.add_argument("--processes", type=int, default=1, help="that compile the kernels of the losses ahead")
    parser.add_argument("--out", type=Path, help="file name without its suffix")
    given = parser.parse_args()
    if given.processes > 1 and "losses" in given.part:
        compile_ahead(given.shape or list(SHAPES), given.processes)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "losses": lambda: losses(
            given.rounds, given.shape or list(SHAPES), given.candidate or [], compiled=not given.no_compiled
        ),
        "head": lambda: head(given.rounds),
        "identities": lambda: identities(given.rounds),
        "scoring": lambda: scoring(given.rounds),
    }
    about, rows = machine() | {"triton": __import__("triton").__version__, "rounds": given.rounds}, []
    for part in given.part:
        for row in parts[part]():
            rows.append(row)
            show(row)
            if given.out:
                write(rows, about, given.out)


def write(rows: list[Row], about: dict[str, str | int], out: Path) -> None:
    """NAME.json and NAME.csv."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")
    names = list(dict.fromkeys(key for row in rows for key in row))
    with out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*names, "git"])
        writer.writeheader()
        writer.writerows(row | {"git": about["commit"]} for row in rows)


if __name__ == "__main__":
    main()
