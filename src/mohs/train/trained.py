"""A finished run: its network, history and training dynamics, and how to load it from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors.torch import load_file, save
from torch import Tensor

from mohs._core.checksums import reading
from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs._core.folders import held_in
from mohs._core.specs import as_spec
from mohs.data.examples import Examples
from mohs.hardness.table import add_columns, read_table, write_table
from mohs.losses.early_learning import EarlyLearning
from mohs.models import model_spec
from mohs.models.network import Network
from mohs.train.build import build_network
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.classify import classify, new_inputs
from mohs.train.directory import RunDirectory
from mohs.train.job import Job
from mohs.train.run import Run, run_from
from mohs.train.trace import load_test_traces


@dataclass(eq=False, repr=False)
class Trained:
    """A finished run.

    Attributes:
        folder: The run's folder.
        run: Its settings.
        network: The trained network, in evaluation mode on the CPU.
        classes: Class names, in the order of the logits.
        history: One dictionary per epoch: losses and accuracies.
        parts: The optional results (`table`, `trace`, `targets`), or the error if one is damaged.
    """

    folder: Path
    run: Run
    network: Network
    classes: list[Any]
    history: list[dict[str, Any]]
    parts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> pa.Table | None:
        """Training dynamics, one row per training example; None if they were not recorded."""
        return self._part("table")

    @property
    def trace(self) -> dict[str, Tensor] | None:
        """confidence, right, norm and avh (epochs, N) of a run with `trace`; else None."""
        made: dict[str, Tensor] | None = self._part("trace")
        return made

    @property
    def targets(self) -> Tensor | None:
        """Running mean (N, K) of the predictions of each training example, with early learning or a recipe; else None."""
        made = self._part("targets")
        return None if made is None else made["targets"]

    def predict(
        self, data: Any, *, text: str | None = None, probs: bool = False, device: str = "auto", progress: Any = None
    ) -> pa.Table:
        """Predict the classes of new inputs, which need no labels.

        Args:
            data: A folder or zip of images, an image file or a list of them, a CSV, TSV, JSON Lines or Parquet file or a data
                frame with texts, columns or paths of images, an .npz or .npy file, an array, a list of texts, or Examples.
            text: Column of the text, in a file of rows or a data frame.
            probs: Also return the probability of each class, in the columns p_CLASS.
            device: "auto", "cpu", "cuda" or "cuda:1".
            progress: Called with the number of embedded inputs and of all inputs, if the run was trained on features.

        Returns:
            A table with a row per input and the columns id, path (for files) or text, predicted, confidence and, for images and
            texts, left_out: the reason why an input has no prediction, such as an unreadable file.
        """
        examples = new_inputs(self.run, self.folder, self.classes, data, text=text)
        return classify(self.network, self.run, self.folder, examples, probs=probs, device=device, progress=progress)

    def check(self) -> Trained:
        """Return this run, or raise DataError if any of its results is damaged."""
        for name in self.parts:
            self._part(name)
        load_test_traces(self.folder)
        return self

    def _part(self, name: str) -> Any:
        if isinstance(self.parts.get(name), DataError):
            raise self.parts[name]
        return self.parts.get(name)

    @property
    def metrics(self) -> dict[str, float]:
        """Losses and accuracies of the last epoch."""
        return {name: value for name, value in (self.history[-1] if self.history else {}).items() if name != "epoch"}

    def to_pandas(self) -> Any:
        """The training dynamics as a pandas data frame, one row per training example."""
        if self.table is None:
            raise DataError(f"{self.folder} holds no training dynamics: train with record=True")
        return self.table.to_pandas()

    def __repr__(self) -> str:
        facts = "".join(f", {name}={value}" for name, value in self._facts().items())
        return f"Trained({str(self.folder)!r}{facts})"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in self._facts().items())
        return f"<table><caption>{escape(str(self.folder))}</caption>{rows}</table>"

    def _facts(self) -> dict[str, Any]:
        accuracies = {name: round(value, 4) for name, value in self.metrics.items() if name.endswith("accuracy")}
        specs = {name: as_spec(getattr(self.run, name))["name"] for name in ("model", "loss")}
        return {"data": self.run.data, **specs, "epochs": len(self.history), **accuracies}


def finish(job: Job, directory: RunDirectory) -> Trained:
    """Write weights and dynamics, then DONE; every process returns the same result."""
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
        for term in job.training.objective.regularizers:
            if isinstance(term, EarlyLearning):
                save_tree({"targets": term.targets}, directory.targets)
        if job.refinement is not None:
            save_tree({"targets": job.refinement.belief.mean(1)}, directory.targets)
        directory.finish(job.history)
    job.accelerator.wait_for_everyone()
    return load_run(directory.path)


def with_origin(table: pa.Table, examples: Examples) -> pa.Table:
    """The table with the ids and paths of the examples, if they have any."""
    extra: dict[str, Any] = {} if examples.keys is None else {"id": list(examples.keys)}
    return add_columns(table, extra | ({} if examples.paths is None else {"path": list(examples.paths)}))


def load_run(folder: str | Path) -> Trained:
    """Load a finished run from its folder; no code in it is executed.

    Args:
        folder: The run's folder, as `mohs.train(...).folder`.

    Raises:
        DataError: The folder does not hold a run, or the run is not finished.
    """
    directory = RunDirectory(Path(folder))
    if not directory.done:
        begun = (directory.path / "run.json").exists()
        if begun:
            raise DataError(f"{folder} is not finished: run the same command again to resume")
        held = held_in(folder)
        raise DataError(f"{folder} does not hold a run{f': {held}' if held else ''}; give the folder of a run of mohs train")
    about = directory.about
    try:
        run, classes = run_from(about["run"], where=str(folder)), list(about["classes"])
        model = {**model_spec(run.model), **({"pretrained": False} if "pretrained" in run.model else {})}
        network = build_network(run, shape=tuple(about["shape"]), num_classes=len(classes), model=model)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        cause = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise DataError(
            f"{directory.path / 'run.json'} describes no run that this version of mohs can load ({cause}): {directory.repair}"
        ) from error
    with reading(directory.model, lost="the weights are lost", repair=directory.repair):
        network.load_state_dict(load_file(directory.model))
    parts = {
        "table": directory.part("dynamics.parquet", read_table, lost="the training dynamics are lost"),
        "trace": directory.part("trace.safetensors", load_tree, lost="the trace of the training examples is lost"),
        "targets": directory.part("targets.safetensors", load_tree, lost="the mean predictions of the examples are lost"),
    }
    return Trained(directory.path, run, network.eval(), classes, directory.metrics(), parts)
