"""Judge labels by the user's own out-of-sample predictions; no model is fitted.

Examples may have one label, several classes, or a label per token or pixel; the table shows each by its worst label.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mohs.audit.judge_features import judge_examples, judged
from mohs.audit.judge_several import result_of_sets
from mohs.audit.options import Array, AuditOptions
from mohs.audit.result import AuditResult
from mohs.data.examples import Data
from mohs.data.predictions import Predictions
from mohs.hardness.judgment import judge_labels
from mohs.hardness.noise_rate import estimate_from
from mohs.hardness.parts import by_example
from mohs.hardness.score import score_logits
from mohs.hardness.verdict import verdict
from mohs.margin import NO_LABEL
from mohs.train.trained import with_origin

LEAST = 1e-7
FACTS = {"features": "its predictions in the file", "model": "another model", "out of sample": "if these predictions are"}


def judge_predictions(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Judge the labels of `Predictions`."""
    train = data.train
    assert isinstance(train.inputs, Predictions)
    scores, labels = train.inputs.scores, train.inputs.labels
    options.step("judge", "by the given predictions")
    if train.separator is not None:
        return result_of_sets(train, scores[None], range(labels.shape[1]), options, FACTS)
    if labels.ndim == 1:
        judgment = judge_examples(scores, train, options)
        table = with_origin(score_logits(_logs(scores), labels, classes=train.classes), train)
        options.step("scores", "margins")
        return judged(data, table, judgment, options, FACTS)
    judgment = judge_labels(scores, labels, precision=options.precision)
    options.step("scores", "margins")
    parts = score_logits(_logs(scores), labels, classes=train.classes)
    options.step("verdict", f"flagging at an expected precision of {options.precision:.0%}")
    worst = by_example(verdict(parts, judgment=judgment, precision=options.precision))
    given = labels[labels != NO_LABEL]
    return AuditResult.of(
        train,
        table=with_origin(worst, train),
        estimate=estimate_from(judgment, given, train.classes, seed=options.seed),
        facts={**FACTS, "labels": len(given), "expected precision": options.precision, "trust": round(judgment.trust, 3)},
    )


def _logs(scores: Array) -> Array:
    """Logits unchanged; the logarithms of probabilities."""
    probabilities = float(scores.min()) >= 0 and float(scores.max()) <= 1
    return np.log(scores.clip(LEAST)) if probabilities else scores
