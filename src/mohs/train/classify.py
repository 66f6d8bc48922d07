"""Classes of new inputs by a finished run: the inputs are read, and embedded if the run trained on features, as its own were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.device import choose_device
from mohs._core.errors import DataError
from mohs.data.domains import shaped, unlabeled
from mohs.data.examples import Examples
from mohs.data.images import MEMORY_LIMIT
from mohs.data.row_inputs import Texts
from mohs.data.unlabeled import open_unlabeled
from mohs.evaluate.outputs import predict
from mohs.train.directory import RunDirectory
from mohs.train.run_features import Progress, features_for

if TYPE_CHECKING:
    from mohs.train.trained import Trained


def classify(
    trained: Trained,
    data: Any,
    *,
    text: str | None = None,
    probs: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
) -> pa.Table:
    """The predicted class of each input, with its probability; arguments as for `Trained.predict`."""
    examples = opened_like(trained, data, text=text)
    found = features_for(trained.run, examples, trained.folder, device=device, progress=progress)
    where = choose_device(device)
    outputs = predict(trained.network.to(where), found)
    trained.network.to("cpu")
    return predictions_table(outputs.logits.softmax(1), examples, trained.classes, probs=probs)


def opened_like(trained: Trained, data: Any, *, text: str | None = None) -> Examples:
    """New inputs as examples without labels, of the kind and shape that the run was trained on."""
    about = RunDirectory(trained.folder).about
    given = about.get("inputs", {"kind": "images" if len(about["shape"]) == 3 else "features", "shape": about["shape"]})
    like = _like(trained, given)
    if isinstance(data, Examples):
        found = data
    elif isinstance(data, str | os.PathLike):
        limit = MEMORY_LIMIT if given.get("in memory", True) else 0
        column = trained.run.open.get("text") if text is None else text
        found = open_unlabeled(Path(data), like, text=column, memory_limit=limit).train
    elif isinstance(data, list | tuple) and data and all(isinstance(one, str) for one in data):
        found = Examples(Texts(data), torch.full((len(data),), -1), trained.classes)
    else:
        found = unlabeled(data, trained.classes, name="data")
    if not len(found):
        raise DataError(f"{found.name}: no inputs")
    if found.kind != like.kind:
        raise DataError(f"{found.name}: {found.kind}, but {trained.folder} was trained on {like.kind}")
    return found if like.kind == "text" or not found.in_memory else shaped(found, like.shape)


def _like(trained: Trained, given: dict[str, Any]) -> Examples:
    """No examples, of the kind and shape that the run was trained on."""
    inputs: Any = Texts([]) if given["kind"] == "text" else torch.empty(0, *given["shape"])
    return Examples(inputs, torch.empty(0, dtype=torch.int64), trained.classes, name=str(trained.folder))


def predictions_table(probs_of: Tensor, examples: Examples, classes: list[Any], *, probs: bool = False) -> pa.Table:
    """Probabilities (N, K) -> a table with id, path (of files), predicted and confidence; probs: also one column per class."""
    confidence, places = probs_of.max(1)
    columns: dict[str, Any] = {"id": list(range(len(examples)) if examples.keys is None else examples.keys)}
    if examples.paths is not None:
        columns["path"] = list(examples.paths)
    columns |= {"predicted": [classes[place] for place in places.tolist()], "confidence": confidence.numpy()}
    if probs:
        columns |= {f"p_{name}": probs_of[:, place].numpy() for place, name in enumerate(classes)}
    return pa.table(columns)
