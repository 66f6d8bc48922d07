"""How likely each given label is wrong, from scores of models that did not see that label.

    p = softmax(Σ_m a_m s_m(x))                   s_m (K,): scores of model m; a_m ≥ 0; p: probabilities of the true class
    P(given = g) = Σ_t p_t T[t, g]                T[t, g]: how often an example of class t is labeled g
    P(true = t | given = g) = p_t T[t, g] / P(given = g)

a and T maximize the likelihood of the given labels: errors near a class boundary make p less sharp, labels that confident
predictions contradict fill T off its diagonal. Penalties keep the fit sober where there are few examples: each row of T is
drawn to even noise as if by 100 more examples, (Σ a)² is penalized, the rate has a Beta(½, 10) prior, and the fit
starts once from little noise and once from much, of which the likelier is kept.

Models that were fitted to wrong labels of a class pair predict them: p is then as unsure as the labels are. So sharper
predictions, 2 a and 8 a, with a T that is freer to follow the labels, replace the fit if they make held-out labels likelier;
or as likely, where all predictions are equally unsure: ambiguity varies from example to example, noise does not.

Labels alone cannot tell an ambiguous example from noise that depends on the example: both leave p unsure. The features can:
heads fitted anew to the predicted classes stay unsure near a boundary that examples crowd, and become sure where wrong labels
alone had made them doubt. With d the mean doubt 1 − max p, d' that of the refitted heads, D features and N examples,

    t = (d'/d)/min(½, √(D/N)),   ambiguity = t²/0.85 if t < 0.85, else 1

because a boundary estimated in D dimensions from N examples is uncertain by about √(D/N): on clean data of many kinds, d'/d
was never below 1.05 √(D/N), or 0.55 where that is larger. If the ambiguity is below 1, the true class has probabilities
q = softmax(f log p), with f such that the mean doubt falls to that share, and the rest of the doubt is noise, alike for all
classes of an example:

    P(right | given = g) = q_g/p_g · p_top/q_top      top: the predicted class, whose label is right

A model that expects to err often makes some of those errors confidently, and they look like wrong labels. So the odds of a
wrong label in the noise model are multiplied by

    r = 1 − κ u/e,  κ = ¼ √(50 K/N),  at least 1/50     e = mean P(wrong), u = mean(1 − max p): the errors the model expects
    r_g = r min(1, 2 n̂_g/n_g)²                           n_g examples labeled g, n̂_g predicted g

which leaves a strong judge alone and silences one that knows too little, or that does not know the class g: rare classes are
not wrong labels. Labels that look merely ambiguous are wrong in about 5 % of the cases: p_mislabeled = w + 0.05 (1 − p_g)(1 − w)
for w = r_g o/(1 + r_g o), o = P(wrong)/P(right).

The noise model is that of Patrini et al., "Making deep neural networks robust to label noise" (CVPR 2017); with one model a is
its inverse temperature, as in Guo et al., "On calibration of modern neural networks" (ICML 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.optimize import minimize

from mohs._core.validation import check_between

Array = np.ndarray[Any, Any]
MOST_ENTRIES = 200_000  # rows × classes that the model is fitted to; more change no digit that matters
STRENGTH = 100.0  # examples that even noise counts for in each row of T
SHARPNESS = 0.05  # penalty on (Σ a)²/2
RATE_PRIOR = (0.5, 10.0)  # wrong and right labels believed beforehand
ROUNDS, SETTLED = 10, 5e-5
SKEPTICISM, PER_CLASS, LEAST_TRUST = 1 / 4, 50, 0.02
SHARPER, LOOSE, HALVES, STEPS = (2.0, 8.0), (3.0, 20.0), 3, 15  # factors on a, strengths of T, folds and EM steps to compare
GAIN, GAIN_SHARE = 5.0, 0.01  # log-likelihood that sharper predictions must gain on held-out labels: in all, per example
MOST_NOISE = 0.45  # rate beyond which sharper predictions are not believed
STEADY, MOST_UNSTEADY = 0.85, 0.5  # t beyond which all doubt is ambiguity; largest ratio that is asked for
MOST_SHARP = 10.0  # largest f
SKILL = 0.1  # share of the labels beyond the largest class that a judge must predict for its doubt to mean anything
UNKNOWN_CLASS = 1e-6  # trust in the judgment of a class that is never predicted
AMBIGUOUS = 0.05  # share of labels doubted for ambiguity alone that are wrong
SLACK = 0.1  # how far below the asked precision the probability of a flagged example may be
TINY = 1e-12
LEAST_PROBABILITY = 1e-7
ROUNDING = 1e-3  # how far a row of probabilities may be from 1, as half precision leaves it


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """Weights of the M models (M,), T[true, given] (K, K), and the share of wrong labels before skepticism."""

    weights: Array
    transition: Array = field(repr=False)
    rate: float

    def probs(self, scores: Array) -> Array:
        """scores (M, N, K) -> probabilities of the true class (N, K), before the given label is known."""
        return softmax(np.tensordot(self.weights, scores, 1).astype(np.float64))

    def posterior(self, scores: Array, labels: Array) -> Array:
        """scores (M, N, K), labels (N,) -> probabilities of the true class (N, K), given the label."""
        joint = self.probs(scores) * self.transition.T[labels]
        posterior: Array = joint / (joint.sum(1, keepdims=True) + 1e-300)
        return posterior


@dataclass(frozen=True, eq=False)
class LabelJudgment:
    """The judgment on N labels.

    Attributes:
        p_mislabeled: Probability that the given label is wrong (N,).
        flagged: The largest set whose expected precision is the one asked for (N,).
        cannot_tell: Not flagged, but the judge does not support the label either (N,).
        suggested: Most probable class (N,), an index; the given one unless another is more probable.
        p_suggested: Its probability (N,).
        probs: Probabilities of the true class (N, K) that ignore the given label.
        posterior: Probabilities of the true class (N, K), given the label, before skepticism.
        rate, low, high: Share of wrong labels with its interval.
        trust: The factor r; small if the judge is too weak.
        model: The fitted noise model.
    """

    p_mislabeled: Array = field(repr=False)
    flagged: Array = field(repr=False)
    cannot_tell: Array = field(repr=False)
    suggested: Array = field(repr=False)
    p_suggested: Array = field(repr=False)
    probs: Array = field(repr=False)
    posterior: Array = field(repr=False)
    rate: float
    low: float
    high: float
    trust: float
    model: NoiseModel


def judge_labels(
    scores: Any, labels: Any, *, precision: float = 0.8, interval: float = 0.95, ambiguity: float = 1.0
) -> LabelJudgment:
    """Judge given labels by scores that are out of sample.

    Args:
        scores: Logits, log-probabilities or probabilities (N, K), or those of several models (M, N, K); an array or tensor.
            The labels must have had no part in their own scores: cross-validation, or a network that does not memorize. A
            row with NaN or infinity is not judged.
        labels: Class indices (N,), an array or tensor.
        precision: Expected share of the flagged examples whose label is wrong.
        interval: Level of the interval of the share of wrong labels.
        ambiguity: Share of the judge's doubt that is due to ambiguous examples rather than to wrong labels, if it is known
            from elsewhere (`ambiguous_share`).

    Returns:
        The probability that each label is wrong, the labels to flag, suggested labels, and the share of wrong labels.

    Example:
        >>> probs = cross_val_predict(model, x, y, method="predict_proba")
        >>> judgment = mohs.judge_labels(probs, y)
        >>> x[judgment.flagged]
    """
    check_between("precision", precision, 0, 1, ends="()")
    check_between("interval", interval, 0, 1, ends="()")
    check_between("ambiguity", ambiguity, 0, 1)
    s, y = _checked(_array(scores), _array(labels))
    known: Array = np.asarray(np.isfinite(s).all((0, 2)))
    if not known.any():
        raise ValueError("scores hold no row without NaN or infinity: there is nothing to judge by")
    s = np.stack([_logs(one, known) for one in s])
    z = NormalDist().inv_cdf((1 + interval) / 2)
    return _judgment(fit_noise(s[:, known], y[known]), s, y, known, precision, z, ambiguity)


def ambiguous_share(probs: Array, again: Array, labels: Array, *, width: int) -> float:
    """Share of a judge's doubt that is due to ambiguous examples; the rest is due to wrong labels.

    Args:
        probs: Out-of-sample probabilities (N, K) of models fitted to the labels.
        again: The same of models fitted to the classes that models of the first kind predict.
        labels: Class indices (N,).
        width: Number of features D.
    """
    doubt, doubt_again = (float((1 - p.max(1)).mean()) for p in (probs, again))
    largest = float(np.bincount(labels).max()) / len(labels)
    agreement = float((probs.argmax(1) == labels).mean())
    if agreement < largest + SKILL * (1 - largest):  # a judge without skill is sure of the largest class, and steady in that
        return 1.0
    t = doubt_again / max(doubt, TINY) / min(MOST_UNSTEADY, math.sqrt(width / len(labels)))
    return 1.0 if t >= STEADY else t * t / STEADY


def _array(values: Any) -> Array:
    """An array or tensor as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values  # NumPy has no bfloat16
    return np.asarray(values)


def _checked(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Scores (M, N, K) in float32 and labels (N,); raise ValueError unless they fit each other."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be class indices of shape (N,), got shape {labels.shape} of {labels.dtype}")
    if scores.ndim not in (2, 3) or scores.shape[-2] != len(labels) or scores.dtype.kind not in "fiu":
        raise ValueError(f"scores must have shape (N, K) or (M, N, K) for {len(labels)} labels, got {scores.shape}")
    classes = scores.shape[-1]
    if classes < 2:
        raise ValueError(f"scores must have a column for each of at least 2 classes, got {classes}")
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f"labels[{row}] is {labels[row]}, but scores have {classes} classes: labels must be 0..{classes - 1}")
    return scores.reshape(-1, len(labels), classes).astype(np.float32), labels.astype(np.int64)


def _logs(scores: Array, known: Array) -> Array:
    """Scores (N, K) of one model; their logarithms if all known rows are probabilities."""
    rows = scores[known]
    if (rows >= 0).all() and (np.abs(rows.sum(1) - 1) < ROUNDING).all():
        scores = np.log(scores.clip(LEAST_PROBABILITY))
    return scores


def _judgment(model: NoiseModel, s: Array, y: Array, known: Array, precision: float, z: float, ambiguity: float) -> LabelJudgment:
    (_, n, k), rows = s.shape, np.arange(s.shape[1])
    filled = np.where(known[None, :, None], s, 0.0)
    p, posterior = model.probs(filled), model.posterior(filled, y)
    right = posterior[rows, y].clip(TINY, 1)
    apparent, unsure = float(1 - right[known].mean()), float((1 - p.max(1))[known].mean())
    kappa = SKEPTICISM * math.sqrt(PER_CLASS * k / known.sum())
    trust = float(np.clip(1 - kappa * unsure / max(apparent, 1e-9), LEAST_TRUST, 1))
    by_class = class_trust(p, y, known)
    wrong = _scaled_odds(1 - right, trust * by_class)
    if ambiguity < 1:
        q = sharpen(p, known, ambiguity)
        beyond = _scaled_odds(1 - kept_right(p, q, y), by_class)
        p, posterior = q, _with_noise(posterior, q, y, beyond)
        wrong = 1 - (1 - wrong) * (1 - beyond)
    wrong = wrong + AMBIGUOUS * (1 - p[rows, y]) * (1 - wrong)
    flagged = known & choose_flags(np.where(known, wrong, 0.0), precision)
    others = posterior.copy()
    others[rows, y] = 0
    best = others.argmax(1)
    p_best = wrong * others[rows, best] / others.sum(1).clip(1e-300)
    moved = known & (p_best > 1 - wrong)
    rate, doubted = float(wrong[known].mean()), float((p.argmax(1) != y)[known].mean())
    sure = max(0.0, apparent - 2 * kappa * unsure)
    return LabelJudgment(
        p_mislabeled=np.where(known, wrong, np.nan),
        flagged=flagged,
        cannot_tell=known & ~flagged & (p[rows, y] < 0.5),
        suggested=np.where(moved, best, y),
        p_suggested=np.where(known, np.where(moved, p_best, 1 - wrong), np.nan),
        probs=np.where(known[:, None], p, np.nan),
        posterior=posterior,
        rate=rate,
        low=max(0.0, min(sure, rate) - _spread(sure, n, z)),
        high=min(1.0, max(rate, apparent, doubted) + _spread(max(rate, doubted), n, z)),
        trust=trust,
        model=model,
    )


def _scaled_odds(wrong: Array, factor: Any) -> Array:
    """Probabilities (N,) whose odds are multiplied by the factor."""
    odds = factor * wrong.clip(TINY) / (1 - wrong).clip(TINY)
    scaled: Array = odds / (1 + odds)
    return scaled


def sharpen(p: Array, known: Array, share: float) -> Array:
    """softmax(f log p) (N, K), f ≥ 1 such that the mean doubt of the known rows falls to this share of it."""
    logs, goal = np.log(p.clip(TINY)), share * float((1 - p.max(1))[known].mean())
    low, high = 1.0, MOST_SHARP
    for _ in range(30):
        middle = math.sqrt(low * high)
        unsure = float((1 - softmax(middle * logs[known]).max(1)).mean())
        low, high = (middle, high) if unsure > goal else (low, middle)
    return softmax(low * logs)


def kept_right(p: Array, q: Array, y: Array) -> Array:
    """P(right | given) (N,): P(given) by p, of the true class by q (N, K), the same share of labels kept in all classes."""
    rows, top = np.arange(len(y)), p.argmax(1)
    kept = np.minimum(1, p[rows, top] / q[rows, top].clip(TINY))
    right: Array = np.where(y == top, 1.0, np.minimum(1, kept * q[rows, y] / p[rows, y].clip(TINY)))
    return right


def _with_noise(posterior: Array, q: Array, y: Array, wrong: Array) -> Array:
    """The posterior (N, K) where a label may also be wrong by noise that p had taken for ambiguity."""
    others = q.copy()
    others[np.arange(len(y)), y] = 0
    others /= others.sum(1, keepdims=True).clip(1e-300)
    mixed: Array = (1 - wrong)[:, None] * posterior + wrong[:, None] * others
    return mixed


def class_trust(p: Array, labels: Array, known: Array) -> Array:
    """min(1, 2 n̂_g/n_g)² of each example's label (N,), at least 1e-6: small for a class that is hardly predicted."""
    k = p.shape[1]
    given, predicted = (np.bincount(one[known], minlength=k) for one in (labels, p.argmax(1)))
    share = np.minimum(1, 2 * predicted / np.maximum(given, 1)) ** 2
    trust: Array = np.maximum(share, UNKNOWN_CLASS)[labels]
    return trust


def choose_flags(p: Array, precision: float) -> Array:
    """The largest set (N,) whose mean probability is at least `precision`, each at least `precision` − SLACK."""
    order = np.argsort(-p, kind="stable")
    mean = np.cumsum(p[order]) / np.arange(1, len(p) + 1)
    last = np.flatnonzero((mean >= precision) & (p[order] >= precision - SLACK))
    flagged = np.zeros(len(p), dtype=bool)
    flagged[order[: last[-1] + 1 if len(last) else 0]] = True
    return flagged


def fit_noise(scores: Array, labels: Array) -> NoiseModel:
    """scores (M, N, K), finite, and labels (N,) -> weights a and T of the highest penalized likelihood."""
    step = max(1, -(-scores.shape[1] * scores.shape[2] // MOST_ENTRIES))
    scores, y = scores[:, ::step], labels[::step]
    m, _, k = scores.shape
    size = np.sqrt(((scores - scores.mean(2, keepdims=True)) ** 2).mean((1, 2))) + TINY
    s = ((scores - scores.mean(2, keepdims=True)) / size[:, None, None]).astype(np.float32)
    given = np.unique(y)
    first = _alternate(s, y, np.full(m, 1.0 / m), Transition.even(0.02, k, given))  # from little noise
    sharp = np.maximum(first[1], 0.02) * 2.5  # and from much
    start = _transition_step(s, y, sharp, Transition.even(0.2, k, given), times=15, pull=2.0)[0]
    second = _alternate(s, y, sharp, start)
    _, weights, transition, rate = max(first, second, key=lambda fit: fit[0])
    factor, transition, rate = _sharpened(softmax(np.tensordot(weights.astype(np.float32), s, 1)), y, transition, rate)
    return NoiseModel(factor * weights / size, transition.dense(), rate)


@dataclass(frozen=True, eq=False)
class Transition:
    """T[true, given] during the fit: G of its K columns in full; the others, of classes that no label has, are even.

    Attributes:
        given: The classes (G,) that labels have, sorted.
        columns: Their columns, as rows (G, K).
        rest: Entry of each row (K,) in every other column, off the diagonal.
        own: Entry of each row (K,) on the diagonal, where its column is among the others.
    """

    given: Array
    columns: Array
    rest: Array
    own: Array

    @staticmethod
    def even(rate: float, classes: int, given: Array) -> Transition:
        """The same share of wrong labels in all classes, spread evenly over the others."""
        off, on = rate / max(classes - 1, 1), 1 - rate
        columns = np.full((len(given), classes), off)
        columns[np.arange(len(given)), given] = on
        return Transition(given, columns, np.full(classes, off), np.full(classes, on))

    def of_labels(self, y: Array) -> Array:
        """Labels (N,) -> how often each true class is labeled so (N, K)."""
        entries: Array = self.columns[np.searchsorted(self.given, y)]
        return entries

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
    """A factor on the weights with the T and rate that go with it, if they make held-out labels likelier; else those given."""
    log_p, k = np.log(p.astype(np.float64).clip(TINY)), p.shape[1]
    fold = np.random.default_rng(0).permutation(len(y)) % HALVES
    even = Transition.even(0.1, k, transition.given)

    def held_out(q: Array, pull: float) -> float:
        value = 0.0
        for f in range(HALVES):
            table, _, _ = _fit_transition(q[fold != f], y[fold != f], even, times=STEPS, pull=pull)
            value += float(np.log((q[fold == f] * table.of_labels(y[fold == f])).sum(1) + 1e-300).sum())
        return value

    gain = max(GAIN, GAIN_SHARE * len(y))
    best, chosen = held_out(p.astype(np.float64), STRENGTH) + (-gain if saturated(p) else gain), (1.0, STRENGTH)
    for factor in SHARPER:
        q = softmax(factor * log_p)
        for pull in LOOSE:
            value = held_out(q, pull)
            if value > best:
                best, chosen = value, (factor, pull)
    if chosen[0] == 1.0:
        return 1.0, transition, rate
    table, sharp_rate, _ = _fit_transition(softmax(chosen[0] * log_p), y, even, times=2 * STEPS, pull=chosen[1])
    if sharp_rate > MOST_NOISE:  # T has become the judge's own confusion matrix
        return 1.0, transition, rate
    return chosen[0], table, sharp_rate


def saturated(p: Array) -> bool:
    """Whether predictions p (N, K) are equally unsure everywhere, as wrong labels make a judge that tells the classes apart."""
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
    """a (M,) by L-BFGS for fixed T."""
    column = transition.of_labels(y).astype(np.float32)
    flat = s.reshape(len(s), -1)

    def value_and_gradient(a: Array) -> tuple[float, Array]:
        p = softmax(np.tensordot(a.astype(np.float32), s, 1))
        joint = p * column
        given = joint.sum(1, keepdims=True) + 1e-30
        pull = p - joint / given
        gradient = (flat @ pull.ravel()).astype(np.float64) + SHARPNESS * float(a.sum())
        return float(-np.log(given).sum() + 0.5 * SHARPNESS * a.sum() ** 2), gradient

    found = minimize(value_and_gradient, weights, jac=True, method="L-BFGS-B", bounds=[(0, 30)] * len(s), options={"maxiter": 10})
    return np.asarray(found.x)


def _transition_step(
    s: Array, y: Array, weights: Array, table: Transition, *, times: int, pull: float
) -> tuple[Transition, float, float]:
    """T for fixed a, with its rate and penalized log-likelihood."""
    p = softmax(np.tensordot(weights.astype(np.float32), s, 1)).astype(np.float64)
    return _fit_transition(p, y, table, times=times, pull=pull)


def _fit_transition(p: Array, y: Array, table: Transition, *, times: int, pull: float) -> tuple[Transition, float, float]:
    """T by expectation maximization for p (N, K) and labels (N,), with its rate and penalized log-likelihood: O(N K) a step."""
    n, k = p.shape
    order = np.argsort(y, kind="stable")
    p, y = p[order], y[order]
    labels, first = np.unique(y, return_index=True)  # in p, the rows of each label follow each other
    place = np.searchsorted(table.given, labels)
    rate = value = 0.0
    for _ in range(times):
        joint = p * table.of_labels(y)
        given = joint.sum(1, keepdims=True) + 1e-300
        counts = np.zeros_like(table.columns)  # (given, true)
        counts[place] = np.add.reduceat(joint / given, first)
        right = float(counts[np.arange(len(counts)), table.given].sum())
        rate = float(np.clip((n - right + RATE_PRIOR[0]) / (n + sum(RATE_PRIOR)), 1e-5, 0.9))
        even = Transition.even(rate, k, table.given)
        value = float(np.log(given).sum() + pull * table.distance(even))
        value += RATE_PRIOR[0] * math.log(rate) + RATE_PRIOR[1] * math.log1p(-rate)
        total = counts.sum(0) + pull
        table = Transition(table.given, (counts + pull * even.columns) / total, pull * even.rest / total, pull * even.own / total)
    return table, rate, value


def softmax(z: Array) -> Array:
    """z (N, K) -> (N, K)."""
    e = np.exp(z - z.max(1, keepdims=True))
    normalized: Array = e / e.sum(1, keepdims=True)
    return normalized


def _spread(share: float, n: int, z: float) -> float:
    """Half the width of a share's interval from n examples."""
    return z * math.sqrt(max(share * (1 - share), 1 / n) / n)
