"""Out-of-sample scores of classifiers on the rows of a table with numbers, categories, dates, texts and missing values.

    linear          multinomial logistic regression on the smooth view, out of fold, C by held-out likelihood
    forest          random forest on the tree view, each row by the trees that did not draw it (out of bag)
    boost           small gradient-boosted trees with native categories and NaN, out of fold; for few rows or classes

The views are those of `table_views`. The closed-form heads of `fold_heads` on the smooth view are added. A noise model weights
all of them by how likely they make the given labels (`hardness.noise_model`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mohs._core.executor import Executor, Local
from mohs.data.columns import Column
from mohs.train.table_views import frequency_rank

Array = np.ndarray[Any, Any]
STRENGTHS = (0.03, 0.3, 3.0)  # candidates for C of the linear head
FLOOR = 1e-3  # share of the class frequencies mixed into probabilities before their logarithm
BOOSTED = 40_000  # maximum rows × classes for boosting, unless there are few classes
MOST_DRAWN = 20_000  # rows that a tree of the forest draws
LEAST_KNOWN = 10  # a column with fewer known values is not boosted: all of them might be held out


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


def forest_scores(x: Array, labels: Array, classes: int, seed: int, *, fold: Array | None = None) -> tuple[Array, str]:
    """Log-probabilities (N, K) of a random forest, each row by the trees that did not draw it.

    fold: folds (N,) of rows in groups: a forest without its fold then scores each row, since trees draw parts of groups.
    """
    from sklearn.ensemble import RandomForestClassifier

    n = len(x)
    trees = int(np.clip(2_000_000 / n, 100, 300))
    make = partial(RandomForestClassifier, trees, min_samples_leaf=3, random_state=seed)
    if fold is not None:
        make = partial(make, max_samples=MOST_DRAWN if n - np.bincount(fold).max() > MOST_DRAWN else None)
        return log_probs(_out_of_fold(make, x, labels, classes, fold), labels), f"{trees} trees"
    model = make(oob_score=True, max_samples=min(n, MOST_DRAWN))
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
        np.minimum(frequency_rank(np.bincount(c.values[c.values >= 0], minlength=len(c.levels))), 200)[c.values]
        for c in categories
    ]
    trees = trees[:, np.isfinite(trees).sum(0) >= LEAST_KNOWN]
    x = np.hstack([trees, *[code[:, None] for code in codes]])
    native = np.arange(x.shape[1]) >= trees.shape[1]
    counts = np.zeros((int(fold.max()) + 1, classes), dtype=np.int64)
    np.add.at(counts, (fold, labels), 1)
    outside = counts.sum(0) - counts  # (F, K), what each fit sees; with groups, a fold may hold all but one example of a class
    rare = counts.sum(0)[np.unique(labels)].min() < 5 or (outside == 1).any()  # the validation split cannot hold a rare class

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
    """Logarithms of probabilities (N, K) with a small share of the class frequencies mixed in; the class frequencies alone where
    a row is unknown.
    """
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
            warnings.simplefilter("ignore")  # convergence warnings: the held-out likelihood decides
            model = self.make().fit(self.x[train], self.labels[train])
        return model.classes_, model.predict_proba(self.x[held])
