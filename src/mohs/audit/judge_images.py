"""Judge images by a network trained on them from scratch.

One training with cross-entropy, early-learning regularization (`losses.early_learning`) and averaged weights, or with a recipe
(`train.robust`; the default for 20,000 images and more on a GPU): such a network hardly memorizes wrong labels, so its
predictions on its own training examples reveal them. Two models are stacked by the noise model: the running mean of each
example's predictions over training, and the final averaged network on the image and its mirror. The scores are in sample, and the
network doubts wrong labels only a little: heads on its features, fitted to labels and to predictions (`train.fold_heads`),
estimate how much of that doubt is noise.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mohs._core.device import choose_device
from mohs._core.specs import as_spec
from mohs.audit.evidence import evidence_table
from mohs.audit.judge_features import judge_examples
from mohs.audit.options import Array, AuditOptions
from mohs.audit.other_issues import other_issues
from mohs.audit.result import AuditResult
from mohs.audit.score_network import score_network, with_dynamics
from mohs.audit.trajectory import course_by_hardness, settled_variability
from mohs.data.examples import Data
from mohs.evaluate.outputs import predict
from mohs.hardness.noise_rate import estimate_from
from mohs.hardness.verdict import verdict
from mohs.train.ema import average_decay
from mohs.train.fold_heads import fold_scores
from mohs.train.loop import train
from mohs.train.run import Run
from mohs.train.trained import Trained

AUTO_LOSS, EARLY_LEARNING = "cross_entropy", {"name": "early_learning", "weight": 3.0}
WORK, FEWEST, MOST = 600_000, 10, 30  # training images in total on a CPU, and the bounds on epochs
LARGE, LARGE_BATCH, LARGE_RATE = 20_000, 512, "sgd:lr=0.2"  # on a GPU, with at least this many images
LEAST_PROBABILITY = 1e-6


def judge_images(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Train, score and judge."""
    run = planned_run(data, options)
    extra = f", {as_spec(run.recipe)['name']}" if run.recipe else " and early-learning regularization" if run.regularizers else ""
    options.step("judge", f"{run.epochs} epochs of {as_spec(run.model)['name']} with {as_spec(run.loss)['name']}{extra}")
    unvoted = replace(data, train=replace(data.train, votes=None))  # the network must not see the votes
    trained = train(run, unvoted, out=folder / "run", device=options.device, watch=options.watch)
    options.step("scores", "margins, angles and neighbors")
    network = trained.network.to(choose_device(options.device))
    table, logits, features, near = score_network(network, data.train, mirror=trained.run.mirrors)
    table = with_dynamics(table, trained)
    options.step("verdict", f"flagging at an expected precision of {options.precision:.0%}")
    labels = data.train.labels.numpy()
    heads = fold_scores(
        features, data.train.labels, num_classes=len(data.train.classes), folds=options.folds, seed=options.seed,
        device=choose_device(options.device),
    )  # fmt: skip
    judgment = judge_examples(beliefs(trained, logits), data.train, options, ambiguity=heads.ambiguity)
    variability = settled_variability(trained.trace) if trained.trace else None
    table = verdict(table, judgment=judgment, precision=options.precision, variability=variability)
    return AuditResult.of(
        data.train,
        table=table,
        estimate=estimate_from(judgment, labels, data.train.classes, seed=options.seed),
        chosen=str(as_spec(run.loss)["name"]),
        reason="It hardly memorizes wrong labels." if options.loss == "auto" else "You selected this loss.",
        history=trained.history,
        dynamics=course_by_hardness(trained.trace, table) if trained.trace else None,
        held_out=unseen(trained, data, options.device),
        evidence=evidence_table(judgment.probs, data.train.classes, near),
        annotators=judgment.annotators,
        issues=other_issues(data, options, features=features, near=near, probs=judgment.probs),
        facts={**facts(trained, options), **judgment.facts},
    )


def planned_run(data: Data, options: AuditOptions) -> Run:
    """The training of the audit."""
    number, gpu = len(data.train), choose_device(options.device).type == "cuda"
    large, auto = gpu and number >= LARGE, options.loss == "auto"
    recipe = ("robust" if large and auto else None) if options.recipe == "auto" else options.recipe
    recipe = None if recipe == "none" else recipe
    epochs = options.epochs or default_epochs(number, gpu) * (1 if recipe is None else 2)
    batch = options.batch or (LARGE_BATCH if large else default_batch(number))
    return Run(
        data=data.name,
        model=options.model,
        loss=AUTO_LOSS if auto else options.loss,
        regularizers=[EARLY_LEARNING] if auto and recipe is None else [],
        recipe=recipe,
        optimizer=LARGE_RATE if large and options.batch is None else "sgd",
        epochs=epochs,
        batch=batch,
        ema=average_decay(epochs * max(1, number // batch)),
        trace=True,
        validation=0.0,
        seed=options.seed,
    )


def beliefs(trained: Trained, logits: Array) -> Array:
    """Scores (M, N, K) of each example: the running mean of the predictions over training, and the final network."""
    final = torch.log_softmax(torch.from_numpy(logits), 1).numpy()
    if trained.targets is None:
        return final[None]
    mean = trained.targets.numpy()
    mean = np.log((mean / mean.sum(1, keepdims=True).clip(LEAST_PROBABILITY)).clip(LEAST_PROBABILITY))
    return np.stack([mean, final])


def default_epochs(examples: int, gpu: bool) -> int:
    """Number of training epochs for this many examples."""
    return MOST if gpu else int(min(MOST, max(FEWEST, WORK // max(examples, 1))))


def default_batch(examples: int, most: int = 128) -> int:
    """Batch size: `most`, less if an epoch would have fewer than 14 steps."""
    return max(8, min(most, examples // 14))


def unseen(trained: Trained, data: Data, device: str) -> tuple[Array, Array] | None:
    """Probabilities (M, K) and labels (M,) of the test or validation set, if there is one."""
    examples = data.test or data.val
    if examples is None or not len(examples):
        return None
    logits = predict(trained.network.to(choose_device(device)), examples).logits
    return torch.softmax(logits.double().cpu(), 1).numpy(), np.asarray(examples.labels)


def facts(trained: Trained, options: AuditOptions) -> dict[str, Any]:
    """Facts for the report about how the judgment was made."""
    return {
        "model": as_spec(trained.run.model)["name"],
        "parameters": sum(p.numel() for p in trained.network.parameters()),
        "epochs": trained.run.epochs,
        "seconds of training": round(sum(line["seconds"] for line in trained.history), 1),
        "seed": trained.run.seed,
        "expected precision": options.precision,
    }
