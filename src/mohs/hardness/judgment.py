"""How likely each given label is wrong: the noise model, the trust in it, and the labels to flag.

P(true | given) comes from the noise model (`noise_model`), fitted to scores of models that did not see the labels.

Labels alone cannot distinguish an ambiguous example from noise that depends on the example: both make p uncertain. The features
can: heads refitted to the predicted classes stay uncertain near a crowded class boundary, and become certain where only wrong
labels had made them doubt. With d the mean doubt 1 − max p, d' that of the refitted heads, D features and N examples,

    t = (d'/d)/min(½, √(D/N)),   ambiguity = t²/0.85 if t < 0.85, else 1

because a boundary estimated in D dimensions from N examples is uncertain by about √(D/N): t was never below 1.05 on 35 clean
data sets of 2 to 3,072 features (results/audit/ambiguity.csv). If the ambiguity is below 1, the true class has probabilities
q = softmax(f log p), with f such that the mean doubt falls to that share; the rest of the doubt is noise, equal for all classes
of an example:

    P(right | given = g) = q_g/p_g · p_top/q_top      top: the predicted class, whose label is right

A model that expects to err often makes some errors with confidence, and these look like wrong labels. So the odds of a
wrong label in the noise model are multiplied by

    r = 1 − κ u/e,  κ = ¼ √(50 K/N),  at least 1/50     e = mean P(wrong), u = mean(1 − max p): the errors the model expects
    r_g = r min(1, 2 n̂_g/n_g)²                           n_g examples labeled g, n̂_g predicted g

which hardly affects a strong judge and silences one that is weak, or weak on class g: rare classes are not wrong labels. r_g = 0
for a judge that agrees with the labels no more often than by chance, for example because examples with equal features have
different labels by design. If the judge does not make the labels more likely than the shares of the classes do either, r = 0, and
it cannot tell about any label. Where examples come in groups, N counts groups,
and groups that share a label are judged as one (`group_units`).

Labels that look merely ambiguous are wrong in about 5 % of the cases: p_mislabeled = w + 0.05 (1 − p_g)(1 − w) for
w = r_g o/(1 + r_g o), o = P(wrong)/P(right). This is the rule. Where there are refitted heads, it is one of the signals from
which `learned_odds` computes p_mislabeled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from mohs._core.arrays import as_array
from mohs._core.group_numbers import group_numbers
from mohs._core.validation import check_between
from mohs.hardness.annotators import Consensus
from mohs.hardness.checked_labels import Checks
from mohs.hardness.group_units import share_labels, unit_means, units_of
from mohs.hardness.label_rows import Smooth, label_rows, log_scores
from mohs.hardness.learned_odds import LEAST, Refit, learned_wrong, signs_of
from mohs.hardness.noise_model import TINY, Array, NoiseModel, fit_noise, softmax

SKEPTICISM, PER_CLASS, LEAST_TRUST = 1 / 4, 50, 0.02
STEADY, MOST_UNSTEADY = 0.85, 0.5  # t beyond which all doubt is ambiguity; largest value of √(D/N) in t
MOST_SHARP = 10.0  # largest f
SKILL = 0.1  # skill (share of labels predicted beyond the largest class) that a judge needs for its doubt to be meaningful
UNKNOWN_CLASS = 1e-6  # trust in the judgment of a class that is never predicted
BEYOND_CHANCE = 2.0  # standard deviations by which agreement with the labels must exceed chance
AMBIGUOUS = 0.05  # share of wrong labels among those that look merely ambiguous
SLACK = 0.2  # how far below the target precision the probability of a flagged example may be


@dataclass(frozen=True, eq=False, repr=False)
class LabelJudgment:
    """The judgment on N labels.

    Attributes:
        p_mislabeled: Probability that the given label is wrong (N,).
        flagged: The largest set with at least the target expected precision (N,).
        cannot_tell: Not flagged, but the judge does not support the label either (N,).
        suggested: Most probable class (N,), an index; the given one unless another is more probable.
        p_suggested: Its probability (N,).
        probs: Probabilities of the true class (N, K) that ignore the given label.
        posterior: Probabilities of the true class (N, K), given the label, before the factor r.
        rate, low, high: Share of wrong labels with its interval.
        trust: The factor r; small if the judge is too weak, and 0 if it knows nothing about the labels.
        model: The fitted noise model.
        consensus: Consensus of people and judge, where people voted (`judge_votes`).
        checks: The effect of checked labels (`judge_checks`).
    """

    p_mislabeled: Array
    flagged: Array
    cannot_tell: Array
    suggested: Array
    p_suggested: Array
    probs: Array
    posterior: Array
    rate: float
    low: float
    high: float
    trust: float
    model: NoiseModel
    consensus: Consensus | None = None
    checks: Checks | None = None

    def __repr__(self) -> str:
        labels = f"{len(self.flagged):,} labels, {self.flagged.sum():,} flagged, {self.cannot_tell.sum():,} cannot tell"
        return f"LabelJudgment({labels}; {self.rate:.1%} wrong, between {self.low:.1%} and {self.high:.1%})"

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the judgment, for the report."""
        trust: dict[str, Any] = {"trust": round(self.trust, 3)}
        if self.checks is None:
            return trust
        return {**trust, "checked labels": self.checks.summary, "calibration": list(self.checks.calibration)}

    @property
    def annotators(self) -> pa.Table | None:
        """The quality of each annotator, where people voted."""
        return None if self.consensus is None else self.consensus.annotators


def judge_labels(
    scores: Any,
    labels: Any,
    *,
    precision: float = 0.8,
    interval: float = 0.95,
    ambiguity: float = 1.0,
    refit: Refit | None = None,
    model: NoiseModel | None = None,
    groups: Any = None,
) -> LabelJudgment:
    """Judge given labels by out-of-sample scores.

    Args:
        scores: Logits, log-probabilities or probabilities (N, K), or those of several models (M, N, K); an array or tensor.
            They must be out of sample: from cross-validation, or from a network that does not memorize. A row with NaN or
            infinity is not judged; where most rows are probabilities, one that is not is an error. For tokens and pixels
            (N, K, d1, ...), or a list of (T, K).
        labels: Class indices (N,), an array or tensor; (N, K) of 0 and 1, if an example can have several classes; (N, d1, ...),
            or a list of (T,). Entries of −100 are left out.
        precision: Expected precision: share of the flagged labels that are wrong.
        interval: Level of the interval of the share of wrong labels.
        ambiguity: Share of the judge's doubt that is due to ambiguous examples rather than to wrong labels, if it is known
            from elsewhere (`ambiguous_share`).
        refit: Predictions of models that were fitted to the predicted classes. With these, networks trained on other data sets
            compute p_mislabeled (`learned_odds`), unless groups are few or the scores say little about the labels.
            For one label per example only.
        model: A noise model that is already fitted to these labels and these scores, which are then logits.
        groups: Names or numbers (N,) of groups of examples that depend on each other, such as a patient's, if models that saw
            none of a group scored it; an example whose name is missing is a group by itself. Groups that share a label are
            judged as one (`group_units`); where groups are few, little is flagged. For one label per example only.

    Returns:
        The probability that each label is wrong, the labels to flag, suggested labels, and the share of wrong labels. Where an
        example has several labels, entries are those of its labeled parts, in the order of `score_logits`.

    Example:
        >>> probs = cross_val_predict(model, x, y, method="predict_proba")
        >>> judgment = mohs.judge_labels(probs, y)
        >>> x[judgment.flagged]
    """
    check_between("precision", precision, 0, 1, ends="()")
    check_between("interval", interval, 0, 1, ends="()")
    check_between("ambiguity", ambiguity, 0, 1)
    s, y, smooth = label_rows(scores, labels)
    known: Array = np.asarray(np.isfinite(s).all((0, 2)))
    if not known.any():
        raise ValueError("scores hold no row without NaN or infinity: there is nothing to judge by")
    if model is None:
        s = np.stack([log_scores(one) for one in s])
    z = NormalDist().inv_cdf((1 + interval) / 2)
    units = examples = int(known.sum())
    if groups is not None:
        groups = as_array(groups)
        groups = group_numbers(groups).numpy() if groups.ndim == 1 and groups.dtype.kind not in "iu" else groups
        if groups.shape != y.shape:
            raise ValueError(f"groups must have shape {y.shape}, one per label, got {groups.shape}")
        if share_labels(groups, y):
            return _judge_groups(s, y, known, groups, refit, precision=precision, interval=interval)
        units = len(np.unique(groups[known]))
    rule = fit_rule(s[:, known], y[known], ambiguity=ambiguity, model=model, units=units)
    if units < LEAST <= examples:  # the networks would treat the examples of a few groups as independent
        refit = None
    return _judgment(rule, s, y, known, precision, z, smooth, refit, units)


def _judge_groups(
    s: Array, y: Array, known: Array, groups: Array, refit: Refit | None, *, precision: float, interval: float
) -> LabelJudgment:
    """Judge groups that share a label as one: each by the mean scores (M, U, K) of its examples."""
    unit = units_of(groups[known], y[known])
    first = np.unique(unit, return_index=True)[1]
    labels = y[known][first]
    scores = np.stack([log_scores(unit_means(one[known], unit)) for one in s])
    ambiguity, again = 1.0, None
    if refit is not None:
        again = Refit(unit_means(refit.probs[known], unit), refit.width, refit.kind)
        ambiguity = ambiguous_share(fit_noise(scores, labels).probs(scores), again.probs, labels, width=refit.width)
    found = judge_labels(scores, labels, precision=precision, interval=interval, ambiguity=ambiguity, refit=again)
    given = np.zeros((len(y), s.shape[2]))
    rows: dict[str, Array] = {
        "p_mislabeled": np.full(len(y), np.nan),
        "flagged": np.zeros(len(y), bool),
        "cannot_tell": np.zeros(len(y), bool),
        "suggested": y.copy(),
        "p_suggested": np.full(len(y), np.nan),
        "probs": np.full(given.shape, np.nan),
        "posterior": given,
    }
    for name, values in rows.items():
        values[known] = getattr(found, name)[unit]
    return replace(found, **rows)  # type: ignore[arg-type]


def ambiguous_share(probs: Array, again: Array, labels: Array, *, width: int) -> float:
    """Share of a judge's doubt that is due to ambiguous examples; the rest is due to wrong labels.

    Args:
        probs: Out-of-sample probabilities (N, K) of models fitted to the labels.
        again: The same of models fitted to the classes that models of the first kind predict.
        labels: Class indices (N,).
        width: Number of features D.
    """
    doubt, doubt_again = (float((1 - p.max(1)).mean()) for p in (probs, again))
    if not skilled(probs, labels):  # a judge without skill always predicts the largest class
        return 1.0
    t = doubt_again / max(doubt, TINY) / min(MOST_UNSTEADY, math.sqrt(width / len(labels)))
    return 1.0 if t >= STEADY else t * t / STEADY


def skilled(probs: Array, labels: Array) -> bool:
    """Whether probabilities (N, K) predict more of the labels (N,) than the largest class does."""
    largest = float(np.bincount(labels).max()) / len(labels)
    return float((probs.argmax(1) == labels).mean()) >= largest + SKILL * (1 - largest)


@dataclass(frozen=True, eq=False)
class LabelRule:
    """The fitted rule that judges any example: the noise model, and the trust in it.

    Attributes:
        model: The fitted noise model.
        trust: The factor r.
        class_trust: The factor min(1, 2 n̂_g/n_g)² of each class (K,).
        sharpness: The exponent f; 1 if all doubt is ambiguity.
        kappa: The factor κ.
    """

    model: NoiseModel
    trust: float
    class_trust: Array
    sharpness: float
    kappa: float

    def judge(self, scores: Array, labels: Array) -> RowJudgment:
        """Judge rows, each by itself: finite scores (M, n, K) and labels (n,)."""
        rows, p = np.arange(len(labels)), self.model.probs(scores)
        posterior = self.model.posterior(p, labels)
        apparent, unsure = 1 - posterior[rows, labels].clip(TINY, 1), 1 - p.max(1)
        wrong = _scaled_odds(apparent, self.trust * self.class_trust[labels])
        if self.sharpness > 1:
            q = softmax(self.sharpness * np.log(p.clip(TINY)))
            beyond = _scaled_odds(1 - kept_right(p, q, labels), self.class_trust[labels])
            p, posterior = q, _with_noise(posterior, q, labels, beyond)
            wrong = 1 - (1 - wrong) * (1 - beyond)
        wrong = wrong + AMBIGUOUS * (1 - p[rows, labels]) * (1 - wrong)
        suggested, p_suggested = suggestions(wrong, posterior, labels)
        return RowJudgment(
            p_mislabeled=wrong,
            supported=(p[rows, labels] >= 0.5) & (self.trust > 0),
            suggested=suggested,
            p_suggested=p_suggested,
            probs=p,
            posterior=posterior,
            apparent=apparent,
            unsure=unsure,
        )


def informative(rule: LabelRule, probs: Array, labels: Array) -> bool:
    """Whether probabilities (N, K) predict the labels (N,) well enough for networks trained on other data sets to judge by them.

    The networks for small data sets were also trained on weak models, which predict little more than the largest class.
    """
    return bool(rule.class_trust.any()) if len(labels) < LEAST else skilled(probs, labels)


@dataclass(frozen=True, eq=False)
class RowJudgment:
    """The judgment of n rows by a `LabelRule`.

    p_mislabeled, suggested, p_suggested, probs and posterior are those of `LabelJudgment`. supported: whether the judge knows
    anything about the labels and gives this one at least ½ (n,). apparent: P(wrong) before the factor r (n,); unsure: the doubt
    1 − max p (n,).
    """

    p_mislabeled: Array
    supported: Array
    suggested: Array
    p_suggested: Array
    probs: Array
    posterior: Array
    apparent: Array
    unsure: Array


def fit_rule(
    scores: Array, labels: Array, *, ambiguity: float = 1.0, model: NoiseModel | None = None, units: int | None = None
) -> LabelRule:
    """Fit the rule to finite scores (M, N, K) and labels (N,).

    ambiguity, model: as for `judge_labels`; units: number of groups, by default N.
    """
    units = len(labels) if units is None else units
    if model is None:
        model = fit_noise(scores, labels)
    p = model.probs(scores)
    right = model.posterior(p, labels)[np.arange(len(labels)), labels].clip(TINY, 1)
    apparent, unsure = float(1 - right.mean()), float((1 - p.max(1)).mean())
    kappa = SKEPTICISM * math.sqrt(PER_CLASS * p.shape[1] / units)
    if not beyond_chance(p, labels, units):
        rule = LabelRule(model, LEAST_TRUST, np.zeros(p.shape[1]), 1.0, kappa)
        return rule if informative(rule, p, labels) or beyond_shares(p, labels, units) else replace(rule, trust=0.0)
    trust = float(np.clip(1 - kappa * unsure / max(apparent, 1e-9), LEAST_TRUST, 1))
    return LabelRule(model, trust, class_trust(p, labels), sharpness(p, ambiguity) if ambiguity < 1 else 1.0, kappa)


def beyond_chance(probs: Array, labels: Array, units: int) -> bool:
    """Whether predictions (N, K) agree with the labels (N,) more often than by chance; units: number of independent examples."""
    top, k = probs.argmax(1), probs.shape[1]
    chance = float((np.bincount(top, minlength=k) / len(top)) @ (np.bincount(labels, minlength=k) / len(labels)))
    return float((top == labels).mean()) > chance + BEYOND_CHANCE * math.sqrt(chance * (1 - chance) / units)


def beyond_shares(probs: Array, labels: Array, units: int) -> bool:
    """Whether probabilities (N, K) make the labels (N,) more likely than the shares of the classes do, beyond chance."""
    shares = np.bincount(labels, minlength=probs.shape[1]) / len(labels)
    gain = np.log(probs[np.arange(len(labels)), labels].clip(TINY) / shares[labels])
    return float(gain.mean()) > BEYOND_CHANCE * float(gain.std()) / math.sqrt(units)


def _judgment(
    rule: LabelRule,
    s: Array,
    y: Array,
    known: Array,
    precision: float,
    z: float,
    smooth: Smooth | None,
    refit: Refit | None,
    units: int,
) -> LabelJudgment:
    s = np.where(known[None, :, None], s, 0.0)
    n, rows = len(y), rule.judge(s, y)
    wrong = rows.p_mislabeled
    if refit is not None and informative(rule, probs := rule.model.probs(s[:, known]), y[known]):
        twins, groups = (None if one is None else one[known] for one in (refit.twins, refit.groups))
        again = replace(refit, probs=refit.probs[known], twins=twins, groups=groups)
        signs = signs_of(
            probs, y[known], rule=rows.p_mislabeled[known], apparent=rows.apparent[known],
            refit=again, rate=rule.model.rate, kappa=rule.kappa,
        )  # fmt: skip
        wrong = np.full(n, np.nan)
        wrong[known] = learned_wrong(signs, probs, y[known], again)
    if smooth is not None:
        wrong = np.where(known, smooth(np.where(known, wrong, 0.0)), wrong)
    wrong = np.where(known, wrong, np.nan)
    flagged, suggested, p_suggested = decide(wrong, rows.posterior, y, precision)
    apparent, unsure = float(rows.apparent[known].mean()), float(rows.unsure[known].mean())
    rate, doubted = float(wrong[known].mean()), float((rows.probs.argmax(1) != y)[known].mean())
    found = float(wrong[flagged].sum() / max(known.sum(), 1))
    low, high = rate_interval(rate, found, apparent=apparent, unsure=unsure, doubted=doubted, kappa=rule.kappa, n=units, z=z)
    return LabelJudgment(
        p_mislabeled=wrong,
        flagged=flagged,
        cannot_tell=known & ~flagged & ~rows.supported,
        suggested=suggested,
        p_suggested=p_suggested,
        probs=np.where(known[:, None], rows.probs, np.nan),
        posterior=rows.posterior,
        rate=rate,
        low=low,
        high=high,
        trust=rule.trust,
        model=rule.model,
    )


def decide(wrong: Array, posterior: Array, labels: Array, precision: float) -> tuple[Array, Array, Array]:
    """The fields flagged, suggested and p_suggested of a judgment.

    Args:
        wrong: Probability that each label is wrong (N,); NaN where it is unknown.
        posterior: Probabilities of the true class (N, K).
        labels: Class indices (N,).
        precision: Expected precision: share of the flagged labels that are wrong.
    """
    known = ~np.isnan(wrong)
    flagged: Array = known & choose_flags(np.where(known, wrong, 0.0), precision)
    return flagged, *suggestions(wrong, posterior, labels)


def suggestions(wrong: Array, posterior: Array, labels: Array) -> tuple[Array, Array]:
    """The most probable true class (N,) and its probability (N,); the label where `wrong` is NaN. Arguments as for `decide`."""
    rows, others = np.arange(len(labels)), posterior.copy()
    others[rows, labels] = 0
    best = others.argmax(1)
    p_best = wrong * others[rows, best] / others.sum(1).clip(1e-300)
    moved = p_best > 1 - wrong  # False for NaN
    return np.where(moved, best, labels), np.where(moved, p_best, 1 - wrong)


def rate_interval(
    rate: float, found: float, *, apparent: float, unsure: float, doubted: float, kappa: float, n: int, z: float
) -> tuple[float, float]:
    """The interval of the share of wrong labels, from means over n examples (`noise_rate`).

    found: Expected share of wrong labels that are flagged; doubted: labels not predicted.
    """
    sure = max(0.0, apparent - 2 * kappa * unsure)
    low = max(0.0, min(sure, rate) - _spread(sure, n, z), found / 2)
    return low, min(1.0, max(rate, apparent, doubted) + _spread(max(rate, doubted), n, z))


def _scaled_odds(wrong: Array, factor: Any) -> Array:
    """Probabilities (N,) whose odds are multiplied by the factor."""
    odds = factor * wrong.clip(TINY) / (1 - wrong).clip(TINY)
    scaled: Array = odds / (1 + odds)
    return scaled


def sharpness(p: Array, share: float) -> float:
    """f ≥ 1 such that softmax(f log p) has this share of the mean doubt of p (N, K)."""
    logs, goal = np.log(p.clip(TINY)), share * float((1 - p.max(1)).mean())
    low, high = 1.0, MOST_SHARP
    for _ in range(30):
        middle = math.sqrt(low * high)
        unsure = float((1 - softmax(middle * logs).max(1)).mean())
        low, high = (middle, high) if unsure > goal else (low, middle)
    return low


def kept_right(p: Array, q: Array, y: Array) -> Array:
    """P(right | given) (N,): p predicts the given label, q the true class (N, K), and the share of correct labels is the same in
    all classes.
    """
    rows, top = np.arange(len(y)), p.argmax(1)
    kept = np.minimum(1, p[rows, top] / q[rows, top].clip(TINY))
    right: Array = np.where(y == top, 1.0, np.minimum(1, kept * q[rows, y] / p[rows, y].clip(TINY)))
    return right


def _with_noise(posterior: Array, q: Array, y: Array, wrong: Array) -> Array:
    """The posterior (N, K) if a label may also be wrong by noise that p attributes to ambiguity."""
    others = q.copy()
    others[np.arange(len(y)), y] = 0
    others /= others.sum(1, keepdims=True).clip(1e-300)
    mixed: Array = (1 - wrong)[:, None] * posterior + wrong[:, None] * others
    return mixed


def class_trust(p: Array, labels: Array) -> Array:
    """min(1, 2 n̂_g/n_g)² of each class (K,), at least 1e-6: small for a class that is rarely predicted."""
    given, predicted = (np.bincount(one, minlength=p.shape[1]) for one in (labels, p.argmax(1)))
    trust: Array = np.maximum(np.minimum(1, 2 * predicted / np.maximum(given, 1)) ** 2, UNKNOWN_CLASS)
    return trust


def choose_flags(p: Array, precision: float) -> Array:
    """The largest set (N,) whose mean probability is at least `precision`, each at least `precision` − SLACK.

    A single label is flagged only if it is likely enough by itself (`least_alone`).
    """
    order = np.argsort(-p, kind="stable")
    mean = np.cumsum(p[order]) / np.arange(1, len(p) + 1)
    last = np.flatnonzero((mean >= precision) & (p[order] >= precision - SLACK))
    number = int(last[-1]) + 1 if len(last) else 0
    if number == 1 and p[order[0]] < least_alone(precision):
        number = 0
    flagged = np.zeros(len(p), dtype=bool)
    flagged[order[:number]] = True
    return flagged


def least_alone(precision: float) -> float:
    """Smallest probability at which a single label is flagged: halfway between `precision` and 1."""
    return (1 + precision) / 2


def _spread(share: float, n: int, z: float) -> float:
    """Half the width of a share's interval from n examples."""
    return z * math.sqrt(max(share * (1 - share), 1 / n) / n)
