"""Features (embeddings): heads alone, in folds, so that every example is judged by a head that never saw its label.

A first pass with GCE gives the noise estimate; where that calls for another loss, a second pass uses it. Each goes on from
its last epoch when it is interrupted. Neighbors are sought among all examples up to 50,000, beyond that among a sample
whose size falls with their number (10,000 for a million), and the facts say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.specs import as_spec
from mohs.audit.choose_loss import FIRST_LOSS, choose_loss, loss_spec
from mohs.audit.options import Array, AuditOptions
from mohs.audit.result import AuditResult
from mohs.data.examples import Data, Examples
from mohs.hardness.classes import decode
from mohs.hardness.neighbors import neighbor_agreement
from mohs.hardness.noise_rate import estimate_noise
from mohs.hardness.table import add_columns, column, make_table
from mohs.hardness.verdict import verdict
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.folds import FoldOutputs, out_of_fold
from mohs.train.trained import with_origin

EPOCHS, FEWER, MANY = 20, 12, 30_000  # fewer looks at many examples find the same
EXACT, FEWEST, COSINES = 50_000, 10_000, 2.5e9  # examples all of which are compared; references; comparisons beyond


def judge_features(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Passes, scores and verdict."""
    began, train, epochs = time.perf_counter(), data.train, options.epochs or default_epochs(len(data.train))
    folds = min(options.folds, len(train))
    options.step("first look", f"heads in {folds} folds, {epochs} epochs with {FIRST_LOSS}")
    made = passed(train, as_spec(FIRST_LOSS), options, epochs, folder / "first")
    estimate = estimate_noise(train.labels.numpy(), probabilities(made), classes=list(range(len(train.classes))))
    options.tell(estimate.summary)
    chosen, reason = choose_loss(estimate, options)
    spec = loss_spec(chosen, train)
    if spec == as_spec(FIRST_LOSS):
        options.step("training", "the first look was trained with this loss already")
    else:
        options.step("training", f"heads in {folds} folds, {epochs} epochs with {chosen}")
        made = passed(train, spec, options, epochs, folder / "second")
    among = references(len(train))
    options.step("scores", f"angles, margins and neighbors among {among:,} examples")
    table = with_neighbors(named(made.table, train.classes), train, among, folder / "neighbors.safetensors")
    options.step("verdict", "by the probability that the label is right, from heads that did not see it")
    return AuditResult.of(
        data.train,
        table=verdict(table, right=made.right),
        estimate=estimate,
        chosen=chosen,
        reason=reason,
        held_out=(probabilities(made), np.asarray(train.labels)),
        facts={
            "model": f"linear heads on kernel features, {folds} folds,",
            "epochs": epochs,
            "seconds": round(time.perf_counter() - began, 1),
            "seed": options.seed,
            "out of sample": "yes: no head saw the labels it judges",
            "neighbors": "exact" if among == len(train) else f"sought among {among:,} examples drawn at random",
            **({"classes of one example, not judged": ", ".join(str(train.classes[k]) for k in made.lone)} if made.lone else {}),
        },
    )


def default_epochs(examples: int) -> int:
    """How often to go through so many examples."""
    return FEWER if examples >= MANY else EPOCHS


def references(examples: int) -> int:
    """Among how many examples the neighbors of so many are sought."""
    return examples if examples <= EXACT else max(FEWEST, min(EXACT, int(COSINES / examples)))


def with_neighbors(table: pa.Table, examples: Examples, among: int, file: Path) -> pa.Table:
    """The table with names, files and neighbors; these are kept in the file, as finding them takes long."""
    if not file.exists():
        features = torch.as_tensor(examples.inputs).float()
        save_tree({"neighbors": neighbor_agreement(features, examples.labels, references=among)}, file)
    near: Tensor = load_tree(file)["neighbors"]
    return with_origin(add_columns(table, {"neighbors": near}), examples)


def named(table: pa.Table, classes: Sequence[Any]) -> pa.Table:
    """The table of labels that are places among the classes, with the classes' names in their stead."""
    columns = {name: table.column(name) for name in table.column_names}
    names = {name: decode(column(table, name), classes) for name in ("label", "predicted")}
    return make_table(columns | names, classes=classes)


def probabilities(made: FoldOutputs) -> Array:
    """Of each class, out of sample, at the temperature that fits the labels (N, K)."""
    p: Array = torch.softmax(made.logits.double() / made.noise.temperature, 1).numpy()
    return p


def passed(examples: Examples, loss: Mapping[str, Any], options: AuditOptions, epochs: int, folder: Path) -> FoldOutputs:
    """One pass, from its last epoch if it was begun before."""
    file = folder / "checkpoint.safetensors"
    state: Any = load_tree(file) if file.exists() else None
    return out_of_fold(
        torch.as_tensor(examples.inputs),
        examples.labels,
        loss=loss,
        folds=min(options.folds, len(examples)),
        seed=options.seed,
        epochs=epochs,
        progress=_progress(options),
        on_epoch=lambda state: save_tree(state, file),
        state=state,
    )


def _progress(options: AuditOptions) -> Callable[[int, int], None]:
    return lambda done, of: options.watch({"epoch": done - 1, "epochs": of, "step": 1, "steps": 1, "so_far": dict})
