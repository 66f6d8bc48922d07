"""How many people would choose the label: the score `human`, by a model that was trained on people's votes.

    human_i = min(1, p_i / a_y)        p_i: probability of the label y of example i
                                       a_y: mean of p over the 5 % of the examples with label y that have the highest p

A model that is trained on votes also predicts slips: votes of people who did not look, or who pressed the wrong button. Votes
against the easiest examples of a class are such slips. They say nothing about an example, so they are divided out: other people
make other slips. Trained on CIFAR-10N's votes this predicts CIFAR-10H's people better (Spearman's ρ .513 instead of
.497, four networks), and further votes of CIFAR-10N's own people worse (.333 instead of .347): for those use `confidence`.
Average the probabilities of several models, not their logits: each is an estimate of the same share. See results/human.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mohs.hardness.classes import encode

EASIEST = 0.05  # share of a class for which everyone should choose the label
Array = np.ndarray[Any, Any]


def predict_agreement(probs: Any, labels: Any) -> Array:
    """The share of people who would choose the label of each example.

    Args:
        probs: Probabilities of the classes (N, K) by a model trained on people's votes (`mohs.train(..., votes=...)`) that did
            not see these examples; or (M, N, K) by several such models, which are averaged.
        labels: Class indices (N,).

    Returns:
        Expected agreement (N,), from 0 to 1; NaN where the probabilities are.

    Example:
        >>> mohs.predict_agreement([[0.8, 0.2], [0.4, 0.6], [0.1, 0.9]], [0, 0, 1])
        array([1. , 0.5, 1. ])
    """
    found = np.asarray(probs, dtype=np.float64)
    found = found.mean(0) if found.ndim == 3 else found
    if found.ndim != 2:
        raise ValueError(f"probs must have shape (N, K) or (M, N, K), got {np.shape(probs)}")
    index, _ = encode(labels, num_classes=found.shape[1])
    if len(index) != len(found):
        raise ValueError(f"labels must have one entry for each of the {len(found)} rows of probs, got {len(index)}")
    confidence = found[np.arange(len(found)), index]
    return agreement_of(confidence, index, easiest(confidence, index, found.shape[1]))


def easiest(confidence: Any, labels: Any, classes: int) -> Array:
    """The mean confidence (K,) of the easiest examples of each class; NaN for a class without examples."""
    confidence, labels = np.asarray(confidence, dtype=np.float64), np.asarray(labels)
    means = np.full(classes, np.nan)
    for k in range(classes):
        own = np.sort(confidence[(labels == k) & ~np.isnan(confidence)])
        if len(own):
            means[k] = own[-max(1, round(EASIEST * len(own))) :].mean()
    return means


def agreement_of(confidence: Any, labels: Any, means: Array) -> Array:
    """Confidences (n,) divided by the mean confidence of the easiest examples of their class, at most 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Array = np.minimum(1, np.asarray(confidence, dtype=np.float64) / means[np.asarray(labels)])
    return share
