"""Images: a short first training to see how noisy the labels are, then one with the loss they call for, recorded.

The first holds a tenth back, trains with GCE, which wrong labels hardly mislead, and gives the noise estimate by its
dynamics, and accuracy and calibration by what it held back (a test set, where there is one, is used for these instead). The
second sees all examples. Each is a run of its own, which resumes. The verdict goes by the final margin of a robust loss,
and by AUM for cross-entropy, whose final margin has learnt the wrong labels by heart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from mohs.data.examples import Data, Examples
from mohs.examine.course import course_by_hardness
from mohs.examine.examined import Array, Examined, Wishes
from mohs.hardness.measure import finished, host, joined, measure
from mohs.hardness.noise_rate import estimate_noise, suggest_emphasis
from mohs.hardness.table import add_columns
from mohs.hardness.verdict import verdict
from mohs.models.network import Network, head_weight
from mohs.naming import as_spec
from mohs.train.loop import train
from mohs.train.predict import outputs, predict
from mohs.train.run import Run
from mohs.train.trained import Trained, with_origin

FIRST_LOSS = "gce:q=0.7"
FIRST_SHARE = 0.4  # of the epochs, for the first look
WORK, FEWEST, MOST = 600_000, 10, 30  # examples looked at in all on a CPU, and the bounds of epochs
MEMORISING = ("cross_entropy", "encouraging", "focal", "mse")


def examine_images(data: Data, wishes: Wishes, folder: Path) -> Examined:
    """Both trainings, the scores and the verdict."""
    epochs = wishes.epochs or default_epochs(len(data.train), torch.cuda.is_available() and wishes.device != "cpu")
    base: dict[str, Any] = {"data": data.name, "model": wishes.model, "batch": wishes.batch, "seed": wishes.seed}
    first = Run(**base, loss=FIRST_LOSS, epochs=max(2, round(FIRST_SHARE * epochs)), validation=0.0 if data.test else 0.1)
    wishes.tell(f"first look: {first.epochs} epochs with {FIRST_LOSS}")
    looked = train(first, data, out=folder / "first", device=wishes.device, watch=wishes.watch)
    estimate = estimate_noise(table=looked.table)
    wishes.tell(estimate.summary)
    suggestion = suggest_emphasis(estimate)
    chosen = suggestion.spec if wishes.loss == "auto" else wishes.loss
    reason = suggestion.reason if wishes.loss == "auto" else "You asked for this loss."
    wishes.tell(f"training: {epochs} epochs with {chosen}. {reason}")
    second = Run(**base, loss=chosen, epochs=epochs, validation=0.0, trace=True)
    trained = train(second, data, out=folder / "run", device=wishes.device, watch=wishes.watch)
    wishes.tell("scores and neighbours")
    table = verdict(scored(trained, data.train), by="aum" if as_spec(chosen)["name"] in MEMORISING else "margin")
    return Examined(
        table=table,
        estimate=estimate_noise(table=trained.table),
        chosen=chosen,
        reason=reason,
        history=trained.history,
        dynamics=course_by_hardness(trained.trace, table) if trained.trace else None,
        held_out=held_out(trained if data.test else looked, data, first),
        facts=facts(trained, looked),
    )


def default_epochs(examples: int, gpu: bool) -> int:
    """How often to go through so many examples."""
    return MOST if gpu else int(min(MOST, max(FEWEST, WORK // max(examples, 1))))


def scored(trained: Trained, examples: Examples) -> pa.Table:
    """All scores of the trained network on its training examples, with what was recorded on the way."""
    network = on_device(trained.network)
    weight, parts = head_weight(network), []
    for places, logits, features in outputs(network, examples):
        parts.append(
            host(measure(logits, examples.labels[places].to(logits.device), features, weight))
            | {"features": host({"f": features})["f"]}
        )
    columns = {**joined(parts), "label": examples.labels.numpy()}
    table = finished(columns, trained.classes)
    if trained.table is None:
        raise ValueError(f"{trained.folder} holds no dynamics: train it with record=True")
    recorded = trained.table.drop_columns([name for name in trained.table.column_names if name in table.column_names])
    return with_origin(add_columns(table, {name: recorded.column(name) for name in recorded.column_names}), examples)


def on_device(network: Network) -> Network:
    """The network where it runs fastest."""
    return network.to("cuda" if torch.cuda.is_available() else "cpu")


def held_out(trained: Trained, data: Data, first: Run) -> tuple[Array, Array] | None:
    """Probabilities (M, K) and labels (M,) of examples that the network was not trained on."""
    from mohs.train.job import prepared

    examples = data.test or prepared(first, data).val
    if examples is None or not len(examples):
        return None
    logits, _ = predict(on_device(trained.network), examples)
    return torch.softmax(logits.double(), 1).numpy(), np.asarray(examples.labels)


def facts(trained: Trained, looked: Trained) -> dict[str, Any]:
    """What the report says of how it was made."""
    seconds = sum(line["seconds"] for run in (looked, trained) for line in run.history)
    return {
        "model": as_spec(trained.run.model)["name"],
        "parameters": sum(p.numel() for p in trained.network.parameters()),
        "epochs": trained.run.epochs,
        "seconds of training": round(seconds, 1),
        "seed": trained.run.seed,
        "held out in the first look": looked.history[-1].get("val_accuracy", looked.history[-1].get("test_accuracy")),
    }
