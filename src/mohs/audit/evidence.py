"""What `mohs review` shows for each example: its nearest neighbors, its most probable classes, and its place on the map.

    evidence.parquet     one row per example, in the order of the table
      nearest, cosine    rows of the nearest examples in feature space, the nearest first (−1: none), and their cosines
      classes, probs     the most probable classes, as places in `classes` of the schema's metadata, and their probabilities

The place on the map is that of the features in the plane of their first two principal components.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import Tensor

from mohs._core.files import written_whole
from mohs.audit.file_names import EVIDENCE_ROWS
from mohs.audit.options import Array
from mohs.hardness.table import add_columns

SHOWN = 5  # classes
SAMPLE, RANK, CHUNK = 20_000, 6, 65_536  # rows that the plane is fitted to, rank of the approximation, rows projected at a time
Near = tuple[Tensor, Tensor]  # rows and cosines (N, k)


def evidence_table(probs: Array, classes: Sequence[Any], near: Near | None = None) -> pa.Table:
    """The evidence from probabilities (N, K) of the classes and, if there are features, the nearest examples."""
    top = torch.from_numpy(probs).nan_to_num(nan=0.0).topk(min(SHOWN, probs.shape[1]), 1)
    columns = {"classes": _lists(top.indices.numpy().astype(np.int32)), "probs": _lists(top.values.float().numpy())}
    if near is not None:
        rows, cosines = near
        columns["nearest"] = _lists(rows.cpu().numpy().astype(np.int32))
        columns["cosine"] = _lists(cosines.float().cpu().numpy())
    return pa.table(columns, metadata={"classes": json.dumps(list(map(str, classes)))})


def write_evidence(evidence: pa.Table, path: Path) -> None:
    """Write the file, in row groups small enough to be read for a single example."""
    with written_whole(path, sync=False) as part:
        pyarrow.parquet.write_table(evidence, part, row_group_size=EVIDENCE_ROWS)


def on_map(table: pa.Table, features: Any) -> pa.Table:
    """The table with each example's place on the map."""
    place = principal_plane(torch.as_tensor(np.asarray(features)))
    return add_columns(table, {"map_x": place[:, 0], "map_y": place[:, 1]})


@torch.no_grad()
def principal_plane(features: Tensor) -> Array:
    """features (N, D) -> coordinates (N, 2) float32 along the first two principal components of a sample."""
    count = len(features)
    plane = fit_plane(features if count <= SAMPLE else features[torch.linspace(0, count - 1, SAMPLE).long()])
    made = torch.zeros(count, 2)
    for start in range(0, count, CHUNK):
        made[start : start + CHUNK] = plane_of(features[start : start + CHUNK], *plane)
    return made.numpy()


@torch.no_grad()
def fit_plane(sample: Tensor) -> tuple[Tensor, Tensor]:
    """sample (n, D) -> its center (D,) and its first two principal components (D, 2), zero where there are fewer."""
    sample = sample.float().nan_to_num(0.0, 0.0, 0.0)
    center, rank = sample.mean(0), min(RANK, *sample.shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the approximation starts from random vectors
        axes = torch.pca_lowrank(sample, q=rank, niter=4)[2][:, :2]
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # so that the same features give the same picture
    axes = axes * torch.where(signs == 0, 1.0, signs)
    return center, torch.nn.functional.pad(axes, (0, 2 - axes.shape[1]))


def plane_of(features: Tensor, center: Tensor, axes: Tensor) -> Tensor:
    """features (n, D) -> coordinates (n, 2) in the plane."""
    return (features.float().nan_to_num(0.0, 0.0, 0.0) - center) @ axes


def _lists(values: Array) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).ravel()), values.shape[1])
