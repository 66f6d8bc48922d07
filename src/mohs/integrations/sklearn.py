"""A scikit-learn classifier whose emphasis follows from its labels, and which says which of them are hard or wrong.

    MohsClassifier().fit(X, y)          then predict, predict_proba, decision_function, as any classifier has them,
    .noise_ .loss_ .table_ .verdict_ .avh_ .label_right_      and what the training rows are like, judged out of fold

With loss="auto" the rate of wrong labels is estimated out of fold (`mohs.estimate_noise`) and the loss is the one
`mohs.suggest_emphasis` names; under 100 rows, of which nothing can be said, it is cross-entropy. The head is fitted on all rows
at once (`train.linear_head`). A row of weight 0 counts as left out. The audit takes weights into account in training its heads;
when it counts wrong labels each row counts once. audit=False leaves it out, as within a grid search (but "auto" needs it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
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

AUTO = "auto"
ROBUST = "gce"  # what the audit trains with while nothing is known of the labels
LEAST_ROWS = 100  # for an estimate of the noise
Array = np.ndarray[Any, Any]


class MohsClassifier(ClassifierMixin, BaseEstimator):
    """A linear softmax classifier on features (N, D), or one on `hidden` kernel units, fitted with any mohs loss.

    loss: "auto", a name of `mohs.LOSSES` ("gce", "gce:q=0.5"), a mapping with a name, or a loss. hidden: kernel units between
    features and head (None: linear). l2: the penalty on the head's weights. steps: the most that fitting it takes. folds and
    epochs are the audit's.
    """

    def __init__(
        self,
        *,
        loss: str | Mapping[str, Any] | Loss = AUTO,
        hidden: int | None = None,
        l2: float = 1e-2,
        folds: int = 5,
        epochs: int = 20,
        audit: bool = True,
        steps: int = 300,
        seed: int = 0,
    ) -> None:
        self.loss, self.hidden, self.l2, self.folds, self.epochs = loss, hidden, l2, folds, epochs
        self.audit, self.steps, self.seed = audit, steps, seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MohsClassifier:  # noqa: N803
        """X (N, D), y (N,) of at least two classes, weights (N,) that are not negative."""
        X, y = validate_data(self, X, y, dtype=np.float64)  # noqa: N806
        check_classification_targets(y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            kept = weight > 0
            X, y, weight = X[kept], y[kept], torch.from_numpy(weight[kept])  # noqa: N806
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got {len(self.classes_)} class(es) among rows of weight over 0")
        labels = torch.from_numpy(index)
        self._audit(X, labels, weight)
        self.head_ = fit_head(
            X, labels, loss=self.loss_, num_classes=len(self.classes_), l2=self.l2, sample_weight=weight,
            landmarks=self.hidden or 0, seed=self.seed, steps=self.steps,
        )  # fmt: skip
        return self

    def _audit(self, features: Array, labels: Tensor, weight: Tensor | None) -> None:
        """Sets loss_, and noise_ and the out-of-fold results where they are asked for or needed."""
        auto = isinstance(self.loss, str) and self.loss == AUTO
        chosen = as_loss("cross_entropy" if auto else self.loss)
        self.noise_, self.loss_, self._outputs = None, chosen, None
        self.__dict__.pop("_table", None)  # of an earlier fit
        enough = len(labels) >= LEAST_ROWS
        if not (self.audit or (auto and enough)):
            return
        self._outputs = out_of_fold(
            features, labels, loss=ROBUST if auto else chosen, folds=min(self.folds, len(labels)), seed=self.seed,
            epochs=self.epochs, landmarks=self.hidden or 0, classes=range(len(self.classes_)),
            sample_weight=None if weight is None else weight.float(),
        )  # fmt: skip
        if enough:
            probs = torch.softmax(self._outputs.logits.double() / self._outputs.noise.temperature, 1)
            self.noise_ = estimate_noise(labels, probs, classes=range(len(self.classes_)), seed=self.seed)
            if auto:
                self.loss_ = suggest_emphasis(self.noise_).loss

    @property
    def table_(self) -> Any:
        """The hardness table of the training rows of weight over 0, judged out of fold, with verdicts; labels are classes."""
        if "_table" not in self.__dict__:
            outputs = self._found()
            self._table = verdict(_named(outputs.table, self.classes_), right=outputs.right.numpy())
        return self._table

    @property
    def verdict_(self) -> Array:
        """easy, hard, ambiguous or mislabeled (None where a class has one example), (N,)."""
        return np.array(self.table_.column("verdict").to_pylist(), dtype=object)

    @property
    def avh_(self) -> Array:
        """Angular visual hardness of the training rows against heads that did not see them, (N,)."""
        return column(self._found().table, "avh")

    @property
    def label_right_(self) -> Array:
        """The probability that each training row's label is right, (N,)."""
        return self._found().right.numpy()

    def _found(self) -> FoldOutputs:
        check_is_fitted(self)
        if self._outputs is None:
            raise NotFittedError("the training rows were not judged: fit with audit=True")
        return self._outputs

    def _logits(self, X: Any) -> Tensor:  # noqa: N803
        check_is_fitted(self)
        return self.head_.logits(validate_data(self, X, dtype=np.float64, reset=False))

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Logits (N, K); of two classes the second's log-odds (N,)."""
        logits = self._logits(X).double()
        scores: Array = (logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits).numpy()
        return scores

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The classes' probabilities (N, K), in the order of `classes_`."""
        probs: Array = torch.softmax(self._logits(X).double(), 1).numpy()
        return probs

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The likeliest class of each row (N,)."""
        best = self._logits(X).argmax(1).numpy()
        named: Array = self.classes_[best]
        return named


def _named(table: Any, classes: Array) -> Any:
    """The table with the classes' own names for their places."""
    names = classes.tolist()
    columns = {name: table.column(name) for name in table.column_names}
    named = {name: decode(column(table, name).astype(int), names) for name in ("label", "predicted")}
    return make_table(columns | named, classes=names)
