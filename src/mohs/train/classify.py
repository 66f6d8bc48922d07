"""Classes of new inputs by a finished run: they are read, and embedded if the run trained on features, in the same way as its
own.
"""

from __future__ import annotations

import math
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
from mohs.data.domains import UNKNOWN, shaped
from mohs.data.examples import Examples, LeftOut
from mohs.data.images import MEMORY_LIMIT
from mohs.data.open_single import as_arrow
from mohs.data.row_inputs import TableRows, Texts
from mohs.data.unlabeled import open_unlabeled
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
    limit = MEMORY_LIMIT if given.get("in memory", True) else 0
    column = run.open.get("text") if text is None else text
    if isinstance(data, Examples):
        found = data
    else:
        found = open_unlabeled(data, like, text=column, group=run.open.get("group"), memory_limit=limit).train
    if not len(found):
        raise DataError(f"{found.name}: no inputs")
    if found.kind != like.kind:
        column = ": name the column of the text with text (--text)" if like.kind == "text" and as_arrow(data) is not None else ""
        raise DataError(f"{found.name}: {found.kind}, but {folder} was trained on {like.kind}{column}")
    found = replace(found, classes=like.classes, labels=torch.full((len(found),), UNKNOWN))
    return shaped(found, like.shape) if found.in_memory else found


def check_predictions_path(path: Path, examples: Examples) -> None:
    """Raise, before any work, if the file exists and holds anything but predictions of the same inputs, which are replaced."""
    if not path.exists():
        return
    nothing = predictions_table(torch.zeros(len(examples), len(examples.classes)), examples)
    ids = [str(key) for key in nothing.column("id").to_pylist()]
    try:
        found = read_label_file(path, pa.schema([("id", pa.string())]))
        former = set(WRITTEN) <= set(found.column_names) and found.column("id").cast(pa.string()).to_pylist() == ids
    except (OSError, pa.ArrowException):
        former = False
    if not former:
        raise DataError(f"{path} exists and does not hold predictions of these inputs: give another file with out (--out)")


def _like(given: dict[str, Any], folder: Path, classes: list[Any]) -> Examples:
    """Examples of the kind and shape that the run in this folder was trained on: zero rows, or rows of its table."""
    inputs: Any = Texts([]) if given["kind"] == "text" else None
    if given["kind"] == "table":
        inputs = TableRows(fitted_to(folder))
    inputs = torch.empty(0, *given["shape"]) if inputs is None else inputs
    unknown = torch.full((len(inputs),), UNKNOWN)
    return Examples(inputs, unknown, classes, name=str(folder), columns=given.get("columns", ()))


def predictions_table(probs_of: Tensor, examples: Examples, *, probs: bool = False) -> pa.Table:
    """Probabilities (N, K) -> a table with a row per input, in the order of the inputs.

    Its columns are id, path (of files) or text, predicted, confidence, with `probs` one per class, and for images and texts
    left_out: the reason why an input, such as an unreadable image, has no prediction.
    """
    confidence, best = probs_of.max(1)
    columns: dict[str, Any] = {"id": list(range(len(examples)) if examples.keys is None else examples.keys)}
    if examples.paths is not None:
        columns["path"] = list(examples.paths)
    if isinstance(examples.inputs, Texts):
        columns["text"] = examples.inputs.strings
    columns |= {"predicted": [examples.classes[place] for place in best.tolist()], "confidence": confidence.numpy()}
    if probs:
        columns |= {f"p_{name}": probs_of[:, place].numpy() for place, name in enumerate(examples.classes)}
    table = pa.table(columns)
    return with_left_out(table, examples.left_out) if examples.kind in ("images", "text") else table


def with_left_out(table: pa.Table, left_out: Sequence[LeftOut]) -> pa.Table:
    """The table with the column left_out and a row, in the order of the inputs, for each input that was skipped."""
    taken = {one.place for one in left_out if one.place is not None}
    free = (place for place in range(len(table) + len(taken)) if place not in taken)
    rows: list[tuple[float, int | None, LeftOut | None]] = [(next(free), row, None) for row in range(len(table))]
    rows += [(math.inf if one.place is None else one.place, None, one) for one in left_out]
    rows.sort(key=lambda row: row[0])
    spread = table.take(pa.array([row for _, row, _ in rows], pa.int64()))
    for at, name in enumerate(table.column_names):
        if name in ("id", "path"):
            cells = zip(spread.column(at).to_pylist(), rows, strict=True)
            values = [cell if one is None else _name(one, name) for cell, (_, _, one) in cells]
            mixed = len({type(value) for value in values}) > 1
            spread = spread.set_column(at, name, pa.array([str(value) for value in values] if mixed else values))
    return spread.append_column("left_out", pa.array([None if one is None else one.reason for _, _, one in rows], pa.string()))


def _name(one: LeftOut, column: str) -> Any:
    """The id or the path of an input that was skipped."""
    return one.path if column == "path" or one.key is None else one.key
