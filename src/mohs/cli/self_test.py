"""The self-test of `mohs doctor`: a loss against torch's, a training run, a table and a report, each in a temporary folder."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Check:
    """One check; detail: what was measured, or what went wrong."""

    name: str
    passed: bool
    detail: str


def self_test() -> list[Check]:
    """Run every check; one that fails does not stop the others."""
    return [run_check(name, check) for name, check in CHECKS.items()]


def run_check(name: str, check: Callable[[Path], str]) -> Check:
    """Run one check in its own temporary folder."""
    try:
        with tempfile.TemporaryDirectory(prefix="mohs-doctor-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Check(name, True, check(Path(folder)))
    except Exception as error:  # the other checks still run
        return Check(name, False, one_line(error))


def one_line(error: Exception) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def check_losses(folder: Path) -> str:
    """Compare our cross-entropy with torch's, value and gradient, on every device."""
    import torch
    from torch.nn.functional import cross_entropy

    from mohs.losses.cross_entropy import CrossEntropyLoss

    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        generator = torch.Generator().manual_seed(0)
        logits, labels = torch.randn(64, 10, generator=generator).to(device), torch.arange(64, device=device) % 10
        ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
        a, b = CrossEntropyLoss()(ours, labels), cross_entropy(theirs, labels)
        (grad_a,), (grad_b,) = torch.autograd.grad(a, ours), torch.autograd.grad(b, theirs)
        gap = max(float((a - b).abs()), float((grad_a - grad_b).abs().max()))
        if not gap < 1e-5:
            raise RuntimeError(f"on {device} cross-entropy differs from torch's by {gap:g}")
    return f"cross-entropy equals torch's to 1e-5 on {' and '.join(devices)}"


def check_training(folder: Path) -> str:
    """Train one epoch on digits as `mohs train` does."""
    from mohs.data.readers.digits import digits
    from mohs.train.loop import train
    from mohs.train.run import Run

    done = train(Run(model="linear", epochs=1), digits(), out=folder / "run")
    last = done.history[-1]
    return f"one epoch on digits in {last['seconds']:.2f} s, validation accuracy {last['val_accuracy']:.2f}"


def check_table(folder: Path) -> str:
    """Write and read a hardness table."""
    from mohs.hardness.table import read_table, write_table

    table = _scored()
    write_table(table, folder / "hardness.parquet")
    if not read_table(folder / "hardness.parquet").equals(table):
        raise RuntimeError("a table changed when it was written and read again")
    return f"{len(table)} rows written and read"


def check_report(folder: Path) -> str:
    """Write a report page, with charts if the extra is installed."""
    from mohs.audit.result import AuditResult
    from mohs.hardness.verdict import verdict
    from mohs.report.page import chart_script, write_report

    findings = AuditResult(verdict(_scored()), name="doctor", data_hash="0" * 16, classes=[0, 1, 2])
    size = write_report(findings, folder / "report.html").stat().st_size
    return f"a page of {size / 1e6:.1f} MB {'with' if chart_script() else 'without'} charts"


def _scored() -> Any:
    import torch

    from mohs.hardness.score import score_logits

    return score_logits(torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3)


CHECKS: dict[str, Callable[[Path], str]] = {
    "losses": check_losses,
    "training": check_training,
    "table": check_table,
    "report": check_report,
}
