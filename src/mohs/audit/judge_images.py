"""Images: a short first training to see how noisy the labels are, then one with the loss they call for, recorded.

The first holds a tenth back, trains with GCE, which wrong labels hardly mislead, and gives the noise estimate by its
dynamics; what it held back says how many labels may be wrong at most (`held_out`), and gives accuracy and calibration where
there is no test set. The second sees all examples. Each is a run of its own, which resumes. The verdict goes by the final
margin of a robust loss, and by AUM for cross-entropy, whose final margin has learned the wrong labels by heart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from mohs._core.specs import as_spec
from mohs.audit.caution import HELD_ACCURACY
from mohs.audit.choose_loss import FIRST_LOSS, MEMORIZING, choose_loss
from mohs.audit.held_out import HeldOut, capped, look_at_held_out
from mohs.audit.options import Array, AuditOptions
from mohs.audit.result import AuditResult
from mohs.audit.score_network import on_device, scored
from mohs.audit.trajectory import course_by_hardness, settled_variability
from mohs.data.examples import Data, Examples
from mohs.data.split import held_out as held_out_places
from mohs.hardness.noise_rate import estimate_noise
from mohs.hardness.table import column
from mohs.hardness.verdict import label_right, verdict
from mohs.train.loop import train
from mohs.train.predict import predict
from mohs.train.run import Run
from mohs.train.trained import Trained

FIRST_SHARE = 0.4  # of the epochs, for the first look
HELD_OUT = 0.1  # of the examples, in the first look
WORK, FEWEST, MOST = 600_000, 10, 30  # examples looked at in all on a CPU, and the bounds of epochs


def judge_images(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Both trainings, the scores and the verdict."""
    epochs = options.epochs or default_epochs(len(data.train), torch.cuda.is_available() and options.device != "cpu")
    batch = options.batch or default_batch(len(data.train))
    base: dict[str, Any] = {"data": data.name, "model": options.model, "batch": batch, "seed": options.seed}
    first = Run(
        **base, loss=FIRST_LOSS, epochs=max(2, round(FIRST_SHARE * epochs)), validation=held_share(data.train, options.seed)
    )
    options.step("first look", f"{first.epochs} epochs with {FIRST_LOSS}")
    looked = train(first, Data(data.train), out=folder / "first", device=options.device, watch=options.watch)
    estimate = estimate_noise(table=looked.table)
    options.tell(estimate.summary)
    chosen, reason = choose_loss(estimate, options)
    options.step("training", f"{epochs} epochs with {chosen}, every example recorded")
    second = Run(**base, loss=chosen, epochs=epochs, validation=0.0, trace=True)
    trained = train(second, data, out=folder / "run", device=options.device, watch=options.watch)
    options.step("scores", "angles, margins and neighbors")
    table = scored(trained, data.train, folder / "scores.parquet", device=options.device)
    by = "aum" if as_spec(chosen)["name"] in MEMORIZING else "margin"
    options.step("verdict", f"by the {by}")
    held = look_at_held_out(looked, data, device=options.device)
    most = 1.0 if held is None else held.most(found=estimate.kind != "none found")
    right = capped(label_right(column(table, by)), most)
    table = verdict(table, by=by, right=right, variability=settled_variability(trained.trace) if trained.trace else None)
    return AuditResult.of(
        data.train,
        table=table,
        estimate=estimate_noise(table=trained.table),
        chosen=chosen,
        reason=reason,
        history=trained.history,
        dynamics=course_by_hardness(trained.trace, table) if trained.trace else None,
        held_out=unseen(trained, data, held, options.device),
        facts=facts(trained, looked, held, most),
    )


def default_epochs(examples: int, gpu: bool) -> int:
    """How often to go through so many examples."""
    return MOST if gpu else int(min(MOST, max(FEWEST, WORK // max(examples, 1))))


def default_batch(examples: int) -> int:
    """Examples a step: 128, fewer where that would leave fewer than 14 steps an epoch."""
    return max(8, min(128, examples // 14))


def held_share(examples: Examples, seed: int) -> float:
    """What the first look holds back: a tenth, or nothing where there are too few to spare any."""
    return HELD_OUT if len(held_out_places(examples.labels, share=HELD_OUT, seed=seed)) else 0.0


def unseen(trained: Trained, data: Data, held: HeldOut | None, device: str) -> tuple[Array, Array] | None:
    """Probabilities (M, K) and labels (M,) of the test or validation set, else of what the first look held out."""
    examples = data.test or data.val
    if examples is None or not len(examples):
        return None if held is None else (held.probs, held.labels)
    logits, _ = predict(on_device(trained.network, device), examples)
    return torch.softmax(logits.double(), 1).numpy(), np.asarray(examples.labels)


def facts(trained: Trained, looked: Trained, held: HeldOut | None, most: float) -> dict[str, Any]:
    """What the report says of how it was made."""
    seconds = sum(line["seconds"] for run in (looked, trained) for line in run.history)
    made = {
        "model": as_spec(trained.run.model)["name"],
        "parameters": sum(p.numel() for p in trained.network.parameters()),
        "epochs": trained.run.epochs,
        "seconds of training": round(seconds, 1),
        "seed": trained.run.seed,
    }
    if held is None:
        return made
    return made | {
        "held out in the first look": len(held.labels),
        HELD_ACCURACY: round(held.accuracy, 4),
        "wrong labels at most, by those": round(most, 4),
    }
