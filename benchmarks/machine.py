"""The environment of a measurement: hardware, versions, commit (or hash of the code) and date, stored in every results file."""

from __future__ import annotations

import csv
import datetime
import platform
from pathlib import Path
from typing import Any

import torch

import mohs
from mohs._core.code_version import code_version


def machine() -> dict[str, str | int]:
    """Hardware, versions, commit and date of this process."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": code_version(),
        "mohs": mohs.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def write_rows(rows: list[dict[str, Any]], file: Path) -> None:
    """Results as a CSV, numbers to six digits."""
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()} for row in rows)


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV; none if there is no such file."""
    if not file.exists():
        return []
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def append_row(row: dict[str, Any], file: Path) -> None:
    """Add a row to a CSV, which gets a header if it is new; the columns of an old one decide their order."""
    file.parent.mkdir(parents=True, exist_ok=True)
    names = list(row)
    if file.exists():
        with file.open(newline="") as opened:
            names = next(csv.reader(opened))
    with file.open("a", newline="") as opened:
        writer = csv.DictWriter(opened, names, lineterminator="\n")
        if opened.tell() == 0:
            writer.writeheader()
        writer.writerow(row)
