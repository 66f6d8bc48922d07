"""How many labels are wrong, which classes they come from, and the loss to train with.

    out of sample   the noise model (`noise_model`): rate = mean of p_mislabeled; counts[g, t] = sum over the examples labeled
                    g of P(true = t)
    dynamics        lost: aum < 0 and, where it was recorded, mean confidence < 1/3 (it is higher if the example was
                    learned late); rate = min(share lost, weight of the lower of two Gaussians fitted to aum); true class:
                    the predicted one

The interval ranges from what is certain to everything on which model and label disagree, because noise on hard examples cannot be
distinguished from a model's mistakes.

    out of sample   low: the apparent rate less twice the errors that the model expects to make, or half of the wrong labels
                    that are expected among those flagged, if that is more; high: the largest of the rate, the apparent rate
                    and the share of labels that are not the predicted class; each with its 95 % interval
    dynamics        low: Wilson's lower bound for labels whose negative margin exceeds a typical positive one; high: the
                    upper bound for aum < 0

Two kinds of noise are underestimated, although the interval should hold them: wrong labels on examples that a model finds
hard too, and one class labeled as a certain other one so often (about 30 % and more) that the two look alike. A network that
has memorized wrong labels hides them from its dynamics: record one trained with a robust loss.
Kind: "class-dependent" if the wrong labels are spread over the class pairs less evenly than by chance (total variation,
simulated, p < 0.01), by at least 0.1; "none found" if the lower bound and the expected share of wrong labels among the flagged
ones are below 0.01.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from mohs.hardness.classes import encode
from mohs.hardness.judgment import LabelJudgment, judge_labels
from mohs.hardness.label_rows import ROUNDING
from mohs.hardness.noise_shape import Array, lower_weight, noise_kind, row_shares, wilson
from mohs.hardness.table import classes_of, column
from mohs.losses import create_loss

STRONG_IMBALANCE = 10.0
SELDOM_BELIEVED = 1 / 3  # mean probability over training


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """Estimated label noise.

    Attributes:
        rate, low, high: Share of wrong labels with its interval.
        transition: transition[true, given] = P(given | true) (K, K).
        counts: counts[given, true] (K, K), the expected number of examples.
        kind: "none found", "about uniform" or "class-dependent".
        imbalance: Size of the largest class over that of the smallest that has examples, as labeled.
        examples: Number of labels N.
        source: "out-of-sample predictions" or "training dynamics".
        disagreement: Share of labels that are not the predicted class.
        classes: Class names.
    """

    rate: float
    low: float
    high: float
    transition: Array = field(repr=False)
    counts: Array = field(repr=False)
    kind: str
    imbalance: float
    examples: int
    source: str
    disagreement: float
    classes: list[Any] = field(repr=False)

    @property
    def rates(self) -> Array:
        """rates[given, true] = P(true | given) (K, K); NaN in the row of a class without examples."""
        sums = self.counts.sum(1, keepdims=True)
        rates: Array = np.divide(self.counts, sums, out=np.full_like(self.counts, np.nan), where=sums > 0)
        return rates

    @property
    def summary(self) -> str:
        """The estimate as a sentence."""
        span = f"between {self.low:.1%} and {self.high:.1%}; {self.kind}"
        text = f"About {self.rate:.1%} of {self.examples:,} labels are wrong ({span}; from {self.source})"
        if self.kind == "none found":
            text = f"No clear sign that many of {self.examples:,} labels are wrong (at most {self.high:.1%}; from {self.source})"
        return f"{text}; the largest class is {self.imbalance:.3g} times the smallest."


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A loss, its spec for the command line, and the reason."""

    loss: nn.Module
    spec: str
    reason: str


def estimate_noise(
    labels: Any = None,
    probs: Any = None,
    *,
    table: Any = None,
    classes: Sequence[Any] | None = None,
    interval: float = 0.95,
    seed: int = 0,
) -> NoiseEstimate:
    """Estimate the share of wrong labels, from out-of-sample predictions or from training dynamics.

    Args:
        labels: Class names or indices (N,). With `table`, they replace its labels.
        probs: Out-of-sample probabilities (N, K), as cross-validation gives them.
        table: Table of a `Recorder` with aum, label and predicted; mean_confidence is used if it was recorded. Examples that
            were never seen are skipped.
        classes: Class names in the order of the columns of probs.
        interval: Coverage of the interval from dynamics; the one from probs is always a 95 % interval.
        seed: Random seed of the simulation that decides the kind.

    Returns:
        The rate with its interval, the transition matrix and the kind of noise.

    Example:
        >>> estimate = mohs.estimate_noise(y, cross_val_predict(model, x, y, method="predict_proba"))
        >>> print(estimate.summary)
    """
    if not 0 < interval < 1:
        raise ValueError(f"interval must lie between 0 and 1, got {interval}")
    if (probs is None) == (table is None):
        raise ValueError("give either probs, out-of-sample probabilities (N, K), or table=, a recorder's table")
    if table is not None:
        return _from_dynamics(labels, table, classes, interval, seed)
    if labels is None:
        raise ValueError("labels are missing: call estimate_noise(labels, probs)")
    if np.ndim(probs) == 1 and np.ndim(labels) == 2:
        raise ValueError("labels have two dimensions and probs one: the labels (N,) come first, then probs (N, K)")
    p = _checked_probs(probs)
    given, names = encode(labels, num_classes=p.shape[1], classes=classes)
    _check_labels(given, len(p))
    judgment = judge_labels(p, given, interval=interval)
    return estimate_from(judgment, given, names, seed=seed)


def estimate_from(judgment: LabelJudgment, given: Array, names: Sequence[Any], *, seed: int = 0) -> NoiseEstimate:
    """The estimate from a judgment of labels (N,), class indices."""
    known = ~np.isnan(judgment.p_mislabeled)
    given = given[known]
    counts = expected_counts(judgment.posterior[known], judgment.p_mislabeled[known], given)
    differs = float((given != judgment.probs[known].argmax(1)).mean())
    found = float(judgment.p_mislabeled[judgment.flagged].sum()) / len(given)
    interval = (judgment.rate, judgment.low, judgment.high)
    return estimate_of_counts(*interval, counts, np.bincount(given), differs, names, seed=seed, found=found)


def expected_counts(posterior: Array, wrong: Array, given: Array) -> Array:
    """counts[given, true] (K, K) of rows with these posteriors (n, K), probabilities of a wrong label and labels (n,)."""
    rows = np.arange(len(given))
    others = posterior.copy()
    others[rows, given] = 0
    others *= (wrong / others.sum(1).clip(1e-300))[:, None]
    others[rows, given] = 1 - wrong
    counts = np.zeros((posterior.shape[1],) * 2)
    np.add.at(counts, given, others)
    return counts


def estimate_of_counts(
    rate: float,
    low: float,
    high: float,
    counts: Array,
    sizes: Array,
    disagreement: float,
    names: Sequence[Any],
    *,
    seed: int,
    found: float = 0.0,
    source: str = "out-of-sample predictions",
) -> NoiseEstimate:
    """The estimate from its rate with interval, counts[given, true] (K, K), the sizes of the classes and the disagreement.

    found: Expected share of wrong labels that are flagged.
    """
    kind = noise_kind(counts.T, low=max(low, found), seed=seed)
    return NoiseEstimate(
        rate=rate,
        low=0.0 if kind == "none found" else low,
        high=high,
        transition=row_shares(counts.T),
        counts=counts,
        kind=kind,
        imbalance=float(sizes.max() / sizes[sizes > 0].min()),
        examples=int(sizes.sum()),
        source=source,
        disagreement=disagreement,
        classes=list(names),
    )


def suggest_emphasis(estimate: NoiseEstimate) -> Suggestion:
    """Suggest a loss to train with on these labels.

    GCE is suggested at any rate of wrong labels: with 20, 40 and 80 %, it was more accurate than Gradient Rescaling (8, ½) and
    cross-entropy (results/gr/table4-fashion.md). The settings are not tuned on your data.
    """
    if not isinstance(estimate, NoiseEstimate):
        raise ValueError(f"estimate must be what estimate_noise returns, got {estimate!r}")
    span = f"{estimate.rate:.1%} wrong labels ({estimate.low:.1%} to {estimate.high:.1%}, {estimate.kind})"
    if estimate.kind == "none found":
        span = f"no clear sign of wrong labels (at most {estimate.high:.1%})"
    skewed = estimate.imbalance >= STRONG_IMBALANCE
    if estimate.kind == "none found":
        name, fields, why = "cross_entropy", {}, "nothing speaks against the plain loss"
        if skewed:
            name, fields, why = "encouraging", {"log_end": 0.75}, "labels look right, and well-classified examples keep counting"
    else:
        name, fields = "gce", {"q": 0.7}
        why = "cross-entropy memorizes wrong labels; this loss hardly does, and its margins point at them"
    if estimate.kind == "class-dependent":
        why += "; certain classes are labeled as certain others, so try ForwardLoss(transition=estimate.transition)"
    if skewed:
        why += (
            f"; classes differ {estimate.imbalance:.3g} times in size, so add class weights or use logit_adjusted: rare classes "
            "look like noise to a robust loss"
        )
    spec = name + ":" * bool(fields) + ",".join(f"{key}={value:g}" for key, value in fields.items())
    return Suggestion(create_loss(name, **fields), spec, f"{span}: {why}.")


def _from_dynamics(labels: Any, table: Any, classes: Sequence[Any] | None, interval: float, seed: int) -> NoiseEstimate:
    aum = np.asarray(column(table, "aum"), dtype=float)
    seen = ~np.isnan(aum)
    if not seen.any():
        raise ValueError("table has no example with an aum: nothing was recorded")
    shown, aum = table.filter(seen), aum[seen]  # without missing values its integers become integers again
    own = column(shown, "label") if labels is None else np.asarray(labels)[seen]
    predicted = column(shown, "predicted")
    names = list(classes or classes_of(table) or _names(own, predicted))
    given, _ = encode(own, num_classes=len(names), classes=names)
    guessed, _ = encode(predicted, num_classes=len(names), classes=names)
    _check_labels(given, len(aum))
    behind = aum < 0
    believed = column(shown, "mean_confidence") if "mean_confidence" in shown.column_names else np.zeros(len(aum))
    lost = behind & (believed < SELDOM_BELIEVED)
    rate = min(float(lost.mean()), lower_weight(aum))
    true = np.where(lost, guessed, given)
    counts = np.zeros((len(names),) * 2)
    np.add.at(counts, (given, true), 1.0)
    moved = (given != true).sum()
    keep = min(1.0, rate * len(aum) / moved) if moved else 0.0
    counts = np.diag(counts.sum(1)) * (1 - keep) + counts * keep  # the off-diagonal share does not exceed the rate
    usual = np.median(aum[~behind]) if not behind.all() else 0.0  # typical positive margin
    clear = min(rate, float((aum < -usual).mean()))
    low = wilson(clear, len(aum), interval)[0]
    high = wilson(float(behind.mean()), len(aum), interval)[1]
    differs = float((given != guessed).mean())
    return estimate_of_counts(rate, low, high, counts, np.bincount(given), differs, names, seed=seed, source="training dynamics")


def _names(*columns: Array) -> list[Any]:
    """Class names of a table that does not store them: integers from 0, or the names that occur."""
    values = np.unique(np.concatenate(columns))
    return list(range(int(values[-1]) + 1)) if values.dtype.kind in "iu" and values[0] >= 0 else values.tolist()


def _checked_probs(probs: Any) -> Array:
    p = np.asarray(probs.detach().cpu() if hasattr(probs, "detach") else probs, dtype=float)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"probs must hold the probabilities of at least 2 classes per row, shape (N, K), got shape {p.shape}")
    for what, bad in (
        ("is NaN or infinite: predict it again or leave it out", ~np.isfinite(p).all(1)),
        ("has a negative entry: give probabilities, the softmax of logits", (p < 0).any(1)),
        ("does not sum to 1: give probabilities, the softmax of logits", np.abs(p.sum(1) - 1) > ROUNDING),
    ):
        if bad.any():
            raise ValueError(f"probs[{int(bad.argmax())}] {what}; {int(bad.sum())} row(s) are affected")
    return p


def _check_labels(given: Array, examples: int) -> None:
    if len(given) != examples:
        raise ValueError(f"labels must have one entry for each of the {examples} examples, got {len(given)}")
    if len(np.unique(given)) < 2:
        raise ValueError("labels hold fewer than 2 classes: there is nothing to confuse")
