"""The folder of a run: settings, history and results; `DONE` is written last.

run.json             the resolved run, its hash, the data's fingerprint, versions, git commit, hardware, processes
metrics.jsonl        one line per epoch
checkpoint.safetensors   everything needed to resume after the last complete epoch; removed when the run is done
model.safetensors    the weights to use (the averaged ones with EMA)
targets.safetensors  running mean of the predictions of each example, with early-learning regularization
dynamics.parquet     the training dynamics of each example
DONE                 the run is complete
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mohs._core.files import written_whole
from mohs.train.checkpoint import load_tree, save_tree

SYNC = 5.0  # seconds: more frequent checkpoints are not all synced to the disk
PACKAGES = ("mohs", "torch", "numpy", "accelerate", "torchvision", "timm")


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def done(self) -> bool:
        return (self.path / "DONE").exists()

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def targets(self) -> Path:
        return self.path / "targets.safetensors"

    @property
    def dynamics(self) -> Path:
        return self.path / "dynamics.parquet"

    @property
    def about(self) -> dict[str, Any]:
        """The contents of run.json."""
        made: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        return made

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, the last one of each epoch; a truncated line is skipped."""
        file = self.path / "metrics.jsonl"
        lines: dict[int, dict[str, Any]] = {}
        for text in file.read_text().splitlines() if file.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):
                line = json.loads(text)
                lines[line["epoch"]] = line
        return [lines[epoch] for epoch in sorted(lines)]

    def log(self, line: Mapping[str, Any]) -> None:
        """Append the line of an epoch; an epoch that was repeated after an interruption has two, of which the last counts."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def checkpoint(self) -> Any:
        """The last checkpoint; None if there is none yet."""
        file = self.path / "checkpoint.safetensors"
        return load_tree(file) if file.exists() else None

    def save_checkpoint(self, tree: Any) -> None:
        """Replace the checkpoint; if the machine itself crashes, the last few seconds of them may be lost."""
        file = self.path / "checkpoint.safetensors"
        save_tree(tree, file, sync=not file.exists() or self.unsaved_seconds() > SYNC)

    def unsaved_seconds(self) -> float:
        """Seconds since the last checkpoint, or since the run began."""
        files = (self.path / name for name in ("checkpoint.safetensors", "run.json"))
        return time.time() - next((file.stat().st_mtime for file in files if file.exists()), 0.0)

    def finish(self) -> None:
        """Mark the run as complete and remove the checkpoint."""
        with written_whole(self.path / "DONE") as part:
            part.write_text("")
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)


def environment() -> dict[str, Any]:
    """Package versions, git commit and hardware, for run.json."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {"versions": versions, "python": platform.python_version(), "git": _commit(), "hardware": hardware()}


def hardware() -> str:
    """The GPUs, or the processor and its number of cores."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
    return f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}"


def _commit() -> str | None:
    """The git commit of the working directory, with "+" if files were modified; None outside a repository."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    return None
