"""Judge labels by models on features, fitted in folds, so that no model has seen the labels that it judges.

An audit of features reports this judgment; robust training on features starts from it (`train.robust`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs.data.columns import MOST_COLUMNS
from mohs.data.groups import alone
from mohs.hardness.judgment import judge_labels
from mohs.train.fold_heads import FoldScores, default_folds, fold_scores
from mohs.train.table_heads import forest_scores

LEAST_FOLDS = 3
Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]


def scores_in_folds(
    features: Mapping[str, Any],
    labels: Tensor,
    *,
    num_classes: int,
    folds: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    groups: Tensor | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Array], FoldScores]:
    """Scores (N, K) of each model by its name, and the fit of the heads among them; arguments as for `fold_scores`.

    A random forest is fitted in addition to the set named "features", if it has few enough features to be columns of a table.
    """
    raw = features.get("features")
    columns = raw is not None and raw.shape[1] <= MOST_COLUMNS
    made = fold_scores(
        features, labels, num_classes=num_classes, folds=folds, seed=seed, device=device, groups=groups,
        kind="columns" if columns else "embedding", progress=progress,
    )  # fmt: skip
    scores: dict[str, Array] = dict(zip(made.names, made.scores, strict=True))
    if columns:
        fold = None if groups is None else made.fold
        scores["features forest"], _ = forest_scores(np.asarray(raw), labels.numpy(), num_classes, seed, fold=fold)
    return scores, made


def trust_in_folds(
    features: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    groups: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The probability (N,) that each label is right, and those of all classes (N, K) regardless of the label.

    A label whose class has no other example, or none outside its fold, cannot be judged and counts as right.
    """
    labels = labels.cpu()
    if default_folds(len(labels), groups) < LEAST_FOLDS:
        return torch.ones(len(labels)), torch.nn.functional.one_hot(labels, num_classes).float()
    scores, heads = scores_in_folds(
        {"features": features.cpu()}, labels, num_classes=num_classes, seed=seed, device=device, groups=groups
    )
    found = judge_labels(
        np.stack(list(scores.values())), labels.numpy(), ambiguity=heads.ambiguity, refit=heads.refit,
        groups=None if groups is None else groups.numpy(),
    )  # fmt: skip
    unknown = alone(labels, torch.from_numpy(heads.fold))
    right = torch.from_numpy(1 - found.p_mislabeled).float().nan_to_num(1.0).masked_fill(unknown, 1.0)
    return right, torch.from_numpy(found.probs).float().nan_to_num(1 / num_classes)
