"""A scikit-learn classifier that chooses its loss by the estimated label noise and judges its training labels.

    MohsClassifier().fit(X, y)          then predict, predict_proba, decision_function, like any classifier
    .noise_ .loss_ .table_ .verdict_ .avh_ .label_right_      the training rows, judged out of fold

With loss="auto" the share of wrong labels is estimated out of fold (`mohs.estimate_noise`) and `mohs.suggest_emphasis` chooses
the loss; with fewer than 100 rows it is cross-entropy. The head is fitted on all rows at once (`train.linear_head`). Rows with
weight 0 are ignored. The audit's heads use the weights; its count of wrong labels does not. A class weight counts for the fitted
classifier alone, as an audit with it would expect other shares of the classes. audit=False skips the audit, for example within a
grid search (loss="auto" still runs it). Sparse X stays sparse for a linear classifier; kernel units and the audit make rows dense
a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from mohs.hardness.classes import decode
from mohs.hardness.noise_rate import estimate_noise, suggest_emphasis
from mohs.hardness.table import column, make_table
from mohs.hardness.verdict import verdict
from mohs.train.folds import FoldOutputs, out_of_fold
from mohs.train.linear_head import Loss, as_loss, fit_head
from mohs.train.sparse_rows import SparseRows

AUTO = "auto"
ROBUST = "gce"  # the audit's loss while the noise is unknown
LEAST_ROWS = 100  # needed to estimate the noise
Array = np.ndarray[Any, Any]


class MohsClassifier(ClassifierMixin, BaseEstimator):
    """Linear softmax classifier, optionally on kernel features, fitted with any mohs loss.

    Args:
        loss: "auto", a name of `mohs.LOSSES` ("gce", "gce:q=0.5"), a mapping with a name, or a loss.
        hidden: Number of kernel units between features and head; None for a linear classifier.
        l2: L2 penalty on the head's weights.
        class_weight: Weight of each class, {class: weight} with 1 for classes that are missing, or "balanced" for weights
            that give all classes the same total.
        folds: Number of cross-validation folds of the audit.
        epochs: Number of training epochs of the audit's heads.
        audit: Judge the training rows out of fold.
        steps: Maximum number of steps to fit the head.
        seed: Random seed.

    Example:
        >>> model = MohsClassifier().fit(X, y)  # doctest: +SKIP
        >>> model.verdict_ == "mislabeled"  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        loss: str | Mapping[str, Any] | Loss = AUTO,
        hidden: int | None = None,
        l2: float = 1e-2,
        class_weight: Mapping[Any, float] | str | None = None,
        folds: int = 5,
        epochs: int = 20,
        audit: bool = True,
        steps: int = 300,
        seed: int = 0,
    ) -> None:
        self.loss, self.hidden, self.l2, self.folds, self.epochs = loss, hidden, l2, folds, epochs
        self.class_weight, self.audit, self.steps, self.seed = class_weight, audit, steps, seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MohsClassifier:  # noqa: N803
        """Fit to X (N, D), dense or sparse, and y (N,) with at least two classes; sample_weight (N,) must not be negative."""
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr")  # noqa: N806
        check_classification_targets(y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            kept = weight > 0
            X, y, weight = X[kept], y[kept], torch.from_numpy(weight[kept])  # noqa: N806
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            got = "1 class" if len(self.classes_) == 1 else "none"
            raise ValueError(f"y must hold at least two classes, got {got} among rows with positive weight")
        labels, rows = torch.from_numpy(index), SparseRows(X) if issparse(X) else X
        by_class = class_weights_of(self.class_weight, self.classes_, labels, weight)
        self._audit(rows, labels, weight)
        if by_class is not None:
            weight = by_class[labels] if weight is None else weight * by_class[labels]
        self.head_ = fit_head(
            rows, labels, loss=self.loss_, num_classes=len(self.classes_), l2=self.l2, sample_weight=weight,
            landmarks=self.hidden or 0, seed=self.seed, steps=self.steps,
        )  # fmt: skip
        return self

    def _audit(self, features: Any, labels: Tensor, weight: Tensor | None) -> None:
        """Set loss_ and, if requested or needed, noise_ and the out-of-fold results."""
        auto = isinstance(self.loss, str) and self.loss == AUTO
        chosen = as_loss("cross_entropy" if auto else self.loss)
        self.noise_, self.loss_, self._outputs = None, chosen, None
        self.__dict__.pop("_table", None)  # from an earlier fit
        enough = len(labels) >= LEAST_ROWS
        if not (self.audit or (auto and enough)):
            return
        self._outputs = out_of_fold(
            features, labels, loss=ROBUST if auto else chosen, folds=min(self.folds, len(labels)), seed=self.seed,
            epochs=self.epochs, landmarks=self.hidden or 0, classes=range(len(self.classes_)),
            sample_weight=None if weight is None else weight.float(),
        )  # fmt: skip
        if enough:
            probs = np.nan_to_num(self._outputs.judgment.probs, nan=1 / len(self.classes_))
            self.noise_ = estimate_noise(labels, probs, classes=range(len(self.classes_)), seed=self.seed)
            if auto:
                self.loss_ = suggest_emphasis(self.noise_).loss

    @property
    def table_(self) -> Any:
        """Hardness table with verdicts of the training rows with positive weight, judged out of fold."""
        if "_table" not in self.__dict__:
            outputs = self._found()
            self._table = verdict(_named(outputs.table, self.classes_), judgment=outputs.judgment)
        return self._table

    @property
    def verdict_(self) -> Array:
        """easy, hard, ambiguous, mislabeled or cannot tell (None where a class has one example), (N,)."""
        return np.array(self.table_.column("verdict").to_pylist(), dtype=object)

    @property
    def avh_(self) -> Array:
        """Angular visual hardness of the training rows (N,), by heads that were not trained on them."""
        return column(self._found().table, "avh")

    @property
    def label_right_(self) -> Array:
        """Probability that each training row's label is right (N,)."""
        right: Array = 1 - self._found().judgment.p_mislabeled
        return right

    def _found(self) -> FoldOutputs:
        check_is_fitted(self)
        if self._outputs is None:
            raise NotFittedError("the training rows were not judged: fit with audit=True")
        return self._outputs

    def _logits(self, X: Any) -> Tensor:  # noqa: N803
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)  # noqa: N806
        return self.head_.logits(SparseRows(X) if issparse(X) else X)

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Logits (N, K); for two classes the log-odds of the second (N,)."""
        logits = self._logits(X).double()
        scores: Array = (logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits).numpy()
        return scores

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Class probabilities (N, K), in the order of `classes_`."""
        probs: Array = torch.softmax(self._logits(X).double(), 1).numpy()
        return probs

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Most probable class of each row (N,)."""
        best = self._logits(X).argmax(1).numpy()
        named: Array = self.classes_[best]
        return named


def class_weights_of(
    given: Mapping[Any, float] | str | None, classes: Array, labels: Tensor, sample_weight: Tensor | None
) -> Tensor | None:
    """The weight of each class (K,) for class_weight as the user gave it; None without one."""
    if given is None:
        return None
    if given == "balanced":
        total = torch.bincount(labels, sample_weight, minlength=len(classes)).double()
        return total.sum() / (len(classes) * total)
    if not isinstance(given, Mapping):
        raise ValueError(f'class_weight must be a mapping {{class: weight}}, "balanced" or None, got {given!r}')
    known = classes.tolist()
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"class_weight has {unknown[0]!r}, which is not a class of y: {', '.join(map(repr, known))}")
    weights = torch.tensor([float(given.get(name, 1.0)) for name in known], dtype=torch.float64)
    if not (weights.isfinite() & (weights >= 0)).all():
        raise ValueError(f"class_weight must be finite and at least 0, got {dict(given)}")
    return weights


def _named(table: Any, classes: Array) -> Any:
    """The table with class names instead of indices."""
    names = classes.tolist()
    columns = {name: table.column(name) for name in table.column_names}
    named = {name: decode(column(table, name).astype(int), names) for name in ("label", "predicted")}
    return make_table(columns | named, classes=names)
