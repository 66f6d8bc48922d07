"""All scores of a trained network on images: one table, cached in a file.

    logits = ½ (z(x) + z(mirror of x))         if training mirrored images; likewise for features

The mean over both views ranks wrong labels better than one view.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from mohs._core.device import choose_device
from mohs.audit.evidence import Near, on_map
from mohs.audit.options import Array
from mohs.data.examples import Examples
from mohs.evaluate.outputs import output_batches
from mohs.hardness.measure import finished, host, joined, measure
from mohs.hardness.neighbor_index import many_nearest
from mohs.hardness.neighbors import agreement
from mohs.hardness.table import add_columns, read_table, write_table
from mohs.models.network import Network, head_weight
from mohs.train.trained import Trained, with_origin


class Scored(NamedTuple):
    """The hardness table of N examples with their places on the map, their logits (N, K), features (N, D), and neighbors."""

    table: pa.Table
    logits: Array
    features: Array
    near: Near


def score_network(network: Network, examples: Examples, *, mirror: bool) -> Scored:
    """Score these examples, whose labels are rows of the head."""
    weight, parts, outputs = head_weight(network).detach(), [], []
    for rows, logits, features in output_batches(network, examples, mirror=mirror):
        found = measure(logits, examples.labels[rows].to(logits.device), features, weight)
        parts.append(host({**found, "features": features}))
        outputs.append(logits.cpu())
    columns = joined(parts)
    features = columns.pop("features")
    near = many_nearest(torch.as_tensor(features), device=weight.device)
    columns |= {"label": examples.labels.numpy(), "neighbors": agreement(near[0], examples.labels).numpy()}
    table = on_map(with_origin(finished(columns, examples.classes), examples), features)
    return Scored(table, np.asarray(torch.cat(outputs)), np.asarray(features), near)


def with_dynamics(table: pa.Table, trained: Trained) -> pa.Table:
    """Add the columns of the run's record that the table lacks."""
    if trained.table is None:
        raise ValueError(f"{trained.folder} holds no dynamics: train it with record=True")
    extra = [name for name in trained.table.column_names if name not in table.column_names]
    return add_columns(table, {name: trained.table.column(name) for name in extra})


def scored(trained: Trained, examples: Examples, file: Path, *, device: str = "auto") -> pa.Table:
    """All scores of the network on its training examples, with the recorded dynamics; read from the file if it exists."""
    if file.exists():
        return read_table(file)
    made = score_network(trained.network.to(choose_device(device)), examples, mirror=trained.run.mirrors)
    table = with_dynamics(made.table, trained)
    write_table(table, file)
    return table
