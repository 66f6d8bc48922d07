"""Starting a run: resolve its settings, claim its folder, build the job, and restore its last checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accelerate.state import PartialState
from torch import Tensor

from mohs._core.distributed import from_first
from mohs._core.folders import claimed, refuse_data_folder
from mohs.data.examples import Data, Examples
from mohs.train.accelerator import tracker_options
from mohs.train.build import build
from mohs.train.directory import RunDirectory, environment
from mohs.train.job import Job
from mohs.train.resolve import resolve
from mohs.train.run import Run
from mohs.train.run_features import Progress, keep_fitted


@contextmanager
def started(
    run: Run,
    data: Data,
    *,
    runs: str | Path,
    out: str | Path | None,
    device: str = "auto",
    trackers: tuple[str, ...] = (),
    start: Mapping[str, Tensor] | None = None,
    soft: Tensor | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[Job | None, RunDirectory]]:
    """The job, restored if it was interrupted, and its locked folder; the job is None if the run is already complete.

    Args:
        start: Weights to start from.
        soft: Soft labels (N, K) to train on instead of the labels of the prepared training set.
        progress: As for `resolve`.
    """
    given = data.train
    run, data, fingerprint = resolve(run, data, device=device, progress=progress)
    if soft is not None and len(soft) != len(data.train):
        raise ValueError(f"soft has {len(soft)} rows for {len(data.train)} training examples: give one row per example")
    fingerprint += "".join(f"-{digest(one)}" for one in (start, soft) if one is not None)
    name = run.hash(fingerprint)
    folder = Path(runs) / f"{run.name()}-{name}" if out is None else Path(out)
    directory = RunDirectory(folder)
    refuse_data_folder(folder, run.data)
    with ExitStack() as stack:
        first = PartialState().is_main_process
        if first:
            stack.enter_context(claimed(folder, "run.json", run_facts(run, data, given, name, fingerprint), kind="run"))
        if from_first(directory.done):
            yield None, directory
            return
        options = tracker_options(trackers, folder)
        job = build(run, data, device=device, graph=run.precision != "fp16", start=start, soft=soft, **options)
        if first:
            directory.resume()
            keep_fitted(run, given, folder, device=device)
        state = from_first(directory.checkpoint() if first else None)
        if state is not None:
            then, now = state.get("processes"), job.accelerator.num_processes
            if then != now:
                words = f"this run was started with {then} processes and cannot resume with {now}"
                raise ValueError(f"{words}: use {then}, or remove its checkpoint")
            with directory.reading_checkpoint():
                job.restore(state)
        if trackers:
            job.accelerator.init_trackers("mohs", config={"run": name})
        yield job, directory
        if trackers:
            job.accelerator.end_training()


def digest(given: Tensor | Mapping[str, Tensor]) -> str:
    """A short hash of a tensor, or of named tensors."""
    tensors = {"": given} if isinstance(given, Tensor) else given
    parts = (name.encode() + value.cpu().contiguous().numpy().tobytes() for name, value in sorted(tensors.items()))
    return hashlib.sha256(b"".join(parts)).hexdigest()[:8]


def run_facts(run: Run, data: Data, given: Examples, name: str, fingerprint: str) -> dict[str, Any]:
    """The contents of run.json: enough to rebuild the network, to read new inputs like the given ones, and to know their
    origin.
    """
    sizes = {part: len(examples) for part in ("train", "val", "test") if (examples := getattr(data, part)) is not None}
    return {
        "hash": name,
        "run": run.plain(),
        "data": {"name": data.name, "fingerprint": fingerprint, "examples": sizes, "left_out": len(data.train.left_out)},
        "shape": list(data.train.shape),
        "inputs": {"kind": given.kind, "shape": list(given.shape), "in memory": given.in_memory, "columns": list(given.columns)},
        "classes": data.classes,
        "processes": PartialState().num_processes,
        "date": datetime.now(UTC).date().isoformat(),
        **environment(),
    }
