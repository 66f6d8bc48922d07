"""Several people's labels: the class they agree on, how reliable each of them is, and which example to ask about next.

    P(true = t | votes) ∝ prior_t Π_a π_a[t, v_a]                 π_a[t, g]: how often annotator a calls class t "g"
    prior = class frequencies, or softmax(w s) for the scores s of a model that did not see the votes

π, w and the frequencies maximize the likelihood of all votes, by expectation maximization (Dawid and Skene, "Maximum likelihood
estimation of observer error-rates using the EM algorithm", Applied Statistics 28, 1979). Most annotators vote on few examples,
so each row of π_a is shrunk toward the confusions of all annotators at this annotator's accuracy, as if by 50 more votes, and
that accuracy toward the accuracy of all, as if by 10. One more vote g, from an average annotator π, raises the expected accuracy
of the consensus by

    gain = Σ_g max_t q_t π[t, g] − max_t q_t                      q: P(true | votes)

which is 0 where no single vote could change it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import log_softmax, logsumexp

from mohs._core.arrays import as_array
from mohs._core.validation import check_between
from mohs.hardness.noise_model import TINY, Array, softmax

PULL, ROW_PULL = 10.0, 50.0  # prior votes for the accuracy of one annotator, and for each row of π
ROUNDS, SETTLED = 200, 1e-6
NONE = -1


@dataclass(frozen=True, eq=False)
class Votes:
    """V votes on N examples.

    Attributes:
        example, annotator, label: Indices (V,); vote i says that example[i] is of class label[i].
        count: How many times each vote was cast (V,).
        num_examples: Number of examples N; some may have no vote.
        annotators: Names of the annotators.
        classes: Names of the classes.
    """

    example: Array = field(repr=False)
    annotator: Array = field(repr=False)
    label: Array = field(repr=False)
    count: Array = field(repr=False)
    num_examples: int
    annotators: Sequence[Any]
    classes: Sequence[Any]

    @classmethod
    def from_columns(cls, columns: Any, *, classes: Sequence[Any] | None = None) -> Votes:
        """One column per annotator and one row per example; None, NaN and −1 are missing votes.

        Args:
            columns: An array (N, A), or a pandas DataFrame or pyarrow Table with A columns.
            classes: Class names in order; default: all labels that occur, sorted.
        """
        names, parts = _columns(columns)
        example = [np.flatnonzero(~_missing(part)) for part in parts]
        labels = [part[rows] for part, rows in zip(parts, example, strict=True)]
        annotator = np.repeat(np.arange(len(parts)), [len(rows) for rows in example])
        n = len(parts[0]) if parts else 0
        return cls._of(np.concatenate(example), annotator, np.concatenate(labels), n, names, classes)

    @classmethod
    def from_rows(
        cls, example: Sequence[Any], annotator: Sequence[Any], label: Sequence[Any], *, classes: Sequence[Any] | None = None
    ) -> Votes:
        """One row per vote: example, annotator and label; None, NaN and −1 are missing votes.

        Args:
            example: Indices from 0 to N − 1 (V,).
            annotator: Names or numbers (V,).
            label: Class names or numbers (V,).
            classes: Class names in order; default: all labels that occur, sorted.
        """
        rows = np.asarray(example)
        if rows.dtype.kind not in "iu" or (len(rows) and rows.min() < 0):
            raise ValueError("example must hold row numbers from 0 on: the position of each example in your data")
        if not len(rows) == len(annotator) == len(label):
            raise ValueError(
                f"example, annotator and label must be equally long, got {len(rows)}, {len(annotator)}, {len(label)}"
            )
        names, who = np.unique(np.asarray(annotator), return_inverse=True)
        labels = np.asarray(label)
        labels = labels if labels.dtype.kind in "iuf" else np.array(label, dtype=object)  # NumPy would write 1 beside "a" as "1"
        cast = ~_missing(labels)
        return cls._of(rows[cast], who[cast], labels[cast], int(rows.max(initial=-1)) + 1, names.tolist(), classes)

    @classmethod
    def from_counts(cls, counts: Any, *, classes: Sequence[Any] | None = None) -> Votes:
        """Number of votes for each class on each example, (N, K), without annotators."""
        counts = np.asarray(counts, dtype=np.float64)
        if counts.ndim != 2 or not np.isfinite(counts).all() or (counts < 0).any():
            raise ValueError(f"counts must be numbers of votes (N, K), not negative, got shape {counts.shape}")
        example, label = np.nonzero(counts)
        if not len(label):
            raise ValueError("there is no vote: every count is 0")
        names = list(range(counts.shape[1])) if classes is None else list(classes)
        if len(names) != counts.shape[1]:
            raise ValueError(f"classes must name the {counts.shape[1]} columns of counts, got {len(names)}")
        return cls(example, np.zeros_like(example), label, counts[example, label], len(counts), ["everybody"], names)

    def take(self, places: Array) -> Votes:
        """The votes on the examples at these places, which are renumbered from 0."""
        number = np.full(max(self.num_examples, int(places.max(initial=-1)) + 1), NONE)
        number[places] = np.arange(len(places))
        kept = number[self.example] != NONE
        parts = (number[self.example[kept]], self.annotator[kept], self.label[kept], self.count[kept])
        return Votes(*parts, len(places), self.annotators, self.classes)

    def of_classes(self, kept: Sequence[int]) -> Votes:
        """The votes for these classes, which are renumbered in this order."""
        number = np.full(len(self.classes), NONE)
        number[list(kept)] = np.arange(len(kept))
        there = number[self.label] != NONE
        parts = (self.example[there], self.annotator[there], number[self.label[there]], self.count[there])
        return Votes(*parts, self.num_examples, self.annotators, [self.classes[k] for k in kept])

    def tally(self, n: int) -> Array:
        """Number of votes for each class on each of n examples (n, K)."""
        counts = np.zeros((n, len(self.classes)))
        np.add.at(counts, (self.example, self.label), self.count)
        return counts

    @classmethod
    def _of(
        cls, example: Array, annotator: Array, label: Array, n: int, names: Sequence[Any], classes: Sequence[Any] | None
    ) -> Votes:
        if not len(label):
            raise ValueError("there is no vote: every label is missing")
        known = _sorted_classes(label) if classes is None else list(classes)
        place = {name: k for k, name in enumerate(known)}
        if len(place) < len(known):
            raise ValueError(f"classes must differ, but {next(one for one in known if known.count(one) > 1)!r} is there twice")
        unknown = next((one for one in label.tolist() if one not in place), None)
        if unknown is not None:
            raise ValueError(f"the label {unknown!r} is not among the classes {', '.join(map(repr, known[:8]))}")
        index = np.array([place[one] for one in label.tolist()])
        return cls(example, annotator, index, np.ones(len(index)), n, list(names), known)


@dataclass(frozen=True, eq=False)
class Consensus:
    """The consensus of several annotators.

    Attributes:
        labels: The most probable class of each example (N,), an index.
        posterior: Probabilities of the classes (N, K), given all votes.
        p_right: Probability that the consensus is right (N,).
        disagreement: Probability that two more votes on the example would differ (N,): its hardness for people.
        gain: Expected increase of `p_right` by one more vote (N,).
        annotators: Table of the annotators: name, votes, quality (share of right votes), and the interval low to high.
        confusion: How often each annotator labels class t as g (A, K, K).
        weight: Exponent w of the model's probabilities; 0 without a model.
        classes: Names of the classes.
    """

    labels: Array = field(repr=False)
    posterior: Array = field(repr=False)
    p_right: Array = field(repr=False)
    disagreement: Array = field(repr=False)
    gain: Array = field(repr=False)
    annotators: pa.Table
    confusion: Array = field(repr=False)
    weight: float
    classes: Sequence[Any]

    @property
    def names(self) -> list[Any]:
        """The consensus by class names."""
        return [self.classes[k] for k in self.labels]

    def next_examples(self, number: int) -> Array:
        """The examples that one more vote each would help most, the best first."""
        return np.argsort(-self.gain, kind="stable")[:number]

    def to_pandas(self) -> Any:
        """One row per example: label, p_right, disagreement, gain."""
        columns = {"label": self.names, "p_right": self.p_right, "disagreement": self.disagreement, "gain": self.gain}
        return pa.table(columns).to_pandas()


def consensus(votes: Votes | Any, *, probs: Any = None, interval: float = 0.95) -> Consensus:
    """Combine the labels of several annotators and, optionally, a model's predictions.

    Args:
        votes: `Votes`, or one column per annotator as `Votes.from_columns` takes them.
        probs: Out-of-sample probabilities (N, K) of a model, such as one trained in folds.
        interval: Level of the intervals of the annotators' quality.

    Returns:
        The consensus of each example, the quality of each annotator, and the value of one more vote.

    Example:
        >>> agreed = mohs.consensus([["cat", "cat", "dog"], ["dog", "dog", None]])
        >>> agreed.names, agreed.annotators
    """
    check_between("interval", interval, 0, 1, ends="()")
    votes = votes if isinstance(votes, Votes) else Votes.from_columns(votes)
    n, k = votes.num_examples, len(votes.classes)
    if k < 2:
        raise ValueError(
            f"every vote is for {votes.classes[0]!r}: there is nothing to weigh; "
            "name the classes that nobody voted for with Votes.from_columns(votes, classes=...)"
        )
    logs = None if probs is None else _log_probs(probs, n, k)
    if logs is not None:
        n = len(logs)
    fit = _Fit.start(votes, n, k, logs)
    before = -math.inf
    for _ in range(ROUNDS):
        value = fit.step()
        if value - before < SETTLED * len(votes.label):
            break
        before = value
    q = fit.posterior
    best = q.argmax(1)
    everybody = fit.everybody()
    expected = q @ everybody  # of the next vote (N, K)
    cast = votes.tally(n)
    mixed = (cast + expected) / (cast.sum(1, keepdims=True) + 1)
    after = np.stack([(q * everybody[:, g]).max(1) for g in range(k)], 1).sum(1)
    return Consensus(
        labels=best,
        posterior=q,
        p_right=q[np.arange(n), best],
        disagreement=1 - (mixed**2).sum(1),
        gain=np.maximum(0.0, after - q.max(1)),
        annotators=_quality(votes, fit, interval),
        confusion=fit.confusion,
        weight=fit.weight,
        classes=votes.classes,
    )


@dataclass(eq=False)
class _Fit:
    """The parameters and the posterior; `step` is one round of expectation maximization."""

    votes: Votes
    logs: Array | None
    prior: Array  # (K,)
    weight: float
    confusion: Array  # (A, K, K)
    accuracy: Array  # (A,)
    posterior: Array  # (N, K)

    @classmethod
    def start(cls, votes: Votes, n: int, k: int, logs: Array | None) -> _Fit:
        """Start from the share of votes for each class, with the model as one more vote."""
        shares = votes.tally(n) + 0.1 / k
        if logs is not None:
            shares += np.exp(logs)
        q = shares / shares.sum(1, keepdims=True)
        a = len(votes.annotators)
        fit = cls(votes, logs, np.full(k, 1 / k), 0.0 if logs is None else 1.0, np.zeros((a, k, k)), np.zeros(a), q)
        fit._maximize()
        return fit

    def step(self) -> float:
        """Posterior, then parameters; returns the log-likelihood of the votes before the step."""
        votes = self.votes
        frequencies = np.tile(np.log(self.prior), (len(self.posterior), 1))
        joint = frequencies if self.logs is None else log_softmax(self.weight * self.logs, axis=1)
        np.add.at(joint, votes.example, votes.count[:, None] * np.log(self.confusion[votes.annotator, :, votes.label]))
        value = logsumexp(joint, axis=1, keepdims=True)
        self.posterior = np.exp(joint - value)
        self._maximize()
        return float(value.sum())

    def everybody(self) -> Array:
        """How often an annotator calls class t "g" (K, K), the average over all votes."""
        voted = np.bincount(self.votes.annotator, self.votes.count, len(self.confusion))
        mean: Array = np.tensordot(voted / voted.sum(), self.confusion, 1)
        return mean

    def _maximize(self) -> None:
        votes, q = self.votes, self.posterior
        a, k, _ = self.confusion.shape
        counts = np.zeros((a, k, k))
        np.add.at(counts.transpose(0, 2, 1), (votes.annotator, votes.label), votes.count[:, None] * q[votes.example])
        pooled = counts.sum(0)
        cast, right = counts.sum((1, 2)), counts.diagonal(0, 1, 2).sum(1)
        mean = (right.sum() + 1) / (cast.sum() + 1 + 1 / k)
        self.accuracy = (right + PULL * mean) / (cast + PULL)
        others = pooled * (1 - np.eye(k)) + 1 / k * (1 - np.eye(k))
        others /= others.sum(1, keepdims=True)
        base = self.accuracy[:, None, None] * np.eye(k) + (1 - self.accuracy)[:, None, None] * others
        self.confusion = ((counts + ROW_PULL * base) / (counts.sum(2, keepdims=True) + ROW_PULL)).clip(TINY)
        if self.logs is None:
            self.prior = (q.sum(0) + 1) / (len(q) + k)
        else:
            self._fit_weight()

    def _fit_weight(self) -> None:
        """w by Newton steps on Σ q log softmax(w s): how sharp the model's probabilities are, judged by the votes."""
        assert self.logs is not None
        for _ in range(5):
            p = softmax(self.weight * self.logs)
            mean = (p * self.logs).sum(1)
            slope = float(((self.posterior * self.logs).sum(1) - mean).sum())
            curvature = float(((p * self.logs**2).sum(1) - mean**2).sum()) + 1e-9
            self.weight = float(np.clip(self.weight + slope / curvature, 0.0, 10.0))


def _quality(votes: Votes, fit: _Fit, interval: float) -> pa.Table:
    """Each annotator's share of right votes, with an interval that accounts for the uncertainty of the true classes."""
    from scipy.stats import beta

    a = len(votes.annotators)
    right = fit.posterior[votes.example, votes.label]
    cast = np.bincount(votes.annotator, votes.count, a)
    share, unsure = fit.accuracy, np.bincount(votes.annotator, votes.count * right * (1 - right), a) / cast.clip(1)
    spread = (share * (1 - share)).clip(TINY)
    effective = (cast + PULL) * spread / (spread + unsure)
    low, high = (beta.ppf(end, share * effective, (1 - share) * effective) for end in ((1 - interval) / 2, (1 + interval) / 2))
    names = list(map(str, votes.annotators))
    return pa.table({"annotator": names, "votes": cast.astype(np.int64), "quality": share, "low": low, "high": high})


def _log_probs(probs: Any, n: int, k: int) -> Array:
    values = as_array(probs).astype(np.float64)
    if values.ndim != 2 or values.shape[1] != k or len(values) < n:
        raise ValueError(
            f"probs must have shape ({n}, {k}), a row per example and a column per class, got {values.shape}; "
            "name classes that nobody voted for with Votes.from_columns(votes, classes=...)"
        )
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("probs must be probabilities: finite, not negative; apply softmax to logits first")
    logs: Array = np.log((values / values.sum(1, keepdims=True).clip(TINY)).clip(1e-7))
    return logs


def _columns(columns: Any) -> tuple[list[Any], list[Array]]:
    """Names and values of the columns of an array or table."""
    if hasattr(columns, "column_names"):  # pyarrow
        return list(columns.column_names), [np.array(columns.column(i).to_pylist(), object) for i in range(columns.num_columns)]
    if hasattr(columns, "columns"):  # pandas
        return list(columns.columns), [columns.iloc[:, i].to_numpy(object) for i in range(columns.shape[1])]
    values = np.asarray(columns, dtype=object)
    if values.ndim != 2:
        raise ValueError(f"votes must have one row per example and one column per annotator, got shape {values.shape}")
    return list(range(values.shape[1])), list(values.T)


def _missing(values: Array) -> Array:
    """Whether a vote is None, NaN, pandas.NA or −1."""
    if values.dtype != object:
        missing: Array = (values != values) | (values == NONE)
        return missing
    return np.array(
        [not isinstance(one, str) and (one is None or _is(one != one) or _is(one == NONE)) for one in values], dtype=bool
    )


def _is(compared: Any) -> bool:
    """A comparison as bool; a comparison with pandas.NA means that the vote is missing."""
    try:
        return bool(compared)
    except TypeError:
        return True


def _sorted_classes(labels: Array) -> list[Any]:
    try:
        return sorted(set(labels.tolist()))
    except TypeError:
        kinds = sorted({type(one).__name__ for one in labels.tolist()})
        raise ValueError(f"labels must be of one type, got {' and '.join(kinds)}: is 1 the same class as '1'?") from None
