"""Judge examples that have several labels: every class is a binary problem, all under one noise model.

features     as given, or those of images, texts and tables
scores       for each class, heads in folds that separate the examples with it from those without (`train.fold_heads`)
judgment     of all N · K labels together (`hardness.judgment`); the table shows each example by its worst label

A suggested set is the given one with the flagged classes added or removed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from mohs._core.device import choose_device
from mohs._core.errors import DataError
from mohs.audit.evidence import Near, evidence_table, on_map
from mohs.audit.judge_features import features_of, kept_scores, neighbors_of
from mohs.audit.judge_table import columns_of
from mohs.audit.options import Array, AuditOptions
from mohs.audit.result import AuditResult
from mohs.data.examples import Data, Examples
from mohs.data.groups import count_groups
from mohs.data.labels import as_set, set_members
from mohs.hardness.judgment import judge_labels
from mohs.hardness.noise_rate import estimate_from
from mohs.hardness.parts import BINARY, by_example
from mohs.hardness.score import score_logits
from mohs.hardness.table import make_table
from mohs.hardness.verdict import verdict
from mohs.train.fold_heads import fold_scores
from mohs.train.fold_judge import LEAST_FOLDS
from mohs.train.table_views import smooth_view
from mohs.train.trained import with_origin

FEWEST = 10  # number of examples with the class, and without it, required to judge it
LEAST = 1e-12


def judge_several(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Judge features, images, texts or tables whose examples have several labels."""
    began, train = time.perf_counter(), data.train
    assert train.separator is not None
    names, members = set_members(train.classes, train.separator)
    given = members[train.labels]  # (N, K)
    features, about = features_to_judge(data, options)
    counts = given.sum(0)
    usable = (counts >= FEWEST) & (len(given) - counts >= FEWEST)
    if train.groups is not None:
        usable &= torch.tensor([in_groups(own, train.groups) for own in given.T.bool()])
    judged = usable.nonzero().flatten().tolist()
    if not judged:
        each = "" if train.groups is None else f", both in at least {LEAST_FOLDS} groups"
        raise DataError(f"{train.name}: no label is on {FEWEST} examples and absent from {FEWEST} others{each}: add examples")
    options.step("judge", f"heads on {about} in {options.folds} folds for each of {len(judged)} labels")
    own = given[:, judged]
    kept = kept_scores(folder / "fold-scores.safetensors", train, lambda: (_scores(features, own, train.groups, options), None))
    first = next(iter(features.values()))
    facts = {
        "features": about,
        "model": f"{len(kept.names)} heads in {options.folds} folds for each label",
        **({"labels not judged": len(names) - len(judged)} if len(judged) < len(names) else {}),
        "seconds": round(time.perf_counter() - began, 1),
        "out of sample": "yes: no head saw the labels it judges",
    }
    result = result_of_sets(train, kept.scores, judged, options, facts, neighbors_of(first, options))
    return replace(result, table=on_map(result.table, first))


def in_groups(own: torch.Tensor, groups: torch.Tensor) -> bool:
    """Whether examples with and without a label (N,) are in enough groups that every fold's heads see both."""
    return min(count_groups(groups[part]) for part in (own, ~own)) >= LEAST_FOLDS


def result_of_sets(
    train: Examples,
    scores: Array,
    judged: Sequence[int],
    options: AuditOptions,
    facts: Mapping[str, Any],
    near: Near | None = None,
) -> AuditResult:
    """The result for examples whose classes are sets of labels.

    Args:
        train: N examples.
        scores: Logits or probabilities (M, N, J) of the labels that are judged.
        judged: Their places (J,) among all labels, sorted by name.
        options: Options of the audit.
        facts: What the report says of how it was made.
        near: The nearest examples, if there are features.
    """
    assert train.separator is not None
    names, members = set_members(train.classes, train.separator)
    given = members[train.labels].numpy()  # (N, K)
    own = given[:, judged]
    judgment = judge_labels(scores, own, precision=options.precision)
    options.step("scores", "margins")
    odds = np.log(judgment.probs.clip(LEAST))
    parts = score_logits((odds[:, 1] - odds[:, 0]).reshape(own.shape), own, classes=[names[k] for k in judged])
    options.step("verdict", f"flagging at an expected precision of {options.precision:.0%}")
    parts = verdict(parts, judgment=judgment, precision=options.precision)
    flips, probs = np.zeros(given.shape, bool), given.astype(float)  # labels that are not judged stay as given
    flips[:, judged] = judgment.flagged.reshape(own.shape)
    probs[:, judged] = judgment.probs[:, 1].reshape(own.shape)

    def sets(which: Array) -> list[str]:
        return [as_set([names[k] for k in np.flatnonzero(row)], train.separator or "", train.name) for row in which]

    found = {"label": [train.classes[i] for i in train.labels.tolist()], "predicted": sets(probs > 0.5)}
    found |= {"suggested_label": sets((given == 1) ^ flips)}
    classes = list(dict.fromkeys([*train.classes, *found["suggested_label"], *found["predicted"]]))
    result = AuditResult.of(
        train,
        table=with_origin(_with_sets(by_example(parts), found, classes), train),
        estimate=estimate_from(judgment, own.ravel(), BINARY, seed=options.seed),
        evidence=evidence_table(probs, names, near),
        facts={
            **facts,
            "labels": len(names),
            "seed": options.seed,
            "expected precision": options.precision,
            "trust": round(judgment.trust, 3),
        },
    )
    return replace(result, classes=classes)


def features_to_judge(data: Data, options: AuditOptions) -> tuple[Mapping[str, Any], str]:
    """The sets of features to judge by, by name, and what they are."""
    if data.train.kind != "table":
        return features_of(data, options)
    view = smooth_view(columns_of(data.train, options))
    return {"columns": view.astype(np.float32)}, f"{data.train.shape[0]} columns"


def _scores(
    features: Mapping[str, Any], given: torch.Tensor, groups: torch.Tensor | None, options: AuditOptions
) -> dict[str, Array]:
    """Log-odds (N, K) of each class by each head, by its name."""
    made: dict[str, list[Array]] = {}
    tell, number = options.progress("judging"), given.shape[1]
    gpu = options.executor.has_gpu(options.device)
    work = _LabelHeads(features, given, groups, options.folds, options.seed, options.device)
    for k, odds in enumerate(options.executor.map(work, range(number), gpu=gpu)):
        for name, own in odds.items():
            made.setdefault(name, []).append(own)
        tell(k + 1, number)
    return {name: np.stack(parts, 1) for name, parts in made.items()}


@dataclass(frozen=True, eq=False)
class _LabelHeads:
    """Log-odds (N,) of one of the labels `given` (N, K) by each head, by its name."""

    features: Mapping[str, Any]
    given: torch.Tensor
    groups: torch.Tensor | None
    folds: int | None
    seed: int
    device: str

    def __call__(self, k: int) -> dict[str, Array]:
        how: dict[str, Any] = {"folds": self.folds, "seed": self.seed, "device": choose_device(self.device)}
        how["groups"] = self.groups
        found = fold_scores(self.features, self.given[:, k], num_classes=2, **how)
        return {name: scores[:, 1] - scores[:, 0] for name, scores in zip(found.names, found.scores, strict=True)}


def _with_sets(table: pa.Table, found: Mapping[str, list[str]], classes: list[Any]) -> pa.Table:
    """The table with these columns, and with sets of labels for classes."""
    columns = {name: table.column(name) for name in table.column_names if name not in found}
    return make_table({**columns, **found}, classes=classes)
