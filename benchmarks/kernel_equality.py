"""The Triton kernels against the plain version in float64: values and gradients over random cases, on a GPU.

    python benchmarks/kernel_equality.py [--cases 10000] [--processes 16] [--seconds 180] [--out NAME]

Random in each case: hyper-parameters, number of rows (0 to 5000), size and offset of the logits, extreme and masked logits,
ignored rows, ignored class, incoming gradient. A `Kind` holds what compiles a kernel of its own: loss, dtype, reduction, weights,
number of classes (2 to 262,144), dimensions, strides and dtype of the labels; many cases share one. Losses, dtypes and
reductions follow one another, the rest is drawn. A tenth of the cases are regularizers, margins, fused heads and AVH scores.

The error of a tensor is by norm, relative; that of a mean or sum is relative to its terms as if all had one sign. `beyond`: cases
whose error is beyond the limit of the dtype, `plain_beyond`: in which that of the plain version in the same dtype is, as float32
itself leaves fewer digits where p^q has nearly vanished. `failed`: beyond the limit, and more than TWICE as far off as the plain
version. Writes NAME.json with hardware and versions, and NAME.csv, after every few kinds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import mohs
from kernels import Row, show, write
from mohs.margin import _choose

from machine import machine

DEVICE = "cpu" if _choose.INTERPRETED else "cuda"
LIMIT = {"float32": 1e-6, "bfloat16": 2**-7, "float16": 2**-10}  # bfloat16: rounded twice if the incoming gradient is not 1
TWICE = 2.0
TINY, FLOOR = 1e-36, {"float16": 2.0**-24}  # per entry: numbers that float32 or the dtype does not have, or not exactly
SPECS = {
    "cross_entropy": ["cross_entropy"],
    "mae": ["mae"],
    "gce": ["gce", "gce:q=0.2", "gce:q=1.0", "gce:q=0.0"],
    "truncated_gce": ["truncated_gce", "truncated_gce:threshold=0.1"],
    "focal": ["focal", "focal:gamma=0.5", "focal:gamma=0.0", "focal:gamma=5.0"],
    "symmetric": ["symmetric", "symmetric:alpha=1.0,beta=0.2"],
    "encouraging": ["encouraging", "encouraging:log_end=1.0", "encouraging:log_end=0.5,bonus=0.3"],
    "rescaling_mean": ["gradient_rescaling:normalize=mean", "gradient_rescaling:normalize=mean,beta=2.0,lam=0.0"],
    "gradient_rescaling": ["gradient_rescaling", "gradient_rescaling:beta=2.0,lam=1.0"],
    "rescaling_identity": ["gradient_rescaling:transform=identity"],
    "avh": ["avh"],
    "self_paced": ["self_paced", "self_paced:kind=linear"],
}
OTHERS = ("adr", "entropy_penalty", "margin", "linear_loss", "scores")
Found = tuple[tuple[float, float], tuple[float, float]]  # errors of value and gradient, each of the kernels and the plain version


@dataclass(frozen=True)
class Kind:
    """What compiles a kernel of its own, and how many cases of it to draw from which seed."""

    name: str
    dtype: str
    reduction: str
    classes: int
    places: tuple[int, ...]
    strides: str
    class_weights: bool
    sample_weights: bool
    smoothing: float
    labels: str
    cases: int
    seed: int

    @property
    def part(self) -> str:
        return "losses" if self.name in SPECS else self.name


def kinds(cases: int, each: int) -> Iterator[Kind]:
    """So many cases in all, `each` of a kind."""
    draw = random.Random(0)
    main = itertools.cycle(itertools.product(SPECS, LIMIT, ("mean", "sum", "none")))
    others = itertools.cycle(itertools.product(OTHERS, LIMIT))
    for seed in range(-(-cases // each)):
        name, dtype, reduction = next(main) if seed % 10 else (*next(others), draw.choice(["mean", "sum", "none"]))
        if name == "scores" or (name in OTHERS[:2] and dtype == "float16"):
            dtype = "float32"
        classes = draw.choice([2, 3, 10, 33, 100, 257, 1000, 1024, 4099, 8192, 33_000, 131_072, 262_144])
        if name in ("linear_loss", "scores"):
            classes = min(classes, 4099)
        plain = classes > 5000 or name in ("linear_loss", "scores")
        yield Kind(
            name=name,
            dtype=dtype,
            reduction=reduction,
            classes=classes,
            places=() if plain else draw.choice([(), (), (7,), (2, 3)]),
            strides="plain" if name in ("linear_loss", "scores") else draw.choice(["plain", "plain", "rows", "transposed"]),
            class_weights=draw.random() < 0.4 and name in SPECS,
            sample_weights=draw.random() < 0.4 and name in SPECS,
            smoothing=0.1 if name in ("cross_entropy", "avh") and draw.random() < 0.4 else 0.0,
            labels=draw.choice(["int64", "int64", "int32"]),
            cases=each,
            seed=seed,
        )


def equality(cases: int, each: int, processes: int, seconds: float) -> Iterator[list[Row]]:
    """The table so far, after every few kinds; ends early when the time is up."""
    end = time.time() + seconds
    found: dict[tuple[str, str], dict[str, float]] = {}
    with torch.multiprocessing.get_context("spawn").Pool(processes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        jobs = ((kind, end) for kind in kinds(cases, each))
        for count, (kind, errors) in enumerate(pool.imap_unordered(run_kind, jobs), 1):
            record = found.setdefault(
                (kind.part, kind.dtype), dict.fromkeys(("cases", "beyond", "plain_beyond", "failed", "value", "gradient"), 0)
            )
            for one, drawn in errors:
                add(record, one, kind, drawn)
            if count % 50 == 0:
                yield table(found)
    yield table(found)


def add(record: dict[str, float], errors: Found, kind: Kind, drawn: str) -> None:
    """Count one case, and print one that failed."""
    limits = (LIMIT["float32"], LIMIT[kind.dtype])  # of value and gradient
    pairs = list(zip(errors, limits, strict=True))
    record["cases"] += 1
    record["beyond"] += any(not ours <= limit for (ours, _), limit in pairs)
    record["plain_beyond"] += any(not plain <= limit for (_, plain), limit in pairs)
    failed = any(not ours <= max(limit, TWICE * plain) for (ours, plain), limit in pairs)
    record["failed"] += failed
    for name, (ours, _) in zip(("value", "gradient"), errors, strict=True):
        record[name] = max(record[name], ours)
    if failed:
        print("failed:", kind, drawn, errors, flush=True)


def table(found: dict[tuple[str, str], dict[str, float]]) -> list[Row]:
    rows: list[Row] = []
    for (part, dtype), record in sorted(found.items()):
        errors = {name: float(f"{record[name]:.3g}") for name in ("value", "gradient")}
        rows.append({"part": "equality", "shape": dtype, "candidate": part} | record | errors | {"limit": LIMIT[dtype]})
    return rows


def run_kind(given: tuple[Kind, float]) -> tuple[Kind, list[tuple[Found, str]]]:
    """The errors of every case of a kind, each with what was drawn for it; none after the time is up."""
    kind, end = given
    draw = Draw(kind.seed)
    torch.manual_seed(kind.seed)
    function = {"margin": margin_case, "linear_loss": head_case, "scores": scores_case}.get(kind.name, loss_case)
    errors, drawn = [], []
    for _ in range(kind.cases):
        if time.time() < end:
            errors.append(torch.stack(function(kind, draw)))
            drawn.append(" ".join(draw.taken))
            draw.taken.clear()
    found = torch.stack(errors).tolist() if errors else []  # one synchronization for all
    return kind, [(((a, b), (c, d)), text) for (a, b, c, d), text in zip(found, drawn, strict=True)]


class Draw(random.Random):
    """Random choices that remember what they took."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.taken: list[str] = []

    def choice(self, seq):  # type: ignore[no-untyped-def]
        taken = super().choice(seq)
        self.taken.append(str(taken))
        return taken

    def happens(self, share: float) -> bool:
        return self.choice([self.random() < share])


def sample(kind: Kind, draw: Draw) -> tuple[Tensor, Tensor, int]:
    """Logits (N, K, ...), labels (N, ...) and the ignored class."""
    most = 5000 if kind.classes <= 33 else 300 if kind.classes <= 10_000 else 17
    n = min(most, draw.choice([0, 1, 2, 3, 17, 64, 130, 300, 5000]))
    logits = draw.choice([0.1, 3.0, 30.0]) * torch.randn(n, kind.classes, *kind.places, device=DEVICE)
    if draw.happens(0.2):
        logits += draw.choice([-1e4, 1e4]) if kind.dtype == "float32" else 100
    if draw.happens(0.1) and n:
        logits[0] *= 1e3 if kind.dtype != "float16" else 10
    labels = torch.randint(kind.classes, (n, *kind.places), device=DEVICE)
    if draw.happens(0.1) and kind.classes > 2:
        masked = torch.rand(logits.shape, device=DEVICE) < 0.3
        masked[:, :1] = False
        masked.scatter_(1, labels.unsqueeze(1), False)
        logits = logits.masked_fill(masked, -torch.inf)
    logits = logits.to(getattr(torch, kind.dtype))
    if kind.strides == "rows":
        logits = logits.repeat_interleave(2, 0)[::2]
    elif kind.strides == "transposed":
        logits = logits.transpose(0, 1).contiguous().transpose(0, 1)
    ignored = draw.choice([-100, -100, 1])
    share = draw.choice([0.0, 0.3, 1.0 if draw.happens(0.1) else 0.1])
    labels[torch.rand(labels.shape, device=DEVICE) < share] = ignored
    return logits, labels.to(getattr(torch, kind.labels)), ignored


def plainly(function: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """What a function gives without the kernels."""
    _choose.ENABLED = False
    try:
        return function()
    finally:
        _choose.ENABLED = True


def differentiate(function: Callable[..., Tensor], g: float, *leaves: Tensor) -> tuple[Tensor, ...]:
    """The value, and its gradients in the leaves for an incoming gradient of g."""
    given = [leaf.detach().requires_grad_() for leaf in leaves]
    value = function(*given)
    return value.detach(), *torch.autograd.grad(value, given, torch.full_like(value, g))


def loss_case(kind: Kind, draw: Draw) -> list[Tensor]:
    """A loss or regularizer: errors of value and gradient, each of the kernels and of the plain version in the same dtype."""
    logits, labels, ignored = sample(kind, draw)
    g = draw.choice([1.0, 0.25, 1024.0 if kind.dtype == "float16" else 3.0])
    floor = FLOOR.get(kind.dtype, TINY)
    each = torch.rand(len(logits), device=DEVICE) + 0.1 if kind.sample_weights else None
    weight = torch.rand(kind.classes) + 0.1 if kind.class_weights else None
    options = {"weight": weight, "ignore_index": ignored, "reduction": kind.reduction, "label_smoothing": kind.smoothing}
    if kind.name in SPECS:
        loss: nn.Module = mohs.create_loss(draw.choice(SPECS[kind.name]), **options).to(DEVICE)
        paced = kind.name == "self_paced"
        level = draw.choice([1.0, 5.0, 20.0]) if paced else 0.0
        loss.train(
            len(logits) % 2 == 0
        )  # λ follows the batch, half way, so that it is not the loss of an example; else it is held

        def function(z: Tensor) -> Tensor:
            if paced:
                loss.get_buffer("threshold").fill_(level)
            return loss(z, labels, sample_weight=None if each is None else each.to(weights_dtype(z)))

    else:
        tau = draw.choice([t for t in (1, 2, 3, 5) if t <= kind.classes])
        function = loss = mohs.ADR(tau=tau) if kind.name == "adr" else mohs.EntropyPenalty()
        logits = logits.masked_fill(logits == -torch.inf, 0.0) if kind.name == "adr" else logits
    ours = differentiate(function, g, logits)
    plain = plainly(lambda: differentiate(function, g, logits))
    exact = plainly(lambda: differentiate(function, g, logits.double()))
    size = torch.zeros((), dtype=torch.float64, device=DEVICE)
    if kind.name in SPECS and exact[0].dim() == 0 and labels.numel():
        loss.reduction = "none"
        terms = plainly(lambda: (function(logits.double()).detach().nan_to_num(),))[0]
        total = terms.sum().abs()
        size = torch.where(total > 0, exact[0].nan_to_num().abs() * terms.abs().sum() / total, 0.0)
    values = [error(value, exact[0], size=size) for value in (ours[0], plain[0])]
    return [*values, error(ours[1], exact[1], floor=floor), error(plain[1], exact[1], floor=floor)]


def weights_dtype(z: Tensor) -> torch.dtype:
    return torch.float64 if z.dtype == torch.float64 else torch.float32


def margin_case(kind: Kind, draw: Draw) -> list[Tensor]:
    """The margin alone, whose gradient takes a number for each row."""
    logits, labels, ignored = sample(kind, draw)
    g = draw.choice([1.0, 0.25])
    floor = FLOOR.get(kind.dtype, TINY)
    function = lambda z: mohs.margin(z, labels, ignore_index=ignored)
    ours = differentiate(function, g, logits)
    plain = plainly(lambda: differentiate(function, g, logits))
    exact = plainly(lambda: differentiate(function, g, logits.double()))
    values = [error(value[0], exact[0]) for value in (ours, plain)]
    return [*values, *(error(value[1], exact[1], floor=floor) for value in (ours, plain))]


def head_case(kind: Kind, draw: Draw) -> list[Tensor]:
    """A fused head with statistics: gradients of features and weight together, beside the loss of the logits themselves."""
    n, size = draw.choice([1, 3, 64, 300]), draw.choice([16, 33, 128])
    x = (2 * torch.randn(n, size, device=DEVICE)).to(getattr(torch, kind.dtype))
    w = torch.randn(kind.classes, size, device=DEVICE).to(x.dtype) / size**0.5
    y = torch.randint(kind.classes, (n,), device=DEVICE)
    y[torch.rand(n, device=DEVICE) < 0.1] = -100
    y[0] = 0
    spec = draw.choice(
        [spec for name, specs in SPECS.items() for spec in specs if "rescaling" not in name and name not in ("avh", "self_paced")]
    )
    loss = mohs.create_loss(spec, reduction=kind.reduction)
    seen: list[Tensor] = []

    def fused(x: Tensor, w: Tensor) -> Tensor:
        value, stats = mohs.linear_loss(x, w, y, loss=loss, return_stats=True)
        seen.append(torch.cat([stats.margin.nan_to_num(), stats.entropy.nan_to_num()]).detach())
        return value

    ours = differentiate(fused, 1.0, x, w)
    plain = plainly(lambda: differentiate(fused, 1.0, x, w))
    exact = plainly(lambda: differentiate(fused, 1.0, x.double(), w.double()))
    together = [
        (torch.cat([v.flatten(), s]), torch.cat([a.flatten(), b.flatten()]))
        for (v, a, b), s in zip((ours, plain, exact), seen, strict=True)
    ]
    floor = FLOOR.get(kind.dtype, TINY)
    errors = [[error(one[i], together[2][i], floor=floor if i else TINY) for one in together[:2]] for i in range(2)]
    return [*errors[0], *errors[1]]


def scores_case(kind: Kind, draw: Draw) -> list[Tensor]:
    """AVH scores, which have no gradient."""
    n, size = draw.choice([1, 3, 64, 300, 1000]), draw.choice([2, 16, 33, 128, 512])
    x, w = draw.choice([1e-6, 1.0, 1e6]) * torch.randn(n, size, device=DEVICE), torch.randn(kind.classes, size, device=DEVICE)
    y = torch.randint(kind.classes, (n,), device=DEVICE)
    function = lambda x, w: (mohs.avh(x, w, y),)
    ours, plain, exact = (
        function(x, w)[0],
        plainly(lambda: function(x, w))[0],
        plainly(lambda: function(x.double(), w.double()))[0],
    )
    nothing = torch.zeros((), dtype=torch.float64, device=DEVICE)
    return [error(ours, exact), error(plain, exact), nothing, nothing]


def error(ours: Tensor, exact: Tensor, *, floor: float = TINY, size: Tensor | None = None) -> Tensor:
    """Distance by norm, relative to that of `exact` or to the size, if larger; 0 for two that are 0 or NaN in the same places."""
    off = (ours.double() - exact).nan_to_num().abs()
    off = (off - floor).clamp(min=0).norm()
    whole = exact.double().nan_to_num().norm()
    if size is not None:
        whole = torch.maximum(whole, size)
    alike = (ours.isnan() == exact.isnan()).all()
    return torch.where(alike, torch.where(whole > 0, off / whole, off), torch.inf)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=10, help="cases of one kind")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time after which no further case is drawn")
    parser.add_argument("--out", type=Path, help="file name without its suffix")
    given = parser.parse_args()
    about = machine() | {"triton": __import__("triton").__version__, "cases": given.cases, "each": given.each}
    began, rows = time.time(), []
    for rows in equality(given.cases, given.each, given.processes, given.seconds):
        print(f"{sum(int(row['cases']) for row in rows)} cases after {time.time() - began:.0f} s", flush=True)
        if given.out:
            write(rows, about | {"seconds": round(time.time() - began)}, given.out)
    for row in rows:
        show(row)


if __name__ == "__main__":
    main()
