"""The folder of a run: settings, history and results; `DONE` is written last.

run.json             the resolved run, its hash, the data's fingerprint, versions, git (commit or hash of the code), hardware, ...
metrics.jsonl        one line per epoch
checksums.json       checksums of the other files (`_core.checksums`)
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
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from mohs._core.checksums import damaged, listed, read_json, reading, remove_file, unlist_file
from mohs._core.code_version import code_version
from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs.train.checkpoint import REPAIR, load_tree, save_tree

SYNC = 5.0  # seconds; of more frequent checkpoints, not all are synced to the disk
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
        repair = "remove this file and run the command that trained the run again; the weights are kept"
        return read_json(self.path / "run.json", lost="the settings of the run are lost", repair=repair)

    @property
    def repair(self) -> str:
        """How to restore a damaged result of this run."""
        return f"remove the folder {self.path} and run the command that trained it again"

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, the last one of each epoch; in a file without a checksum a truncated line is skipped."""
        file = self.path / "metrics.jsonl"
        lines: dict[int, dict[str, Any]] = {}
        with reading(file, lost="the losses and accuracies of the epochs are lost", repair=self.repair) as checked:
            for text in file.read_text(errors="strict" if checked else "replace").splitlines() if file.exists() else ():
                with contextlib.nullcontext() if checked else contextlib.suppress(ValueError, KeyError, TypeError):
                    line = json.loads(text)
                    lines[line["epoch"]] = line
        return [lines[epoch] for epoch in sorted(lines)]

    def part(self, name: str, load: Callable[..., Any], *, lost: str) -> Any:
        """An optional result; None if this run does not have it, or the error if it is damaged, so that the rest can be used."""
        file = self.path / name
        if not file.exists() and name not in listed(self.path):
            return None
        try:
            return load(file, lost=lost, repair=self.repair)
        except DataError as error:
            return error

    def log(self, line: Mapping[str, Any]) -> None:
        """Append the line of an epoch; an epoch that was repeated after an interruption has two lines, of which the last
        counts.
        """
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def checkpoint(self) -> Any:
        """The last checkpoint; None if there is none yet."""
        file = self.path / "checkpoint.safetensors"
        if not file.exists():
            return None
        with self.reading_checkpoint():
            state = load_tree(file)
            if not isinstance(state, dict):
                raise TypeError(f"it holds {type(state).__name__} instead of a dictionary")
            return state

    def reading_checkpoint(self) -> AbstractContextManager[Any]:
        """A context in which an error from reading or using the checkpoint is reported as damage to the file."""
        again = "remove this file to train again from the beginning"
        return reading(self.path / "checkpoint.safetensors", lost="the training cannot resume", repair=again)

    def save_checkpoint(self, tree: Any) -> None:
        """Replace the checkpoint; if the machine itself crashes, the checkpoints of the last few seconds may be lost."""
        file = self.path / "checkpoint.safetensors"
        save_tree(tree, file, sync=not file.exists() or self.unsaved_seconds() > SYNC)

    def unsaved_seconds(self) -> float:
        """Seconds since the last checkpoint, or since the run began."""
        files = (self.path / name for name in ("checkpoint.safetensors", "run.json"))
        return time.time() - next((file.stat().st_mtime for file in files if file.exists()), 0.0)

    def resume(self) -> None:
        """Prepare for more lines in metrics.jsonl, which has no checksum until the run is complete."""
        file = self.path / "metrics.jsonl"
        if file.is_dir():
            raise damaged(file, "it is not a file", lost="the lines so far are lost", repair=REPAIR)
        unlist_file(file)

    def finish(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Write the history whole, mark the run as complete and remove the checkpoint."""
        with written_whole(self.path / "metrics.jsonl") as part:
            part.write_text("".join(json.dumps(line) + "\n" for line in history))
        with written_whole(self.path / "DONE") as part:
            part.write_text("")
        remove_file(self.path / "checkpoint.safetensors")


@cache
def environment() -> dict[str, Any]:
    """Package versions, commit or hash of the code, and hardware, for run.json; read once per process."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {"versions": versions, "python": platform.python_version(), "git": code_version(), "hardware": hardware()}


def hardware() -> str:
    """The GPUs, or the processor and its number of cores."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
    return f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}"
