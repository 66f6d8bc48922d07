"""The environment of a measurement: hardware, versions, commit and date, stored in every results file."""

from __future__ import annotations

import datetime
import platform
import subprocess
from pathlib import Path

import torch

import mohs


def machine() -> dict[str, str | int]:
    """Hardware, versions, commit and date of this process."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
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


def _commit() -> str:
    here = Path(__file__).parent
    answer = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"
