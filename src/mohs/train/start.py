"""Starting a run: settle what it leaves open, find or make its folder, and go on from where it stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState, PartialState
from torch import Tensor
from torch import distributed as dist

from mohs._core.distributed import from_first
from mohs.data.examples import Data
from mohs.data.validate import check_examples
from mohs.train.build import build
from mohs.train.directory import RunDirectory, locked, surroundings
from mohs.train.job import Job
from mohs.train.resolve import prepared, resolved
from mohs.train.run import Run


@contextmanager
def started(
    run: Run,
    data: Data,
    *,
    runs: Path,
    out: Path | None,
    device: str = "auto",
    trackers: tuple[str, ...] = (),
    start: Mapping[str, Tensor] | None = None,
    soft: Tensor | None = None,
) -> Iterator[tuple[Job | None, RunDirectory]]:
    """The job, restored where it was begun before, and its folder, locked; no job where the run is done.

    start: weights to begin with; soft: shares of the classes (N, K) in place of the labels of the prepared training set.
    """
    run, data, fingerprint = settled(run, data, device=device)
    if soft is not None and len(soft) != len(data.train):
        raise ValueError(f"soft has {len(soft)} rows for {len(data.train)} training examples: one an example is wanted")
    fingerprint += "".join(f"-{digest(given)}" for given in (start, soft) if given is not None)
    name = run.hash(fingerprint)
    folder = out or runs / f"{run.name()}-{name}"
    with ExitStack() as held:
        first = PartialState().is_main_process
        directory = held.enter_context(locked(folder)) if first else RunDirectory(folder)
        if first:
            directory.describe(about(run, data, name, fingerprint))
        if from_first(directory.done):
            yield None, directory
            return
        job = build(run, data, device=device, graph=run.precision != "fp16", start=start, soft=soft, **tracking(trackers, folder))
        state = from_first(directory.checkpoint() if first else None)
        if state is not None:
            job.restore(state)
            job.history = from_first(directory.metrics()[: job.epoch] if first else None)
        if trackers:
            job.accelerator.init_trackers("mohs", config={"run": name})
        yield job, directory
        if trackers:
            job.accelerator.end_training()


def settled(run: Run, data: Data, *, device: str = "auto") -> tuple[Run, Data, str]:
    """The resolved run, the data it trains on, and the fingerprint of the data as they were given."""
    choose_device(device)
    check_examples(data.train)
    fingerprint = "-".join(part.fingerprint() for part in (data.train, data.val, data.test) if part is not None)
    run = resolved(run, data.train, cuda=PartialState().device.type == "cuda")
    return run, prepared(run, data), fingerprint


def digest(given: Tensor | Mapping[str, Tensor]) -> str:
    """A hash of a tensor, or of tensors under their names."""
    tensors = {"": given} if isinstance(given, Tensor) else given
    parts = (name.encode() + value.cpu().contiguous().numpy().tobytes() for name, value in sorted(tensors.items()))
    return hashlib.sha256(b"".join(parts)).hexdigest()[:8]


def choose_device(device: str) -> None:
    """Tell Accelerate, whose state is one for the whole process, where to run from here on."""
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {device!r}; CUDA_VISIBLE_DEVICES says which GPU")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda, but torch sees no GPU here: use device=cpu, or see `mohs doctor`")
    AcceleratorState._reset_state(reset_partial_state=not dist.is_initialized())
    PartialState(cpu=device == "cpu")


def tracking(trackers: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Accelerate's words for these trackers; an error for one that is not installed."""
    if not trackers:
        return {}
    from accelerate.tracking import get_available_trackers

    there = [getattr(name, "value", str(name)) for name in get_available_trackers()]
    for name in trackers:
        if name not in there:
            raise ValueError(f"tracker {name!r} is not installed or not known; there are: {', '.join(there) or 'none'}")
    return {"log_with": list(trackers), "project_dir": str(folder)}


def about(run: Run, data: Data, name: str, fingerprint: str) -> dict[str, Any]:
    """What run.json says: enough to build the network again and to know where it came from."""
    sizes = {part: len(examples) for part in ("train", "val", "test") if (examples := getattr(data, part)) is not None}
    return {
        "hash": name,
        "run": run.plain(),
        "data": {"name": data.name, "fingerprint": fingerprint, "examples": sizes, "left_out": len(data.train.left_out)},
        "shape": list(data.train.shape),
        "classes": data.classes,
        "processes": PartialState().num_processes,
        "date": datetime.now(UTC).date().isoformat(),
        **surroundings(),
    }
