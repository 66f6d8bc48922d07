"""A model of noisy labels: how often an example of one class is labeled as another, from scores that did not see the labels.

    p = softmax(Σ_m a_m s_m(x))                   s_m (K,): scores of model m; a_m ≥ 0; p: probabilities of the true class
    P(given = g) = Σ_t p_t T[t, g]                T[t, g]: how often an example of class t is labeled g
    P(true = t | given = g) = p_t T[t, g] / P(given = g)

a and T maximize the likelihood of the given labels: errors near a class boundary make p less sharp, labels that contradict
confident predictions fill T off its diagonal. Penalties regularize the fit when examples are few: each row of T is shrunk toward
uniform noise as if by 100 more examples, (Σ a)² is penalized, the rate has a Beta(½, 10) prior, and the fit starts once from
little noise and once from much; the more likely result is kept.

Models that were fitted to wrong labels of a class pair predict them: p is then as uncertain as the labels. So sharper
predictions, 2 a and 8 a, with a T that is freer to follow the labels, replace the fit if they make held-out labels more likely,
or equally likely if all predictions are equally uncertain: ambiguity varies from example to example, noise does not.

During the fit arrays are class by class, (K, N): sums over few classes are then sums of long rows, which NumPy vectorizes.

The noise model is that of Patrini et al., "Making deep neural networks robust to label noise" (CVPR 2017); with one model a is
its inverse temperature, as in Guo et al., "On calibration of modern neural networks" (ICML 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize

Array = np.ndarray[Any, Any]
MOST_ENTRIES = 200_000  # rows × classes that the model is fitted to; more change no relevant digit
STRENGTH = 100.0  # prior examples of uniform noise in each row of T
SHARPNESS = 0.05  # penalty on (Σ a)²/2
RATE_PRIOR = (0.5, 10.0)  # Beta prior on the rate: wrong and right labels
ROUNDS, SETTLED = 10, 5e-5
SHARPER, LOOSE, HALVES, STEPS = (2.0, 8.0), (3.0, 20.0), 3, 15  # factors on a, strengths of T, folds and EM steps to compare
GAIN, GAIN_SHARE = 5.0, 0.01  # log-likelihood that sharper predictions must gain on held-out labels: in total, per example
MOST_NOISE = 0.45  # rate beyond which sharper predictions are rejected
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """Weights of the M models (M,), T[true, given] (K, K), and the share of wrong labels before `judgment` scales it."""

    weights: Array
    transition: Array = field(repr=False)
    rate: float

    def probs(self, scores: Array) -> Array:
        """scores (M, N, K) -> probabilities of the true class (N, K), before the given label is known."""
        return softmax(np.tensordot(self.weights, scores, 1).astype(np.float64))

    def posterior(self, probs: Array, labels: Array) -> Array:
        """Output of `probs` (N, K), labels (N,) -> probabilities of the true class (N, K), given the label."""
        joint = probs * self.transition.T[labels]
        posterior: Array = joint / (joint.sum(1, keepdims=True) + 1e-300)
        return posterior


def fit_noise(scores: Array, labels: Array) -> NoiseModel:
    """scores (M, N, K), finite, and labels (N,) -> weights a and T of the highest penalized likelihood."""
    step = max(1, -(-scores.shape[1] * scores.shape[2] // MOST_ENTRIES))
    scores, y = scores[:, ::step], labels[::step]
    m, _, k = scores.shape
    centered = np.ascontiguousarray(scores.swapaxes(1, 2))  # (M, K, N)
    centered = centered - centered.mean(1, keepdims=True)
    size = np.sqrt((centered**2).mean((1, 2))) + TINY
    s = (centered / size[:, None, None]).astype(np.float32)
    given = np.unique(y)
    first = _alternate(s, y, np.full(m, 1.0 / m), Transition.even(0.02, k, given))  # from little noise
    sharp = np.maximum(first[1], 0.02) * 2.5  # and from much
    start = _transition_step(s, y, sharp, Transition.even(0.2, k, given), times=15, pull=2.0)[0]
    second = _alternate(s, y, sharp, start)
    _, weights, transition, rate = max(first, second, key=lambda fit: fit[0])
    factor, transition, rate = _sharpened(_weighed(weights, s), y, transition, rate)
    return NoiseModel(factor * weights / size, transition.dense(), rate)


@dataclass(frozen=True, eq=False)
class Transition:
    """T[true, given] during the fit: G of its K columns are stored; the others, of classes that no label has, are uniform.

    Attributes:
        given: The classes (G,) that labels have, sorted.
        columns: Their columns, as rows (G, K).
        rest: Entry of each row (K,) in every other column, off the diagonal.
        own: Diagonal entry of each row (K,), if its column is not stored.
    """

    given: Array
    columns: Array
    rest: Array
    own: Array

    @staticmethod
    def even(rate: float, classes: int, given: Array) -> Transition:
        """Uniform noise: the same share of wrong labels in all classes, spread evenly over the other classes."""
        off, on = rate / max(classes - 1, 1), 1 - rate
        columns = np.full((len(given), classes), off)
        columns[np.arange(len(given)), given] = on
        return Transition(given, columns, np.full(classes, off), np.full(classes, on))

    def of_labels(self, y: Array) -> Array:
        """Labels (N,) -> how often each true class is labeled so (K, N)."""
        return np.take(self.columns.T, np.searchsorted(self.given, y), 1)

    def distance(self, even: Transition) -> float:
        """Σ E log(T/E) over all K × K entries of an even table E: 0 for the same, negative otherwise."""
        value = float((even.columns * np.log(self.columns / even.columns)).sum())
        classes = len(self.rest)
        if len(self.given) < classes:
            missing = np.ones(classes, bool)
            missing[self.given] = False
            others = classes - len(self.given) - missing
            value += float((others * even.rest * np.log(self.rest / even.rest)).sum())
            value += float((even.own * np.log(self.own / even.own))[missing].sum())
        return value

    def dense(self) -> Array:
        """T (K, K)."""
        table = np.repeat(self.rest[:, None], len(self.rest), 1)
        np.fill_diagonal(table, self.own)
        table[:, self.given] = self.columns.T
        return table


def _sharpened(p: Array, y: Array, transition: Transition, rate: float) -> tuple[float, Transition, float]:
    """A factor on the weights with the T and rate that go with it, if they make held-out labels more likely; else the given ones.

    p: (K, N).
    """
    log_p, k = np.log(p.astype(np.float64).clip(TINY)), len(p)
    fold = np.random.default_rng(0).permutation(len(y)) % HALVES
    parts = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(HALVES)]
    even = Transition.even(0.1, k, transition.given)

    def held_out(q: Array, pull: float) -> float:
        value = 0.0
        for seen, unseen in parts:
            table, _, _ = _fit_transition(q[:, seen], y[seen], even, times=STEPS, pull=pull)
            value += float(np.log((q[:, unseen] * table.of_labels(y[unseen])).sum(0) + 1e-300).sum())
        return value

    gain = max(GAIN, GAIN_SHARE * len(y))
    best, chosen = held_out(p.astype(np.float64), STRENGTH) + (-gain if saturated(p.T) else gain), (1.0, STRENGTH)
    for factor in SHARPER:
        q = softmax(factor * log_p, axis=0)
        for pull in LOOSE:
            value = held_out(q, pull)
            if value > best:
                best, chosen = value, (factor, pull)
    if chosen[0] == 1.0:
        return 1.0, transition, rate
    table, sharp_rate, _ = _fit_transition(softmax(chosen[0] * log_p, axis=0), y, even, times=2 * STEPS, pull=chosen[1])
    if sharp_rate > MOST_NOISE:  # T has become the judge's own confusion matrix
        return 1.0, transition, rate
    return chosen[0], table, sharp_rate


def saturated(p: Array) -> bool:
    """Whether predictions p (N, K) are equally uncertain everywhere, as wrong labels make a judge that separates the classes."""
    top, predicted = p.max(1), p.argmax(1)
    ceilings = np.array([np.quantile(top[predicted == k], 0.9) if (predicted == k).any() else 1.0 for k in range(p.shape[1])])
    near = float((top >= ceilings[predicted] - 0.1).mean())
    return near >= 0.8 and float(np.median(top)) >= 0.7 and float(ceilings[predicted].mean()) <= 0.985


def _alternate(s: Array, y: Array, weights: Array, transition: Transition) -> tuple[float, Array, Transition, float]:
    """Fit weights and T in turn until the likelihood settles: (value, a, T, rate)."""
    before = value = -math.inf
    rate = 0.0
    for _ in range(ROUNDS):
        weights = _weights_step(s, y, weights, transition)
        transition, rate, value = _transition_step(s, y, weights, transition, times=4, pull=STRENGTH)
        value -= 0.5 * SHARPNESS * float(weights.sum()) ** 2
        if value - before < SETTLED * len(y):
            break
        before = value
    return value, weights, transition, rate


def _weights_step(s: Array, y: Array, weights: Array, transition: Transition) -> Array:
    """a (M,) by L-BFGS for fixed T; s: (M, K, N)."""
    column = transition.of_labels(y).astype(np.float32)
    flat = s.reshape(len(s), -1)

    def value_and_gradient(a: Array) -> tuple[float, Array]:
        p = _weighed(a, s)
        joint = p * column
        given = joint.sum(0) + 1e-30
        p -= np.divide(joint, given, out=joint)
        gradient = (flat @ p.ravel()).astype(np.float64) + SHARPNESS * float(a.sum())
        return float(-np.log(given).sum() + 0.5 * SHARPNESS * a.sum() ** 2), gradient

    found = minimize(value_and_gradient, weights, jac=True, method="L-BFGS-B", bounds=[(0, 30)] * len(s), options={"maxiter": 10})
    return np.asarray(found.x)


def _transition_step(
    s: Array, y: Array, weights: Array, table: Transition, *, times: int, pull: float
) -> tuple[Transition, float, float]:
    """T for fixed a, with its rate and penalized log-likelihood; s: (M, K, N)."""
    return _fit_transition(_weighed(weights, s).astype(np.float64), y, table, times=times, pull=pull)


def _weighed(weights: Array, s: Array) -> Array:
    """Weights (M,), scores (M, K, N) -> probabilities of the true class (K, N) in float32."""
    return softmax(np.tensordot(weights.astype(np.float32), s, 1), axis=0)


def _fit_transition(p: Array, y: Array, table: Transition, *, times: int, pull: float) -> tuple[Transition, float, float]:
    """T by expectation maximization for p (K, N) and labels (N,), with its rate and penalized log-likelihood: O(N K) a step."""
    k, n = p.shape
    order = np.argsort(y, kind="stable")
    p, y = p[:, order], y[order]
    labels, first = np.unique(y, return_index=True)  # in p, the examples of each label follow each other
    place = np.searchsorted(table.given, labels)
    rate = value = 0.0
    for _ in range(times):
        joint = p * table.of_labels(y)
        given = joint.sum(0) + 1e-300
        counts = np.zeros_like(table.columns)  # (given, true)
        counts[place] = np.add.reduceat(joint / given, first, axis=1).T
        right = float(counts[np.arange(len(counts)), table.given].sum())
        rate = float(np.clip((n - right + RATE_PRIOR[0]) / (n + sum(RATE_PRIOR)), 1e-5, 0.9))
        even = Transition.even(rate, k, table.given)
        value = float(np.log(given).sum() + pull * table.distance(even))
        value += RATE_PRIOR[0] * math.log(rate) + RATE_PRIOR[1] * math.log1p(-rate)
        total = counts.sum(0) + pull
        table = Transition(table.given, (counts + pull * even.columns) / total, pull * even.rest / total, pull * even.own / total)
    return table, rate, value


def softmax(z: Array, axis: int = 1) -> Array:
    """Scores -> probabilities of the classes, which lie along this axis."""
    p: Array = z - z.max(axis, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis, keepdims=True)
    return p
