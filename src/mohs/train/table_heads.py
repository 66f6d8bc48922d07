"""Out-of-sample scores of classifiers on the rows of a table with numbers, categories, dates, texts and missing values.

    smooth view     numbers standardized (ranks where skewed), categories one-hot, dates as cycles, missing values marked
    tree view       numbers as they are with NaN, categories one-hot or by frequency
    linear          multinomial logistic regression on the smooth view, out of fold, C by held-out likelihood
    forest          random forest on the tree view, each row by the trees that did not draw it (out of bag)
    boost           small gradient-boosted trees with native categories and NaN, out of fold; for few rows or classes

The closed-form heads of `fold_heads` on the smooth view come beside them. A noise model weighs all of them by how likely they
make the given labels (`hardness.noise_model`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mohs._core.executor import Executor, Local
from mohs.data.columns import Column

Array = np.ndarray[Any, Any]
FEW = 8  # integers with at most this many values are one-hot too
LEVELS, ONE_HOT = 100, 20  # categories with a unit of their own in the smooth view, in the tree view
STRENGTHS = (0.03, 0.3, 3.0)  # C of the linear head
FLOOR = 1e-3  # share of the class frequencies mixed into probabilities before their logarithm
BOOSTED = 40_000  # rows × classes up to which trees are boosted, unless there are few classes
LEAST_KNOWN = 10  # known values of a column below which it is not boosted: all of them might be held out
TEXT_AXES = 64


def smooth_view(columns: Sequence[Column], embed_text: Callable[[list[str]], Array]) -> Array:
    """Columns -> (N, D) for linear and kernel heads; every column has a total variance of about 1."""
    parts: list[Array] = []
    for column in columns:
        n = len(column.values)
        if column.role in ("numeric", "boolean"):
            parts.append(_smooth_number(column.values))
        elif column.role == "date":
            parts.append(_smooth_date(column.values))
        elif column.role == "categorical":
            parts.append(_block(_one_hot(column.values, len(column.levels), LEVELS, max(2, n // 1000))))
        elif column.role == "text":
            parts.append(2 * _text_axes(column.values, embed_text, TEXT_AXES))
    return np.hstack(parts)


def tree_view(columns: Sequence[Column], embed_text: Callable[[list[str]], Array]) -> Array:
    """Columns -> (N, E) float32 with NaN, for trees."""
    parts: list[Array] = []
    for column in columns:
        values, n = column.values, len(column.values)
        if column.role in ("numeric", "boolean"):
            parts.append(values[:, None])
        elif column.role == "date":
            year = 1970 + values / 365.2425
            parts += [values[:, None], (year % 1 * 12)[:, None], (np.floor(values) % 7)[:, None]]
            if np.nanmean(values % 1 > 0) > 0.1:
                parts.append((values % 1 * 24)[:, None])
        elif column.role == "categorical":
            counts = np.bincount(values[values >= 0], minlength=len(column.levels))
            if len(column.levels) > 2:
                parts.append(_one_hot(values, len(column.levels), ONE_HOT, max(2, n // 1000)))
            else:
                parts.append(np.where(values < 0, np.nan, values)[:, None])
            if len(column.levels) > ONE_HOT:
                parts += [_frequency_rank(counts)[values][:, None], np.append(counts, 0)[values][:, None]]
        elif column.role == "text":
            parts.append(_text_axes(values, embed_text, TEXT_AXES // 2))
    view: Array = np.clip(np.hstack(parts), -3e38, 3e38).astype(np.float32)
    return view


def linear_scores(x: Array, labels: Array, classes: int, fold: Array, *, executor: Executor | None = None) -> tuple[Array, str]:
    """Log-probabilities (N, K) of logistic regression out of fold, and what was chosen; executor: what fits the folds."""
    from sklearn.linear_model import LogisticRegression

    best: tuple[float, Array, float] | None = None
    for c in STRENGTHS:
        make = partial(LogisticRegression, C=c, max_iter=100, tol=1e-3)
        made = _out_of_fold(make, x, labels, classes, fold, executor)
        scores = log_probs(made, labels)
        value = float((scores[np.arange(len(labels)), labels] - np.log(np.exp(scores).sum(1))).mean())
        if best is not None and value < best[0] - 0.02:
            break
        if best is None or value > best[0]:
            best = (value, scores, c)
    assert best is not None
    return best[1], f"C = {best[2]:g}"


def forest_scores(x: Array, labels: Array, classes: int, seed: int) -> tuple[Array, str]:
    """Log-probabilities (N, K) of a random forest, each row by the trees that did not draw it."""
    from sklearn.ensemble import RandomForestClassifier

    n = len(x)
    trees = int(np.clip(2_000_000 / n, 100, 300))
    model = RandomForestClassifier(trees, min_samples_leaf=3, oob_score=True, random_state=seed, max_samples=min(n, 20_000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a row that every tree drew has no out-of-bag vote: it gets the class frequencies
        model.fit(x, labels)
    made = np.zeros((n, classes))
    made[:, model.classes_] = model.oob_decision_function_
    return log_probs(made, labels), f"{trees} trees"


def boost_scores(
    columns: Sequence[Column],
    trees: Array,
    labels: Array,
    classes: int,
    fold: Array,
    seed: int,
    *,
    executor: Executor | None = None,
) -> tuple[Array, str]:
    """Log-probabilities (N, K) of gradient-boosted trees out of fold; categories are split natively.

    executor: what fits the folds.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    n, categories = len(labels), [column for column in columns if column.role == "categorical"]
    codes = [
        np.minimum(_frequency_rank(np.bincount(c.values[c.values >= 0], minlength=len(c.levels))), 200)[c.values]
        for c in categories
    ]
    trees = trees[:, np.isfinite(trees).sum(0) >= LEAST_KNOWN]
    x = np.hstack([trees, *[code[:, None] for code in codes]])
    native = np.arange(x.shape[1]) >= trees.shape[1]
    rare = np.bincount(labels, minlength=classes)[np.unique(labels)].min() < 5  # a rare class cannot be held out

    def make() -> Any:
        return HistGradientBoostingClassifier(
            learning_rate=0.1, max_iter=60 if rare else 300, max_leaf_nodes=8, min_samples_leaf=int(np.clip(n // 50, 5, 20)),
            l2_regularization=10.0, max_features=0.5, early_stopping=not rare, validation_fraction=0.15, n_iter_no_change=8,
            random_state=seed, categorical_features=native if native.any() else None,
        )  # fmt: skip

    return log_probs(_out_of_fold(make, x, labels, classes, fold, executor), labels), "early stopping"


def boosts(rows: int, classes: int) -> bool:
    """Whether boosting is worth its time."""
    return rows * classes <= BOOSTED or classes <= 3


def log_probs(probs: Array, labels: Array) -> Array:
    """Logarithms of probabilities (N, K) with a little of the class frequencies mixed in; all of it where a row is unknown."""
    classes = probs.shape[1]
    prior = (np.bincount(labels, minlength=classes) + 0.5) / (len(labels) + 0.5 * classes)
    probs = np.where(np.isfinite(probs).all(1, keepdims=True) & (probs.sum(1, keepdims=True) > 0), probs, prior)
    mixed: Array = np.log((1 - FLOOR) * probs + FLOOR * (0.5 * prior + 0.5 / classes))
    return mixed


def _out_of_fold(
    make: Callable[[], Any], x: Array, labels: Array, classes: int, fold: Array, executor: Executor | None = None
) -> Array:
    """Probabilities (N, K) for the rows of each fold by a scikit-learn classifier fitted without that fold."""
    made = np.zeros((len(labels), classes))
    folds = range(int(fold.max()) + 1)
    for f, (seen, probs) in zip(folds, (executor or Local()).map(_FoldFit(make, x, labels, fold), folds), strict=True):
        made[np.ix_(fold == f, seen)] = probs
    return made


@dataclass(frozen=True, eq=False)
class _FoldFit:
    """Fits a classifier to the rows x (N, D) outside of a fold; returns the classes it saw and their probabilities there."""

    make: Callable[[], Any]
    x: Array
    labels: Array
    fold: Array

    def __call__(self, f: int) -> tuple[Array, Array]:
        train, held = self.fold != f, self.fold == f
        seen = np.unique(self.labels[train])
        if len(seen) < 2:
            return seen, np.ones((held.sum(), len(seen)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence: the held-out likelihood judges
            model = self.make().fit(self.x[train], self.labels[train])
        return model.classes_, model.predict_proba(self.x[held])


def _smooth_number(values: Array) -> Array:
    """One column of numbers -> value or rank, one-hot for few integers, and a mark for missing values."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    missing = np.isnan(values)
    present = values[~missing]
    filled = np.where(missing, np.median(present) if len(present) else 0.0, values)
    unique = np.unique(present)
    parts = [filled[:, None]]
    if len(unique) > 10:
        z = (present - present.mean()) / (present.std() or 1.0)
        if abs((z**3).mean()) > 1 or (z**4).mean() > 5:  # skewed or heavy-tailed
            parts = [ndtri((rankdata(filled) - 0.5) / len(filled))[:, None]]
    elif 2 < len(unique) <= FEW and (unique == np.round(unique)).all():
        parts.append(_block(_one_hot(np.searchsorted(unique, filled), len(unique), FEW, 2)))
    made = [(part - part.mean(0)) / (part.std() or 1.0) if part.shape[1] == 1 else part for part in parts]
    if 2 <= missing.sum() <= len(missing) - 2:
        made.append(_block(missing[:, None].astype(np.float64)))
    view: Array = np.clip(np.hstack(made), -6, 6)
    return view


def _smooth_date(days: Array) -> Array:
    """Days since 1970 -> when, time of year, day of the week, time of the day where times differ, and missing."""
    missing = np.isnan(days)
    d = np.where(missing, np.nanmedian(days) if not missing.all() else 0.0, days)
    parts = [(d - d.mean()) / (d.std() or 1.0)]
    cycles = [(d, 365.2425), (np.floor(d), 7.0)] + ([(d, 1.0)] if (d % 1 > 0).mean() > 0.1 else [])
    for value, period in cycles:
        parts += [np.sin(2 * np.pi * value / period), np.cos(2 * np.pi * value / period)]
    if missing.any():
        parts.append(missing.astype(np.float64))
    return np.stack(parts, 1)


def _one_hot(codes: Array, levels: int, most: int, rarest: int) -> Array:
    """Codes (N,), −1 for missing -> (N, L): the `most` commonest levels of at least `rarest` rows; others; missing."""
    counts = np.bincount(codes[codes >= 0], minlength=levels)
    kept = np.argsort(-counts, kind="stable")[: min(most, int((counts >= rarest).sum()))]
    place = np.full(levels + 1, len(kept))  # others
    place[kept] = np.arange(len(kept))
    place[-1] = len(kept) + 1  # missing
    made = np.zeros((len(codes), len(kept) + 2))
    made[np.arange(len(codes)), place[codes]] = 1
    return made[:, made.any(0)]


def _frequency_rank(counts: Array) -> Array:
    """Rank of each level by frequency, the commonest 0; NaN last, for missing."""
    return np.append(np.argsort(np.argsort(-counts, kind="stable"), kind="stable").astype(np.float64), np.nan)


def _text_axes(texts: Array, embed_text: Callable[[list[str]], Array], width: int) -> Array:
    """A column of texts -> its leading axes, with a total variance of 1."""
    x = np.asarray(embed_text([str(text) for text in texts]), dtype=np.float64)
    x = x - x.mean(0)
    _, _, axes = np.linalg.svd(x.T @ x)
    return _block(x @ axes[:width].T)


def _block(units: Array) -> Array:
    """Units centered and scaled to a total variance of 1."""
    units = units - units.mean(0)
    return units / (math.sqrt(float(units.var(0).sum())) or 1.0)
