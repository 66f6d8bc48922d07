"""Scores and labels of any shape as rows to judge: scores (M, R, K) of M models and labels (R,).

Where an example has several labels, every labeled part is a row (`parts`): several classes are binary problems, z_k against 0,
under one noise model. Most parts are of one class (absent, outside, background), and models differ in how they treat the others.
So the logarithm of each class's frequency, with either sign, counts as two more models with fitted weights. Wrong
labels of pixels come in patches: w becomes √(w w̄), w̄ its mean over the 5 × 5 pixels around.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import logit

from mohs._core.arrays import as_array
from mohs.hardness.noise_model import TINY, Array
from mohs.hardness.parts import parts_of, several_classes
from mohs.margin import NO_LABEL

LEAST_PROBABILITY = 1e-7
ROUNDING = 1e-3  # how far the sum of a row of probabilities may be from 1, as in half precision
NEARBY = 5  # side of the window over which wrong labels of pixels are smoothed
Smooth = Callable[[Array], Array]


def label_rows(scores: Any, labels: Any) -> tuple[Array, Array, Smooth | None]:
    """Scores (M, R, K) in float32 and labels (R,) with parts as rows; for pixels, a function that smooths values (R,).

    Raises ValueError unless they fit each other; arguments as for `judge_labels`.
    """
    if isinstance(scores, list | tuple) and len(scores) and as_array(scores[0]).ndim > 1:
        found = parts_of([as_array(one) for one in scores], [as_array(one) for one in labels])
        return *_checked(with_frequencies(found.logits.numpy(), found.labels), found.labels), None
    s, y = as_array(scores), as_array(labels)
    if s.ndim == 1 and y.ndim == 2:
        raise ValueError("scores have one dimension and labels two: the scores (N, K) come first, then the labels (N,)")
    if y.ndim < 2:
        return *_checked(s, y), None
    positions = s.ndim == 3 and (s.shape[0], s.shape[2]) == y.shape
    if several_classes(s.shape[-2:], y.shape) and s.ndim <= 3 and not positions:
        return *_checked(*binary_scores(s.reshape(-1, *y.shape), y)), None
    found = parts_of(torch.from_numpy(s), y)
    smooth = partial(smooth_grid, y != NO_LABEL) if y.ndim > 2 else None
    return *_checked(with_frequencies(found.logits.numpy(), found.labels), found.labels), smooth


def with_frequencies(scores: Array, labels: Array) -> Array:
    """Scores (R, K), with the logarithm of each class's frequency among the labels (R,), and its negative: (3, R, K)."""
    r, k = scores.shape
    log_share = np.log((np.bincount(labels[labels < k], minlength=k) + 0.5) / (r + 0.5 * k))
    log_p = log_scores(scores)
    return np.stack([log_p, *(np.broadcast_to(sign * log_share, (r, k)) for sign in (1, -1))])


def binary_scores(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Scores (M, N, K) and labels (N, K) of several classes -> scores (M + 2, R, 2) and labels (R,) of yes or no."""
    unit = np.nanmin(scores) >= 0 and np.nanmax(scores) <= 1
    z = logit(scores.astype(np.float64).clip(LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)) if unit else scores
    share = ((labels == 1).sum(0) + 0.5) / ((labels != NO_LABEL).sum(0) + 1)
    odds = np.broadcast_to(logit(share), labels.shape)
    found = [parts_of(torch.from_numpy(np.ascontiguousarray(one, np.float32)), labels) for one in (*z, odds, -odds)]
    return np.stack([one.logits.numpy() for one in found]), found[0].labels


def smooth_grid(given: Array, values: Array) -> Array:
    """√(v v̄) of the values v (R,) of the given entries (N, d1, ...); v̄: mean over the entry and the given entries around it."""
    from scipy.ndimage import uniform_filter

    size = (1, *[NEARBY] * (given.ndim - 1))
    spread = np.zeros(given.shape)
    spread[given] = values
    mean = uniform_filter(spread, size, mode="constant") / uniform_filter(given.astype(float), size, mode="constant").clip(TINY)
    smoothed: Array = np.sqrt(values * mean[given].clip(0, 1))
    return smoothed


def _checked(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Scores (M, N, K) in float32 and labels (N,); raise ValueError unless they fit each other."""
    if labels.size == 0:
        raise ValueError("labels are empty: there is nothing to judge")
    if labels.ndim == 1 and labels.dtype.kind in "OUS":
        raise ValueError(
            f"labels must be class indices, got {str(labels[0])!r}: give the column of each label among the scores, such as "
            "np.searchsorted(model.classes_, labels)"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be class indices of shape (N,), got shape {labels.shape} of {labels.dtype}: convert names with "
            "numpy.unique(labels, return_inverse=True)[1], if the columns of the scores are in sorted order"
        )
    if scores.dtype.kind not in "fiu":
        raise ValueError(f"scores must be numbers, got {scores.dtype}: convert them with scores.astype(float)")
    if scores.ndim not in (2, 3) or scores.shape[-2] != len(labels):
        raise ValueError(f"scores must have shape (N, K) or (M, N, K) for {len(labels)} labels, got {scores.shape}")
    classes = scores.shape[-1]
    if classes < 2:
        raise ValueError(f"scores must have a column for each of at least 2 classes, got {classes}")
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f"labels[{row}] is {labels[row]}, but scores have {classes} classes: labels must be 0..{classes - 1}")
    return scores.reshape(-1, len(labels), classes).astype(np.float32), labels.astype(np.int64)


def log_scores(scores: Array) -> Array:
    """Scores (N, K) of one model; their logarithms if all rows without NaN and infinity are probabilities.

    Raises ValueError if none of these rows is negative and most, but not all, sum to 1. Rows with negative entries may sum to 1
    without being probabilities, for example from a regression on one-hot labels.
    """
    known = np.isfinite(scores).all(1)
    rows = scores[known]
    if not (rows >= 0).all():
        return scores
    fit = np.abs(rows.sum(1) - 1) < ROUNDING
    if fit.all():
        logs: Array = np.log(scores.clip(LEAST_PROBABILITY))
        return logs
    if fit.mean() > 0.5:
        row = int(np.flatnonzero(known)[fit.argmin()])
        raise ValueError(
            f"scores[{row}] sums to {scores[row].sum():g}, while most rows are probabilities and sum to 1; {int((~fit).sum())} "
            "row(s) are affected: divide a row by its sum, or set one without a prediction to NaN"
        )
    return scores
