"""What a run leaves behind, and how to take it up again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors.torch import load_file, save
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs.data.examples import Examples
from mohs.hardness.table import add_columns, read_table, write_table
from mohs.models import create_model, model_spec
from mohs.models.network import Network
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.directory import RunDirectory
from mohs.train.job import Job
from mohs.train.run import Run, run_from


@dataclass(eq=False)
class Trained:
    """A finished run: its network, the lines of its epochs, and how each training example behaved."""

    folder: Path
    run: Run
    network: Network = field(repr=False)
    classes: list[Any] = field(repr=False)
    history: list[dict[str, Any]] = field(repr=False)
    table: pa.Table | None = field(default=None, repr=False)
    trace: dict[str, Tensor] | None = field(default=None, repr=False)


def finish(job: Job, directory: RunDirectory) -> Trained:
    """Write weights and dynamics, then DONE; every process returns the same."""
    if job.accelerator.is_main_process:
        network = job.training.network
        if job.ema is not None:
            job.ema.copy_to(network)
        weights = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        with written_whole(directory.model) as part:
            part.write_bytes(save(weights))
        if job.recorder is not None:
            write_table(with_origin(job.recorder.table(classes=job.data.classes), job.data.train), directory.dynamics)
        if job.trace is not None:
            save_tree(job.trace.values, directory.path / "trace.safetensors")
        directory.finish()
    job.accelerator.wait_for_everyone()
    return load_run(directory.path)


def with_origin(table: pa.Table, examples: Examples) -> pa.Table:
    """The table with the owner's names for its rows and their files, where there are such."""
    extra: dict[str, Any] = {} if examples.keys is None else {"id": list(examples.keys)}
    return add_columns(table, extra | ({} if examples.paths is None else {"path": list(examples.paths)}))


def load_run(folder: Path) -> Trained:
    """A finished run from its folder; nothing of it is executed."""
    directory = RunDirectory(Path(folder))
    if not directory.done:
        state = "is not finished: run the same command again to go on" if (directory.path / "run.json").exists() else "is no run"
        raise DataError(f"{folder} {state}")
    about = directory.about
    run = run_from(about["run"], where=str(folder))
    model = {**model_spec(run.model), **({"pretrained": False} if "pretrained" in run.model else {})}
    network = create_model(model, shape=tuple(about["shape"]), num_classes=len(about["classes"]), head=run.head, seed=run.seed)
    network.load_state_dict(load_file(directory.model))
    traced = directory.path / "trace.safetensors"
    return Trained(
        folder=directory.path,
        run=run,
        network=network.eval(),
        classes=about["classes"],
        history=directory.metrics(),
        table=read_table(directory.dynamics) if directory.dynamics.exists() else None,
        trace=load_tree(traced) if traced.exists() else None,
    )
