"""Numbers as labels: how likely each target of a regression is wrong, from predictions that did not see it.

    r = y − (α + β ŷ)                               ŷ: prediction; α, β: as forests, for one, predict too close to the mean
    P(r) = (1 − ε) t₄(r/s)/s + ε c(r/S)/S           t₄: Student's distribution, c: Cauchy's, S: standard deviation of y
    s = σ exp(2 b (rank(ŷ) − ½))                    rank: from 0 to 1; b: targets may vary more where they are large
    p_mislabeled = ε c(r/S)/S / P(r)

α, β, σ and ε maximize the likelihood, by expectation maximization, with the prior of the noise model on ε (`noise_model`). b is 0
unless ±½ or ±1 makes the targets much more likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mohs._core.arrays import as_array
from mohs._core.validation import check_between
from mohs.hardness.judgment import LabelJudgment, choose_flags
from mohs.hardness.measure import overall
from mohs.hardness.noise_model import GAIN, GAIN_SHARE, RATE_PRIOR, TINY, Array, NoiseModel
from mohs.hardness.table import make_table

FREEDOM = 4.0  # degrees of freedom ν of the residuals of right targets
GROWTHS = (-1.0, -0.5, 0.5, 1.0)  # b
ROUNDS, MOST_WRONG, FEWEST = 60, 0.5, 10


@dataclass(frozen=True, eq=False)
class TargetFit:
    """Expected target, spread s and P(wrong) of each example (N,); share of wrong targets ε, and log-likelihood."""

    expected: Array
    spread: Array
    wrong: Array
    rate: float
    value: float


def judge_targets(predictions: Any, targets: Any, *, precision: float = 0.8) -> LabelJudgment:
    """Judge the targets of a regression by out-of-sample predictions.

    Args:
        predictions: (N,), or (M, N) of several models, which are averaged. No prediction may depend on its own target: use
        cross-validation, or out-of-bag predictions. A row with NaN or infinity is not judged.
        targets: Given targets (N,).
        precision: Expected precision: share of the flagged targets that are wrong.

    Returns:
        The judgment, in which `suggested` are targets (the expected one where it is flagged), and the two classes of `probs`
        are wrong and right.

    Example:
        >>> judgment = mohs.judge_targets(cross_val_predict(model, x, y), y)
        >>> x[judgment.flagged], judgment.suggested[judgment.flagged]
    """
    check_between("precision", precision, 0, 1, ends="()")
    predicted, y = _checked(predictions, targets)
    known = np.isfinite(predicted) & np.isfinite(y)
    fit = _fitted(predicted, y, known)
    flagged = known & choose_flags(np.where(known, fit.wrong, 0.0), precision)
    right = np.stack([fit.wrong, 1 - fit.wrong], 1)
    rate = float(np.nanmean(fit.wrong))
    spread = 1.96 * math.sqrt(max(rate * (1 - rate), 1 / known.sum()) / known.sum())
    return LabelJudgment(
        p_mislabeled=fit.wrong,
        flagged=flagged,
        cannot_tell=known & ~flagged & (fit.wrong > 0.5),
        suggested=np.where(flagged, fit.expected, y),
        p_suggested=np.where(flagged, fit.wrong, 1 - fit.wrong),
        probs=right,
        posterior=right,
        rate=rate,
        low=max(0.0, rate - spread),
        high=min(1.0, rate + spread),
        trust=1.0,
        model=NoiseModel(np.ones(1), np.array([[1.0, 0.0], [fit.rate, 1 - fit.rate]]), fit.rate),
    )


def score_targets(predictions: Any, targets: Any, *, ids: Sequence[Any] | None = None) -> pa.Table:
    """Score the examples of a regression by out-of-sample predictions.

    Args:
        predictions, targets: As for `judge_targets`.
        ids: Ids of the examples (N,); default: row numbers.

    Returns:
        The hardness table: given and expected target, the residual, and the margin (log-odds that the target is right).
    """
    predicted, y = _checked(predictions, targets)
    known = np.isfinite(predicted) & np.isfinite(y)
    fit = _fitted(predicted, y, known)
    w = fit.wrong.clip(TINY, 1 - TINY)
    columns = {
        "id": np.arange(len(y)) if ids is None else ids,
        "label": y,
        "predicted": fit.expected,
        "confidence": 1 - w,
        "margin": np.log1p(-w) - np.log(w),
        "residual": np.abs(y - fit.expected) / fit.spread,
    }
    return make_table({**columns, **overall(columns)})


def fit_targets(predicted: Array, y: Array, growth: float = 0.0) -> TargetFit:
    """The model with this b, fitted to finite predictions and targets (N,)."""
    n = len(y)
    rank = (np.argsort(np.argsort(predicted, kind="stable"), kind="stable") + 0.5) / n
    shape = np.exp(2 * growth * (rank - 0.5))
    center, size = predicted.mean(), predicted.std() + TINY
    basis = np.stack([np.ones(n), (predicted - center) / size], 1)
    expected, wide = predicted, float(y.std()) + TINY
    r = y - expected
    sigma, rate = 1.4826 * float(np.median(np.abs(r - np.median(r)))) + 1e-6 * wide, 0.05
    value, wrong = -math.inf, np.zeros(n)
    for _ in range(ROUNDS):
        s = sigma * shape
        right, other = (1 - rate) * _student(r / s) / s, rate / (math.pi * wide * (1 + (r / wide) ** 2))
        wrong = other / (right + other)
        value = float(np.log(right + other).sum()) + RATE_PRIOR[0] * math.log(rate) + RATE_PRIOR[1] * math.log1p(-rate)
        rate = float(np.clip((wrong.sum() + RATE_PRIOR[0]) / (n + sum(RATE_PRIOR)), 1e-4, MOST_WRONG))
        pull = (FREEDOM + 1) / (FREEDOM + (r / s) ** 2) * (1 - wrong)
        weighted = basis * (pull / s**2)[:, None]
        expected = basis @ np.linalg.lstsq(weighted.T @ basis, weighted.T @ y, rcond=None)[0]
        r = y - expected
        sigma = math.sqrt(float((pull * (r / shape) ** 2).sum()) / float((1 - wrong).sum())) + 1e-6 * wide
    return TargetFit(expected, sigma * shape, wrong, rate, value)


def _fitted(predicted: Array, y: Array, known: Array) -> TargetFit:
    """The fit of the known rows, with NaN for the others."""
    if known.sum() < FEWEST:
        raise ValueError(f"predictions and targets are finite in {known.sum()} rows: at least {FEWEST} are needed")
    p, t = predicted[known], y[known]
    fits = [fit_targets(p, t, growth) for growth in GROWTHS]
    best, plain = max(fits, key=lambda fit: fit.value), fit_targets(p, t)
    fit = best if best.value > plain.value + max(GAIN, GAIN_SHARE * len(t)) else plain

    def spread(values: Array) -> Array:
        whole: Array = np.full(len(y), np.nan)
        whole[known] = values
        return whole

    return TargetFit(spread(fit.expected), spread(fit.spread), spread(fit.wrong), fit.rate, fit.value)


def _student(x: Array) -> Array:
    """Density of Student's distribution with ν degrees of freedom."""
    size = math.gamma((FREEDOM + 1) / 2) / (math.sqrt(FREEDOM * math.pi) * math.gamma(FREEDOM / 2))
    density: Array = size * (1 + x**2 / FREEDOM) ** (-(FREEDOM + 1) / 2)
    return density


def _checked(predictions: Any, targets: Any) -> tuple[Array, Array]:
    y, p = as_array(targets).astype(np.float64), as_array(predictions).astype(np.float64)
    if y.ndim != 1 or p.shape[-1:] != y.shape or p.ndim not in (1, 2):
        raise ValueError(f"predictions must have shape (N,) or (M, N) for targets (N,), got {p.shape} and {y.shape}")
    return (p if p.ndim == 1 else p.mean(0)), y
