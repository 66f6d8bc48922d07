"""How many labels are wrong, which classes they come from, and the loss that such labels call for.

    out of sample   anchors: of the examples predicted t, the surest 30 % (20 at least); T[t, g] = share of them labeled g
                    counts[g, t] = n_g π_t T[t, g] / Σ_s π_s T[s, g],   rate = 1 − tr(counts)/N          (see `anchors`)
    dynamics        lost: aum < 0 and, where it was recorded, mean confidence < 1/3 (late learners win for long); rate =
                    min(share lost, weight of the lower of two Gaussians fitted to aum); the true class: the predicted one

The interval goes from what is sure (out of sample: the least of Wilson's lows of anchors of 5, 10 and 30 %, as fewer are
purer; dynamics: that of the share of labels that lose by more than labels usually win by) to all on which model and label
disagree, since noise on hard examples cannot be told from a model's mistakes. Classes that the model cannot tell apart look
like noise, and a network that has learned its labels by heart hides theirs: record one trained with a robust loss. Kind:
"class-dependent" if the wrong labels are spread over the class pairs less evenly than chance has it (total variation,
simulated, p < .01) by .1 at least; "none found" if Wilson's low (out of sample: of 30 %) is below .01.
Measured by benchmarks/noise_rate.py, in brackets how many intervals held the truth. CIFAR-10 with people's labels, .402 and
.090 wrong, and 20 % symmetric, ResNet-9, three seeds: five folds .32, .03 and .215 (all): people err on what a network finds
hard as well, where there are no anchors, so their rate is read too low (cleanlab's confident joint, Northcutt et al., JAIR
2021: .42, .09, .26); dynamics with GCE .38, .105, .21 (all), with cross-entropy .32 to .40, .07, .24 (all, but two of three
"none found" at .07). Mean |error| for symmetric and next-class noise of 0 to 20 %, digits, MNIST and Fashion-MNIST: five
folds of logistic regression .015 (89 %), .009 (100 %) and, with a model that is 81 % right, .059 (14 %: clean labels read as
7 % wrong); confident joint .030, .042, .120. At 40 %: symmetric .020, .005, .044; next class .070, .064, .054. On hard
examples: .07 to .11 too low, all held (confident joint .04 to .06). Dynamics of an MLP, 20 and 60 epochs of cross-entropy and
GCE: .017 (89 %), .052 (91 %), .105 (50 %); at 40 % symmetric .03 to .05, next class .17 to .30 too low.
The 5 and 10 % and the 1/3 were chosen with the figures of CIFAR-10 in view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from mohs.hardness.classes import encode
from mohs.hardness.noise_model import ROUNDING, LabelJudgment, judge_labels
from mohs.hardness.noise_shape import Array, lower_weight, noise_kind, row_shares, wilson
from mohs.hardness.table import classes_of, column
from mohs.losses import create_loss

STRONG_NOISE, STRONG_IMBALANCE = 0.2, 10.0
SELDOM_BELIEVED = 1 / 3  # mean probability over training


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """Share of wrong labels with its interval; counts[given, true] (K, K) and transition[true, given] = P(given | true).

    disagreement: how often model and label differ; imbalance: largest class over smallest that has examples, as labeled.
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
        """rates[given, true] = P(true | given) (K, K); a class that no label names is a row of NaN."""
        sums = self.counts.sum(1, keepdims=True)
        rates: Array = np.divide(self.counts, sums, out=np.full_like(self.counts, np.nan), where=sums > 0)
        return rates

    @property
    def summary(self) -> str:
        """The estimate as a sentence."""
        span = f"between {self.low:.1%} and {self.high:.1%}; {self.kind}"
        told = f"About {self.rate:.1%} of {self.examples:,} labels are wrong ({span}; from {self.source})"
        if self.kind == "none found":
            told = f"No clear sign that any of {self.examples:,} labels is wrong (at most {self.high:.1%}; from {self.source})"
        return f"{told}; the largest class is {self.imbalance:.3g} times the smallest."


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A loss, the word of the command line that makes it, and why."""

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
    """From labels (N,) of any kind and out-of-sample probs (N, K), or from a recorder's table with aum, label and predicted.

    The table's mean_confidence is used where it was recorded, and examples that were never seen are left out; labels, where
    given as well, take the place of its own.
    """
    if not 0 < interval < 1:
        raise ValueError(f"interval must lie between 0 and 1, got {interval}")
    if (probs is None) == (table is None):
        raise ValueError("give either probs, out-of-sample probabilities (N, K), or table=, a recorder's table")
    if table is not None:
        return _from_dynamics(labels, table, classes, interval, seed)
    if labels is None:
        raise ValueError("labels are needed beside probs: estimate_noise(labels, probs)")
    p = _checked_probs(probs)
    given, names = encode(labels, num_classes=p.shape[1], classes=classes)
    _check_labels(given, len(p))
    judgment = judge_labels(p, given)
    return estimate_from(judgment, given, names, seed=seed)


def estimate_from(judgment: LabelJudgment, given: Array, names: Sequence[Any], *, seed: int = 0) -> NoiseEstimate:
    """The estimate that a judgment of all labels (N,) amounts to."""
    known = ~np.isnan(judgment.p_mislabeled)
    given, posterior, wrong = given[known], judgment.posterior[known], judgment.p_mislabeled[known]
    rows = np.arange(len(given))
    others = posterior.copy()
    others[rows, given] = 0
    others *= (wrong / others.sum(1).clip(1e-300))[:, None]
    others[rows, given] = 1 - wrong
    counts = np.zeros((posterior.shape[1],) * 2)
    np.add.at(counts, given, others)  # (given, true)
    kind = noise_kind(counts.T, low=judgment.low, seed=seed)
    predicted = judgment.probs[known].argmax(1)
    found = (judgment.rate, judgment.low, judgment.high)
    return _estimate(*found, counts, kind, given, predicted, list(names), "out-of-sample predictions")


def suggest_emphasis(estimate: NoiseEstimate) -> Suggestion:
    """The loss to train with on such labels; settings from measurements on CIFAR-10, not tuned on your data."""
    span = f"{estimate.rate:.1%} wrong labels ({estimate.low:.1%} to {estimate.high:.1%}, {estimate.kind})"
    if estimate.kind == "none found":
        span = f"no clear sign of wrong labels (at most {estimate.high:.1%})"
    skewed = estimate.imbalance >= STRONG_IMBALANCE
    if estimate.kind == "none found":
        name, fields, why = "cross_entropy", {}, "nothing speaks against the plain loss"
        if skewed:
            name, fields, why = "encouraging", {"log_end": 0.75}, "labels look right, and well-classified examples go on counting"
    elif estimate.rate < STRONG_NOISE:
        name, fields = "gce", {"q": 0.7}
        why = "at this rate it trains as well as cross-entropy and its margins point at the wrong labels"
    else:
        name, fields = "gradient_rescaling", {"beta": 8, "lam": 0.5}
        why = "with this many, cross-entropy learns them by heart and likelier examples deserve the emphasis"
    if estimate.kind == "class-dependent":
        why += "; as certain classes are taken for certain others, ForwardLoss(transition=estimate.transition) is worth a trial"
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
        raise ValueError("no example of the table has an aum: none was ever recorded")
    shown, aum = table.filter(seen), aum[seen]  # without the missing values its whole numbers are whole again
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
    counts = np.diag(counts.sum(1)) * (1 - keep) + counts * keep  # no more leave the diagonal than the rate says
    usual = np.median(aum[~behind]) if not behind.all() else 0.0  # what a label that wins wins by
    clear = min(rate, float((aum < -usual).mean()))
    low = wilson(clear, len(aum), interval)[0]
    high = wilson(float(behind.mean()), len(aum), interval)[1]
    kind = noise_kind(counts.T, low=low, seed=seed)
    return _estimate(rate, low, high, counts, kind, given, guessed, names, "training dynamics")


def _estimate(
    rate: float,
    low: float,
    high: float,
    counts: Array,
    kind: str,
    given: Array,
    predicted: Array,
    names: list[Any],
    source: str,
) -> NoiseEstimate:
    sizes = np.bincount(given)
    return NoiseEstimate(
        rate=rate,
        low=0.0 if kind == "none found" else low,
        high=high,
        transition=row_shares(counts.T),
        counts=counts,
        kind=kind,
        imbalance=float(sizes.max() / sizes[sizes > 0].min()),
        examples=len(given),
        source=source,
        disagreement=float((given != predicted).mean()),
        classes=names,
    )


def _names(*columns: Array) -> list[Any]:
    """The classes of a table that does not know them: numbers from 0, or the names that occur."""
    values = np.unique(np.concatenate(columns))
    return list(range(int(values[-1]) + 1)) if values.dtype.kind in "iu" and values[0] >= 0 else values.tolist()


def _checked_probs(probs: Any) -> Array:
    p = np.asarray(probs.detach().cpu() if hasattr(probs, "detach") else probs, dtype=float)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"probs must hold the probabilities of at least 2 classes a row, shape (N, K), got shape {p.shape}")
    for what, bad in (
        ("is NaN or infinite: predict it again or leave it out", ~np.isfinite(p).all(1)),
        ("has a negative entry: give probabilities, the softmax of logits", (p < 0).any(1)),
        ("does not sum to 1: give probabilities, the softmax of logits", np.abs(p.sum(1) - 1) > ROUNDING),
    ):
        if bad.any():
            raise ValueError(f"probs[{int(bad.argmax())}] {what}; {int(bad.sum())} row(s) are like that")
    return p


def _check_labels(given: Array, examples: int) -> None:
    if len(given) != examples:
        raise ValueError(f"labels must have one entry for each of the {examples} examples, got {len(given)}")
    if len(np.unique(given)) < 2:
        raise ValueError("labels name fewer than 2 classes: there is nothing to mistake")
