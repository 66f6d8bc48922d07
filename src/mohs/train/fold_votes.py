"""Predict how one more person would vote on each example: softmax heads on features, fitted to people's votes in folds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs.train.fold_heads import assign_folds, default_folds
from mohs.train.linear_head import fit_head

STEPS = 100  # steps of L-BFGS: more would overfit single votes
Progress = Callable[[int, int], None]


def fold_votes(
    features: Any,
    counts: Tensor,
    labels: Tensor,
    *,
    folds: int | None = None,
    seed: int = 0,
    groups: Tensor | None = None,
    progress: Progress | None = None,
) -> np.ndarray[Any, Any]:
    """Probabilities (N, K) that one more person chooses each class, by heads that saw none of the example's votes.

    Args:
        features: Array or tensor (N, D).
        counts: Votes for each class (N, K); rows without a vote are not fitted to.
        labels: Class indices (N,), by which the folds are balanced.
        folds: Number of cross-validation folds; default: as `default_folds` says.
        seed: Random seed of the folds.
        groups: Groups (N,) that stay whole in the folds.
        progress: Called with (folds done, folds in all).
    """
    x, classes = torch.as_tensor(np.asarray(features)).float(), counts.shape[1]
    folds = default_folds(len(labels), groups) if folds is None else folds
    fold = assign_folds(labels, folds=folds, seed=seed, groups=groups)
    made = torch.empty(len(x), classes)
    for f in range(folds):
        row, vote = (counts * (fold != f).unsqueeze(1)).nonzero(as_tuple=True)
        head = fit_head(x[row], vote, num_classes=classes, sample_weight=counts[row, vote].double(), steps=STEPS)
        held = (fold == f).nonzero().squeeze(1)
        made[held] = head.logits(x[held]).softmax(1).float()
        if progress is not None:
            progress(f + 1, folds)
    return made.numpy()
