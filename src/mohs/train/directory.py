"""The folder of a run: what was asked for, what happened, what came of it; `DONE` is written last.

    run.json             the resolved run, its hash, the data's fingerprint, versions, git commit, hardware, processes
    metrics.jsonl        a line an epoch
    checkpoint.safetensors   all it takes to go on from the last whole epoch; gone once the run is done
    model.safetensors    the weights to use (the averaged ones where EMA was on)
    dynamics.parquet     how each training example behaved
    DONE                 the run is whole

One process at a time works on a folder: the second is refused, and the lock falls with the process that held it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mohs._core.errors import RunError
from mohs._core.files import written_whole
from mohs.train.checkpoint import load_tree, save_tree

SYNC = 5.0  # seconds: checkpoints that follow one another faster are not all forced to the disk
PACKAGES = ("mohs", "torch", "numpy", "accelerate", "torchvision", "timm")


@dataclass(frozen=True)
class RunDirectory:
    """Paths and files of one run."""

    path: Path

    @property
    def done(self) -> bool:
        return (self.path / "DONE").exists()

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def dynamics(self) -> Path:
        return self.path / "dynamics.parquet"

    @property
    def about(self) -> dict[str, Any]:
        """What run.json says."""
        made: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        return made

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write run.json, or refuse the folder of another run."""
        file = self.path / "run.json"
        if file.exists() and self.about["hash"] != about["hash"]:
            raise RunError(
                f"{self.path} holds another run ({self.about['hash']}, this one is {about['hash']}): choose another folder"
            )
        if not file.exists():
            with written_whole(file) as part:
                part.write_text(json.dumps(about, indent=1, default=str) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, of each epoch the last one; a line that was cut off is left out."""
        file = self.path / "metrics.jsonl"
        lines: dict[int, dict[str, Any]] = {}
        for text in file.read_text().splitlines() if file.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):
                line = json.loads(text)
                lines[line["epoch"]] = line
        return [lines[epoch] for epoch in sorted(lines)]

    def log(self, line: Mapping[str, Any]) -> None:
        """Add an epoch's line; an epoch that was begun anew has a second one, which counts."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def checkpoint(self) -> Any:
        """The last checkpoint, None where there is none."""
        file = self.path / "checkpoint.safetensors"
        return load_tree(file) if file.exists() else None

    def save_checkpoint(self, tree: Any) -> None:
        """Put this checkpoint in the place of the last; on a machine that dies, some seconds of them may be lost."""
        file = self.path / "checkpoint.safetensors"
        save_tree(tree, file, sync=not file.exists() or self.unsaved_seconds() > SYNC)

    def unsaved_seconds(self) -> float:
        """How long ago the last checkpoint was written, or the run begun."""
        files = (self.path / name for name in ("checkpoint.safetensors", "run.json"))
        return time.time() - next((file.stat().st_mtime for file in files if file.exists()), 0.0)

    def finish(self) -> None:
        """The run is whole: say so, and drop what only a resumed run needs."""
        with written_whole(self.path / "DONE") as part:
            part.write_text("")
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[RunDirectory]:
    """The run's folder, made where it is missing, for this process alone."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            _lock(file.fileno())
        except OSError:
            raise RunError(f"{folder}: another process is working on this run; wait for it, or stop it first") from None
        yield RunDirectory(folder)


def _lock(file: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def surroundings() -> dict[str, Any]:
    """Versions, commit and machine, for run.json."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {"versions": versions, "python": platform.python_version(), "git": _commit(), "hardware": hardware()}


def hardware() -> str:
    """The GPU, or the processor and how many cores there are to use."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
    return f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}"


def _commit() -> str | None:
    """The commit of the working directory, "+" where files differ from it; None outside git."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        ask = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        return subprocess.run(ask, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    return None
