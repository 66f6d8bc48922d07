"""Features (embeddings): heads alone, in folds, so that every example is judged by a head that never saw its label.

A first pass with GCE gives the noise estimate; where that calls for another loss, a second pass uses it. Each goes on from
its last epoch when it is interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mohs.data.examples import Data, Examples
from mohs.examine.examined import Examined, Wishes
from mohs.hardness.neighbours import neighbour_agreement
from mohs.hardness.noise_rate import estimate_noise, suggest_emphasis
from mohs.hardness.out_of_sample import judged
from mohs.hardness.table import add_columns
from mohs.naming import as_spec
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.folds import FoldOutputs, out_of_fold
from mohs.train.trained import with_origin

FIRST_LOSS = "gce:q=0.7"
EPOCHS = 20


def examine_features(data: Data, wishes: Wishes, folder: Path) -> Examined:
    """Passes, scores and verdict."""
    began, train, epochs = time.perf_counter(), data.train, wishes.epochs or EPOCHS
    wishes.tell(f"first look: heads in {wishes.folds} folds, {epochs} epochs with {FIRST_LOSS}")
    made = passed(train, FIRST_LOSS, wishes, epochs, folder / "first")
    probs = torch.softmax(made.logits.double() / made.noise.temperature, 1).numpy()
    estimate = estimate_noise(train.labels.numpy(), probs, classes=list(range(len(train.classes))))
    wishes.tell(estimate.summary)
    suggestion = suggest_emphasis(estimate)
    chosen = suggestion.spec if wishes.loss == "auto" else wishes.loss
    reason = suggestion.reason if wishes.loss == "auto" else "You asked for this loss."
    wishes.tell(f"loss: {chosen}. {reason}")
    if as_spec(chosen) != as_spec(FIRST_LOSS):
        made = passed(train, chosen, wishes, epochs, folder / "second")
        probs = torch.softmax(made.logits.double() / made.noise.temperature, 1).numpy()
    wishes.tell("scores and neighbours")
    near = neighbour_agreement(torch.as_tensor(train.inputs).float(), train.labels)
    table = with_origin(add_columns(made.table, {"neighbours": near}), train)
    return Examined(
        table=judged(table, made.right),
        estimate=estimate,
        chosen=chosen,
        reason=reason,
        held_out=(probs, np.asarray(train.labels)),
        facts={
            "model": f"linear heads on kernel features, {wishes.folds} folds",
            "epochs": epochs,
            "seconds": round(time.perf_counter() - began, 1),
            "seed": wishes.seed,
            "out of sample": True,
        },
    )


def passed(examples: Examples, loss: str, wishes: Wishes, epochs: int, folder: Path) -> FoldOutputs:
    """One pass, from its last epoch if it was begun before."""
    file = folder / "checkpoint.safetensors"
    state: Any = load_tree(file) if file.exists() else None
    return out_of_fold(
        torch.as_tensor(examples.inputs),
        examples.labels,
        loss=as_spec(loss),
        folds=wishes.folds,
        seed=wishes.seed,
        epochs=epochs,
        classes=examples.classes,
        progress=_progress(wishes),
        on_epoch=lambda state: save_tree(state, file),
        state=state,
    )


def _progress(wishes: Wishes) -> Callable[[int, int], None]:
    return lambda done, of: wishes.watch({"epoch": done - 1, "epochs": of, "step": 1, "steps": 1, "so_far": dict})
