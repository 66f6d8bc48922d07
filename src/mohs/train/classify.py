"""Classes of new inputs by a finished run: the inputs are read, and embedded if the run trained on features, as its own were."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.device import choose_device
from mohs._core.errors import DataError
from mohs.data.corrections import read_label_file
from mohs.data.domains import UNKNOWN, shaped, unlabeled
from mohs.data.examples import Examples
from mohs.data.images import MEMORY_LIMIT
from mohs.data.open_single import as_arrow
from mohs.data.readers.rows import rows_like
from mohs.data.row_inputs import TableRows, Texts
from mohs.data.unlabeled import columns_of, open_unlabeled
from mohs.evaluate.outputs import predict
from mohs.models.network import Network
from mohs.train.directory import RunDirectory
from mohs.train.run import Run
from mohs.train.run_features import Progress, features_for, fitted_to

WRITTEN = ("id", "predicted", "confidence")  # columns of every table of predictions


def classify(
    network: Network,
    run: Run,
    folder: Path,
    examples: Examples,
    *,
    probs: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
) -> pa.Table:
    """The predicted class of each input, with its probability, by the network of the run in this folder."""
    found = features_for(run, examples, folder, device=device, progress=progress)
    logits = predict(network.to(choose_device(device)), found).logits
    network.to("cpu")
    return predictions_table(logits.softmax(1), examples, probs=probs)


def new_inputs(run: Run, folder: Path, classes: Sequence[Any], data: Any, *, text: str | None = None) -> Examples:
    """New inputs as examples without labels, of the kind and shape that the run in this folder was trained on."""
    about = RunDirectory(folder).about
    given = about.get("inputs", {"kind": "images" if len(about["shape"]) == 3 else "features", "shape": about["shape"]})
    like = _like(given, folder, list(classes))
    if isinstance(data, Examples):
        found = data
    elif isinstance(data, str | os.PathLike):
        limit = MEMORY_LIMIT if given.get("in memory", True) else 0
        column = run.open.get("text") if text is None else text
        found = open_unlabeled(Path(data), like, text=column, memory_limit=limit).train
    elif isinstance(data, list | tuple) and data and all(isinstance(one, str) for one in data):
        found = Examples(Texts(data), torch.full((len(data),), UNKNOWN), like.classes)
    elif (rows := as_arrow(data)) is not None and columns_of(like):
        found = rows_like(rows, columns_of(like), features=like.kind == "features", name="data", source="data")
    else:
        found = unlabeled(data, like.classes, name="data")
    if not len(found):
        raise DataError(f"{found.name}: no inputs")
    if found.kind != like.kind:
        raise DataError(f"{found.name}: {found.kind}, but {folder} was trained on {like.kind}")
    found = replace(found, classes=like.classes, labels=torch.full((len(found),), UNKNOWN))
    return shaped(found, like.shape) if found.in_memory else found


def check_predictions_path(path: Path, examples: Examples) -> None:
    """Raise, before any work, if there is a file other than predictions of the same inputs, which are replaced."""
    if not path.exists():
        return
    ids = [str(key) for key in (range(len(examples)) if examples.keys is None else examples.keys)]
    try:
        found = read_label_file(path, pa.schema([("id", pa.string())]))
        former = set(WRITTEN) <= set(found.column_names) and found.column("id").cast(pa.string()).to_pylist() == ids
    except (OSError, pa.ArrowException):
        former = False
    if not former:
        raise DataError(f"{path} exists and does not hold predictions of these inputs: give another file with out (--out)")


def _like(given: dict[str, Any], folder: Path, classes: list[Any]) -> Examples:
    """Examples of the kind and shape that the run in this folder was trained on: none, or rows of its table."""
    inputs: Any = Texts([]) if given["kind"] == "text" else None
    if given["kind"] == "table":
        inputs = TableRows(fitted_to(folder))
    inputs = torch.empty(0, *given["shape"]) if inputs is None else inputs
    unknown = torch.full((len(inputs),), UNKNOWN)
    return Examples(inputs, unknown, classes, name=str(folder), columns=given.get("columns", ()))


def predictions_table(probs_of: Tensor, examples: Examples, *, probs: bool = False) -> pa.Table:
    """Probabilities (N, K) -> a table with id, path (of files), predicted and confidence; probs: also one column per class."""
    confidence, places = probs_of.max(1)
    columns: dict[str, Any] = {"id": list(range(len(examples)) if examples.keys is None else examples.keys)}
    if examples.paths is not None:
        columns["path"] = list(examples.paths)
    columns |= {"predicted": [examples.classes[place] for place in places.tolist()], "confidence": confidence.numpy()}
    if probs:
        columns |= {f"p_{name}": probs_of[:, place].numpy() for place, name in enumerate(examples.classes)}
    return pa.table(columns)
