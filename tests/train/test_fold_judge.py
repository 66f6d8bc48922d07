"""Trust in labels by models in folds, with groups and without."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mohs.train.fold_judge import trust_in_folds
from mohs.train.fold_votes import fold_votes


def made() -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    """Features (N, D), labels (N,) and groups (N,) of six rows each; which labels are wrong, in whole groups."""
    rng, own = np.random.default_rng(0), np.repeat(np.arange(40), 6)
    truth, wrong = np.arange(40) % 2, np.arange(40) < 4
    center = 0.5 * rng.normal(size=(40, 200)) + (2 * truth[:, None] - 1)  # too many for columns of numbers
    x = center[own] + 0.05 * rng.normal(size=(240, 200))
    given = torch.from_numpy(np.where(wrong, 1 - truth, truth)[own])
    return torch.from_numpy(x.astype(np.float32)), given, torch.from_numpy(own), wrong[own]


def test_labels_are_trusted_by_other_groups() -> None:
    x, labels, groups, wrong = made()
    right, _ = trust_in_folds(x, labels, 2)
    assert right[wrong].min() > 0.9  # the other rows of the group vouch for the label
    right, probs = trust_in_folds(x, labels, 2, groups=groups)
    assert right[wrong].max() < 0.5
    assert right[~wrong].min() > 0.5
    assert (probs.argmax(1) != labels)[wrong].all()


def test_labels_that_no_other_group_can_judge_count_as_right() -> None:
    x, labels, groups, _ = made()
    alone = labels.masked_fill(groups == 7, 2)
    right, _ = trust_in_folds(x, alone, 3, groups=groups)
    assert (right[groups == 7] == 1).all()
    assert (trust_in_folds(x, labels, 2, groups=groups % 2)[0] == 1).all()  # two groups are too few


def test_votes_of_a_group_are_predicted_by_other_groups() -> None:
    x, labels, groups, wrong = made()
    counts = 3 * torch.nn.functional.one_hot(labels, 2)
    own = np.arange(len(labels)), labels.numpy()
    assert fold_votes(x, counts, labels)[own][wrong].min() > 0.5
    assert fold_votes(x, counts, labels, groups=groups)[own][wrong].max() < 0.5
