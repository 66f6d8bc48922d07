"""Judge the labels of a table's rows: linear and kernel heads, a forest and boosted trees, each out of sample."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import numpy as np
import torch

from mohs.audit.judge_features import judge_examples, judged, kept_scores, scored_table
from mohs.audit.options import Array, AuditOptions
from mohs.audit.result import AuditResult
from mohs.data.columns import Column, from_table
from mohs.data.examples import Data, Examples
from mohs.train.fold_heads import FoldScores, fold_scores
from mohs.train.table_heads import boost_scores, boosts, forest_scores, linear_scores
from mohs.train.table_views import embed_texts, smooth_view, tree_view
from mohs.train.trained import with_origin


def judge_table(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Judge the rows of a table with columns of several types."""
    began, train = time.perf_counter(), data.train
    kept = kept_scores(folder / "table-scores.safetensors", train, lambda: table_scores(data, options))
    judgment = judge_examples(kept.scores, train, options, ambiguity=kept.ambiguity, refit=kept.refit)
    options.step("scores", "margins")
    table = with_origin(scored_table(judgment, train), train)
    facts = {
        "features": f"{train.shape[0]} columns",
        "model": ", ".join(kept.names),
        "seconds": round(time.perf_counter() - began, 1),
        "out of sample": "yes: no model saw the labels it judges",
    }
    return judged(data, table, judgment, options, facts)


def columns_of(train: Examples, options: AuditOptions) -> list[Column]:
    """The columns of a table with their roles."""
    columns = from_table(train.inputs[torch.arange(len(train))])
    kinds = [column.role for column in columns]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    options.step("features", f"{len(columns)} columns: {counted}")
    return columns


def table_scores(data: Data, options: AuditOptions) -> tuple[dict[str, Array], FoldScores]:
    """Scores (N, K) of each model by its name, and the fit of the heads among them."""
    train, classes = data.train, len(data.train.classes)
    labels = train.labels.numpy()
    columns = columns_of(train, options)
    once = cache(embed_texts)  # both views embed the same texts
    smooth, trees = (view(columns, lambda texts: once(tuple(texts))) for view in (smooth_view, tree_view))
    options.step("judge", f"linear, kernel and tree models in {options.folds} folds")
    made = fold_scores(
        {"columns": smooth.astype(np.float32)}, train.labels, num_classes=classes, folds=options.folds, seed=options.seed,
        kind="table", groups=train.groups, progress=options.progress("judging"),
    )  # fmt: skip
    scores: dict[str, Array] = dict(zip(made.names, made.scores, strict=True))
    scores["linear"], _ = linear_scores(smooth, labels, classes, made.fold, executor=options.executor)
    fold = None if train.groups is None else made.fold
    scores["forest"], _ = forest_scores(trees, labels, classes, options.seed, fold=fold)
    if boosts(len(labels), classes):
        boosted = boost_scores(columns, trees, labels, classes, made.fold, options.seed, executor=options.executor)
        scores["boosted trees"], _ = boosted
    return scores, made
