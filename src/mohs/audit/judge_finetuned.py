"""Judge images by a fine-tuned pretrained backbone, together with the heads on its frozen features.

The images fall into two halves, class by class. A backbone is fine-tuned on each half, with cross-entropy, early-learning
regularization (`losses.early_learning`) and averaged weights, and scores the other half, each image and its mirror. So no network
sees the labels it judges, and the noise model weights its scores together with those of the heads. The heads that are refitted to
the predicted classes have the same part in the judgment as without fine-tuning (`hardness.judgment`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mohs._core.device import choose_device
from mohs._core.executor import Local
from mohs._core.specs import as_spec
from mohs._core.watch import UNWATCHED, Watch
from mohs.audit.evidence import on_map
from mohs.audit.judge_features import (
    features_of,
    head_scores,
    judge_examples,
    judged,
    kept_scores,
    neighbor_column,
    neighbors_of,
    scored_table,
)
from mohs.audit.judge_images import AUTO_LOSS, EARLY_LEARNING, default_batch
from mohs.audit.options import Array, AuditOptions
from mohs.audit.result import AuditResult
from mohs.data.examples import Data, Examples
from mohs.data.groups import alone
from mohs.evaluate.outputs import output_batches
from mohs.train.ema import average_decay
from mohs.train.fold_heads import assign_folds
from mohs.train.loop import train
from mohs.train.run import Run

BACKBONE, EPOCHS, BATCH, RATE = "efficientnet_lite", 6, 256, 2e-3
HALVES = 2


def judge_finetuned(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Fine-tune, score and judge."""
    began, examples = time.perf_counter(), data.train
    features, about = features_of(data, options)
    model = BACKBONE if as_spec(options.model)["name"] == "auto" else options.model
    options.step("judge", f"heads on {about} in {options.folds} folds, and {as_spec(model)['name']} fine-tuned on each half")
    heads = kept_scores(folder / "fold-scores.safetensors", examples, lambda: head_scores(features, examples, options))
    scores = np.concatenate([heads.scores, tuned_scores(data, options, folder)[None]])
    judgment = judge_examples(scores, examples, options, ambiguity=heads.ambiguity, refit=heads.refit)
    options.step("scores", "margins, angles and neighbors")
    first = next(iter(features.values()))
    near = neighbors_of(first, options)
    table = on_map(neighbor_column(scored_table(judgment, examples, first), examples, near), first)
    facts = {
        "features": about,
        "model": f"{len(heads.names)} heads in {options.folds} folds and {as_spec(model)['name']}, fine-tuned twice",
        "seconds": round(time.perf_counter() - began, 1),
        "out of sample": "yes: no model saw the labels it judges",
    }
    return judged(data, table, judgment, options, facts, first, near)


def tuned_scores(data: Data, options: AuditOptions, folder: Path) -> Array:
    """Log-probabilities (N, K) of each image by the network that was fine-tuned on the other half."""
    examples = replace(data.train, votes=None)  # the votes must be hidden from the network
    half = assign_folds(examples.labels, folds=HALVES, seed=options.seed, groups=examples.groups)
    runs = [tuned_run(data, int((half != f).sum()), options) for f in range(HALVES)]
    executor, scores = options.executor, torch.empty(len(examples), len(examples.classes))
    watch = options.watch if isinstance(executor, Local) else UNWATCHED
    work = _Tuning(examples, half, runs, folder, options.device, watch)
    for f, own in enumerate(executor.map(work, range(HALVES), gpu=executor.has_gpu(options.device))):
        scores[half == f] = own
    scores[alone(examples.labels, half)] = torch.nan  # the network trained on the other half does not know the class
    return scores.numpy()


@dataclass(frozen=True, eq=False)
class _Tuning:
    """Fine-tunes a network on the examples outside of a half and scores the half (n, K)."""

    examples: Examples
    half: Tensor
    runs: Sequence[Run]
    folder: Path
    device: str
    watch: Watch

    def __call__(self, f: int) -> Tensor:
        seen, held = (self.examples.take(rows.nonzero().squeeze(1)) for rows in (self.half != f, self.half == f))
        trained = train(self.runs[f], Data(seen), out=self.folder / f"half-{f}", device=self.device, watch=self.watch)
        network = trained.network.to(choose_device(self.device))
        scores = torch.empty(len(held), len(held.classes))
        for rows, logits, _ in output_batches(network, held, mirror=trained.run.mirrors):
            scores[rows] = torch.log_softmax(logits, 1).float().cpu()
        return scores


def tuned_run(data: Data, examples: int, options: AuditOptions) -> Run:
    """The fine-tuning of one half."""
    epochs, batch = options.epochs or EPOCHS, options.batch or default_batch(examples, BATCH)
    return Run(
        data=data.name,
        model=BACKBONE if as_spec(options.model)["name"] == "auto" else options.model,
        loss=AUTO_LOSS if options.loss == "auto" else options.loss,
        regularizers=[EARLY_LEARNING] if options.loss == "auto" else [],
        optimizer=f"adamw:lr={RATE},weight_decay=0.02",
        schedule="cosine:warmup=0.2",
        epochs=epochs,
        batch=batch,
        ema=average_decay(epochs * max(1, examples // batch)),
        record=False,
        validation=0.0,
        seed=options.seed,
    )
