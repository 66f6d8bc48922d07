"""The table of a self-training: what the last network says of each target example, and in which round it was first selected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from mohs.adapt.rounds import load_choice
from mohs.adapt.thresholds import Seen
from mohs.data.examples import Examples
from mohs.hardness.table import write_table


def write_target(target: Examples, seen: Seen, folder: Path, rounds: int) -> None:
    """Write FOLDER/target.parquet."""
    write_table(target_table(target, seen, first_selected(folder, len(target), rounds)), folder / "target.parquet")


def target_table(target: Examples, seen: Seen, first: torch.Tensor) -> pa.Table:
    """A row an example: id, path, label where it is known, predicted, p_predicted, avc, norm, first_selected (empty: never)."""
    top, predicted = seen.log_p.max(1)
    names = [*target.classes, None]  # −1, unknown, is the last
    columns: dict[str, Any] = {"id": list(range(len(target))) if target.keys is None else list(target.keys)}
    if target.paths is not None:
        columns["path"] = list(target.paths)
    columns["label"] = [names[k] for k in target.labels.tolist()]
    columns["predicted"] = [names[k] for k in predicted.tolist()]
    columns["p_predicted"] = top.exp().numpy()
    columns["avc"] = seen.avc.max(1).values.numpy()
    columns["norm"] = torch.linalg.vector_norm(seen.features, dim=1).numpy()
    columns["first_selected"] = pa.array([round_ or None for round_ in first.tolist()], pa.int64())
    return pa.table(columns)


def first_selected(folder: Path, number: int, rounds: int) -> torch.Tensor:
    """The first round (N,) that each example was selected in; 0: never."""
    found = torch.zeros(number, dtype=torch.long)
    for one in range(rounds, 0, -1):
        found[load_choice(folder / f"round-{one}" / "selected.safetensors")[0].places] = one
    return found
