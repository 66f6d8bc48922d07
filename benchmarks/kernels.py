"""The Triton kernels on a GPU: every curve, ADR and the fused head against PyTorch's and Liger's, and the limit set by memory.

    python benchmarks/kernels.py --part losses --part head --part identities --part scoring [--no-compiled] [--out NAME]
    python benchmarks/kernels.py --part equality [--cases 10000] [--processes 8] [--seconds 90] [--out NAME]

Forward + backward. A time is the median over rounds in which every candidate runs once, in blocks of calls between two
synchronizations, after one that is not timed, so that for small shapes it is the cost to the host; a ratio is the median of
the ratios within a round. `of_bandwidth` counts two reads and one write of the logits against a copy measured in the same run.
Liger is timed where it is importable. Writes NAME.json with hardware and versions, and NAME.csv, after every row.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import mohs
from mohs.margin import _choose

from machine import machine

SHAPES = ((8192, 32000, "bfloat16"), (65536, 1000, "float32"), (4096, 1000, "float32"), (128, 10, "float32"))
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


def liger(name: str) -> type | None:
    try:
        from liger_kernel import transformers
    except Exception as error:
        print(f"Liger is not timed: {error}")
        return None
    return getattr(transformers, name)  # type: ignore[no-any-return]


def bandwidth() -> float:
    """Bytes per second of a copy, read and write counted."""
    x = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    taken = interleaved({"copy": lambda: y.copy_(x)}, 5, 10)["copy"]
    return 2 * x.numel() / median(taken)


def losses(rounds: int, *, compiled: bool = True) -> Iterator[Row]:
    """Every curve and regularizer at every shape."""
    speed = bandwidth()
    their = liger("LigerCrossEntropyLoss")
    for n, classes, dtype in SHAPES:
        logits = torch.randn(n, classes, device="cuda", dtype=getattr(torch, dtype)).requires_grad_()
        labels = torch.randint(classes, (n,), device="cuda")
        smooth = {"label_smoothing": 0.1}
        steps = {"F.cross_entropy": step(F.cross_entropy, logits, labels)}
        large = n * classes > 5e6
        if large and compiled:
            torch._dynamo.reset()
            steps["F.cross_entropy, compiled"] = step(torch.compile(F.cross_entropy), logits, labels)
            steps["gce, compiled"] = step(torch.compile(mohs.GeneralizedCrossEntropyLoss(), fullgraph=True), logits, labels)
        steps["F.cross_entropy, smoothing"] = step(partial(F.cross_entropy, **smooth), logits, labels)
        if their is not None:
            steps["Liger cross-entropy"] = fresh(their(), logits.detach().clone(), labels)
        for name, kind in mohs.LOSSES.items():
            if hasattr(kind, "curve"):
                steps[name] = step(mohs.create_loss(name), logits, labels)
        steps["gradient_rescaling, mean"] = step(mohs.GradientRescalingLoss(normalize="mean"), logits, labels)
        steps["cross_entropy, smoothing"] = step(mohs.CrossEntropyLoss(**smooth), logits, labels)
        each = mohs.GeneralizedCrossEntropyLoss(reduction="none")
        steps["gce, reduction none"] = step(lambda z, y, each=each: each(z, y).sum(), logits, labels)
        steps["adr"] = step(mohs.ADR(), logits)
        steps["entropy_penalty"] = step(mohs.EntropyPenalty(), logits)
        taken = interleaved(steps, rounds, 20 if large else 50)
        moved = 3 * logits.numel() * logits.element_size()
        for name, seconds in taken.items():
            low, _, high = quantiles(seconds, n=4)
            yield {
                "part": "losses",
                "shape": f"{n}x{classes} {dtype}",
                "candidate": name,
                "ms": round(median(seconds) * 1e3, 4),
                "ms_low": round(low * 1e3, 4),
                "ms_high": round(high * 1e3, 4),
                "ratio": round(median(a / b for a, b in zip(seconds, taken["F.cross_entropy"], strict=True)), 3),
                "of_bandwidth": round(moved / median(seconds) / speed, 3),
            }


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
    their = liger("LigerFusedLinearCrossEntropyLoss")
    if their is not None:
        peer = their()
        steps["Liger fused linear cross-entropy"] = run(lambda: peer(w, x, y))
    steps["linear_loss cross_entropy"] = run(lambda: mohs.linear_loss(x, w, y, loss="cross_entropy"))
    steps["linear_loss gce with statistics"] = run(lambda: mohs.linear_loss(x, w, y, loss="gce:q=0.7", return_stats=True)[0])
    steps["linear_loss gce, reduction none"] = run(lambda: mohs.linear_loss(x, w, y, loss="gce:q=0.7", reduction="none").mean())
    peaks = {}
    for name, once in steps.items():
        once()
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


def equality(cases: int, processes: int, seconds: float) -> Iterator[Row]:
    """Kernels against the plain version in float64 over random cases: the largest relative error of value and gradient.

    `beyond` counts the cases whose error is beyond the limit of the dtype, `plain_beyond` those in which that of the plain
    version in the same dtype is: where p^q has nearly vanished, float32 itself leaves fewer digits. `failed`: beyond the limit,
    and more than TWICE as far off as the plain version.
    """
    end = time.time() + seconds
    with torch.multiprocessing.get_context("spawn").Pool(processes) as pool:
        parts = pool.map(random_cases, [(seed, -(-cases // processes), end) for seed in range(processes)])
    for dtype in LIMIT:
        some = [found[dtype] for found in parts]
        row: Row = {"part": "equality", "shape": dtype, "candidate": "all losses"}
        for name in some[0]:
            row[name] = (max if name in ("value", "gradient") else sum)(one[name] for one in some)
        yield row | {"limit": LIMIT[dtype]}


KINDS = 6  # settings that compile a kernel of their own, per process
TWICE = 2.0
LIMIT = {"float32": 1e-6, "bfloat16": 2**-7, "float16": 2**-10}  # bfloat16: rounded twice if the incoming gradient is not 1


def random_cases(given: tuple[int, int, float]) -> dict[str, dict[str, float]]:
    """For each dtype: number of cases, of those beyond the limit and of failed ones, and the largest errors."""
    seed, cases, end = given
    draw = random.Random(seed)
    torch.manual_seed(seed)
    counts = ("cases", "beyond", "plain_beyond", "failed", "value", "gradient")
    found = {dtype: dict.fromkeys(counts, 0.0) for dtype in LIMIT}
    names = [name for name, kind in mohs.LOSSES.items() if hasattr(kind, "curve") and name != "self_paced"]
    for _ in range(KINDS):
        name, dtype = draw.choice(names), draw.choice(list(LIMIT))
        fields: dict[str, object] = {"reduction": draw.choice(["mean", "sum", "none"])}
        if name in ("cross_entropy", "avh") and draw.random() < 0.4:
            fields["label_smoothing"] = 0.1
        classes, weighted = draw.choice([2, 5, 10, 33, 100, 1000, 4099, 33000]), draw.random() < 0.5
        places = draw.choice([(), (), (7,), (2, 3)]) if classes < 2000 else ()
        for _ in range(-(-cases // KINDS)):
            if time.time() > end:
                return found
            errors = one_case(draw, name, fields, dtype, classes, places, weighted)
            limits = (LIMIT["float32"], LIMIT[dtype])  # of value and gradient
            record = found[dtype]
            record["cases"] += 1
            record["beyond"] += any(not ours <= limit for (ours, _), limit in zip(errors, limits, strict=True))
            record["plain_beyond"] += any(not plain <= limit for (_, plain), limit in zip(errors, limits, strict=True))
            failed = any(not ours <= max(limit, TWICE * plain) for (ours, plain), limit in zip(errors, limits, strict=True))
            record["failed"] += failed
            record["value"], record["gradient"] = (
                max(record[key], ours) for key, (ours, _) in zip(("value", "gradient"), errors, strict=True)
            )
            if failed:
                print("failed:", name, fields, dtype, classes, places, weighted, errors, flush=True)
    return found


def one_case(
    draw: random.Random, name: str, fields: dict[str, object], dtype: str, classes: int, places: tuple[int, ...], weighted: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The relative errors of value and gradient of one case, each of the kernels and of the plain version in the same dtype."""
    n = draw.choice([0, 1, 3, 17, 64, 130])
    logits = draw.choice([0.1, 3.0, 30.0]) * torch.randn(n, classes, *places, device="cuda")
    if draw.random() < 0.2:
        logits += draw.choice([-1e4, 1e4]) if dtype == "float32" else 100
    if draw.random() < 0.1 and n:
        logits[0] *= 1e3 if dtype != "float16" else 10
    logits = logits.to(getattr(torch, dtype))
    stride = draw.choice(["plain", "plain", "rows", "transposed"])
    if stride == "rows":
        logits = logits.repeat_interleave(2, 0)[::2]
    elif stride == "transposed":
        logits = logits.transpose(0, 1).contiguous().transpose(0, 1)
    labels = torch.randint(classes, (n, *places), device="cuda")
    labels[torch.rand(labels.shape, device="cuda") < draw.choice([0.0, 0.3, 1.0 if draw.random() < 0.1 else 0.1])] = -100
    if draw.random() < 0.3:
        labels = labels.to(torch.int32)
    weight = torch.rand(classes) + 0.1 if weighted else None
    each = torch.rand(n, device="cuda") + 0.1 if weighted else None
    loss = mohs.create_loss(name, weight=weight, **fields).cuda()
    g = draw.choice([1.0, 0.25, 1024.0 if dtype == "float16" else 3.0])

    def run(z: Tensor, loss: nn.Module, each: Tensor | None) -> tuple[Tensor, Tensor]:
        leaf = z.detach().requires_grad_()
        value = loss(leaf, labels, sample_weight=each)
        return value.detach(), torch.autograd.grad(value, leaf, torch.full_like(value, g))[0]

    ours = run(logits, loss, each)
    _choose.ENABLED = False
    try:
        plain = run(logits, loss, each)
        exact = run(logits.double(), loss.double(), None if each is None else each.double())
    finally:
        _choose.ENABLED = True
    floor = 2.0**-24 if dtype == "float16" else 1e-36  # per entry: numbers that the dtype does not have, or not exactly
    size = terms_size(logits, labels, loss, each, exact[0])
    values = error(ours[0], exact[0], size=size), error(plain[0], exact[0], size=size)
    return values, (error(ours[1], exact[1], floor=floor), error(plain[1], exact[1], floor=floor))


@torch.no_grad()
def terms_size(logits: Tensor, labels: Tensor, loss: nn.Module, each: Tensor | None, value: Tensor) -> float:
    """Size to which the error of a reduced value is relative: that of the value if all its terms had one sign."""
    if value.dim() or not labels.numel():
        return 0.0
    loss.reduction = "none"
    terms = loss(logits.double(), labels, sample_weight=None if each is None else each.double()).nan_to_num()
    total = float(terms.sum().abs())
    return float(value.nan_to_num().abs() * terms.abs().sum()) / total if total > 0 else 0.0


def error(ours: Tensor, exact: Tensor, *, floor: float = 0.0, size: float = 0.0) -> float:
    """Distance by norm, relative to that of `exact` or to the size, if larger; 0 for two that are 0 or NaN in the same places."""
    if not torch.equal(ours.isnan(), exact.isnan()):
        return float("inf")
    off = (ours.double() - exact).nan_to_num().abs()
    off = (off - floor).clamp(min=0)
    size = max(size, float(exact.nan_to_num().norm()))
    return float(off.norm()) / size if size > 0 else float(off.norm())


def show(row: Row) -> None:
    print("  ".join(f"{key} {value}" for key, value in row.items() if key != "part"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=["losses", "head", "identities", "scoring", "equality"], required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time after which no further case is drawn")
    parser.add_argument("--no-compiled", action="store_true", help="leave torch.compile out")
    parser.add_argument("--out", type=Path, help="file name without its suffix")
    given = parser.parse_args()
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "losses": lambda: losses(given.rounds, compiled=not given.no_compiled),
        "head": lambda: head(given.rounds),
        "identities": lambda: identities(given.rounds),
        "scoring": lambda: scoring(given.rounds),
        "equality": lambda: equality(given.cases, given.processes, given.seconds),
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
