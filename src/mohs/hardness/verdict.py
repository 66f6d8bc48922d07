"""Easy, hard, ambiguous, mislabeled or cannot tell: a verdict on every example, with probabilities.

    p_mislabeled = w                          by the noise model (`noise_model`); q = 1 − w
    p_ambiguous  = q α                        α = 1 − (1 − 4q(1 − q))(1 − (2v)²): undecided, or wavering (v: variability)
    p_hard       = q (1 − α) r⁴               r: the example's rank in hardness, from 0 to 1; r⁴ > ½ for the hardest sixth
    p_easy       = q (1 − α) (1 − r⁴)

"mislabeled" is the largest set of examples whose mean p_mislabeled is at least the target precision; "cannot tell" are the other
examples whose label the judge does not support either, because it is too weak there. The rest get the most probable of the other
three verdicts.

A table with a `LabelJudgment` of full scores (what `mohs.audit` makes) is judged by it. From a table alone, as
`mohs.score_logits` and `Recorder.table` give, the same model is fitted to two numbers per example: the probability of the
given label and that of the predicted class, the rest of the probability spread evenly,

    p_k(τ) ∝ p_k^(1/τ),   P(given) = (1 − ε) p_g(τ) + ε (1 − p_g(τ))/(K − 1)

with τ and ε of the highest likelihood. The scores should be out of sample, or come from training with a robust loss (GCE,
GR) or regularizer (`EarlyLearning`): a network that has memorized its labels agrees with all of them. For the dynamics of
plain cross-entropy use `by="aum"`. Ambiguous examples of data maps: Swayamdipta et al. (EMNLP 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from mohs._core.validation import check_between, check_choice
from mohs.hardness.judgment import AMBIGUOUS, LEAST_TRUST, PER_CLASS, SKEPTICISM, LabelJudgment, choose_flags
from mohs.hardness.noise_model import GAIN, GAIN_SHARE, RATE_PRIOR, saturated
from mohs.hardness.ranks import Ranks
from mohs.hardness.scores import SCORES, hardness, with_grade
from mohs.hardness.table import VERDICTS, add_columns, as_table, classes_of, column

PROBABILITIES = VERDICTS[:4]
MARGINS = ("margin", "mean_margin", "aum")
PLACES = ("mean_margin", "aum", "mean_confidence", "first_learned", "forgetting", "avh", "mean_avh", "neighbors", "margin")
PRECISION = 0.8
TEMPERATURES, RATES = np.geomspace(0.2, 12, 40), np.geomspace(0.001, 0.6, 40)
Array = np.ndarray[Any, Any]


def verdict(
    table: Any,
    *,
    by: str = "margin",
    judgment: LabelJudgment | None = None,
    precision: float = PRECISION,
    variability: Any = None,
) -> pa.Table:
    """Add verdict, probabilities, suggested label and reasons to a hardness table.

    Args:
        table: As `score`, `score_logits` or `Recorder.table` return it, or the same as a pandas DataFrame.
        by: Margin to judge by if there is no judgment: "margin", "mean_margin" or "aum".
        judgment: Judgment of the labels by full scores, one entry per row.
        precision: Expected precision: share of the flagged labels that are wrong.
        variability: Per-example values (N,) that replace the table's column.

    Returns:
        The table with p_easy, p_hard, p_ambiguous, p_mislabeled, verdict, suggested_label, p_suggested, why and the grade
        `mohs`. A row without a margin has no verdict.
    """
    check_choice("by", by, MARGINS)
    table = as_table(table)
    check_between("precision", precision, 0, 1, ends="()")
    n = len(table)
    if judgment is None:
        wrong, p_given = label_wrong(table, by)
        known = ~np.isnan(wrong)
        flagged = known & choose_flags(np.nan_to_num(wrong), precision)
        unsupported = known & ~flagged & (p_given < 0.5)
    else:
        wrong, flagged, unsupported = judgment.p_mislabeled, judgment.flagged, judgment.cannot_tell
        if len(wrong) != n:
            raise ValueError(f"judgment must have one entry for each of the {n} rows of the table, got {len(wrong)}")
        known = ~np.isnan(wrong)
    if variability is None:
        variability = column(table, "variability") if "variability" in table.column_names else np.zeros(n)
    variability = _by_row("variability", variability, table)
    columns = verdict_columns(wrong, flagged, unsupported, variability=variability, place=Places.of(table)(table))
    if judgment is not None and judgment.consensus is not None:
        columns |= {"disagreement": judgment.consensus.disagreement, "gain": judgment.consensus.gain}
    if judgment is not None and judgment.checks is not None:
        columns["checked"] = pa.array([judgment.checks.outcome.get(row) for row in range(n)], pa.string())
    if {"label", "predicted"} <= set(table.column_names):
        columns |= _suggestions(table, judgment, wrong, flagged)
    return with_grade(add_columns(table, columns | {"why": reasons(table, by)}))


def verdict_columns(wrong: Array, flagged: Array, unsupported: Array, *, variability: Array, place: Array) -> dict[str, Any]:
    """The probabilities and the verdict of each row (N,).

    Args:
        wrong: Probability of a wrong label; NaN: not judged.
        flagged: Whether the row is among those called mislabeled.
        unsupported: Whether the row is among those that the judge cannot decide.
        variability: Standard deviation of the confidence over training; 0 if there was none.
        place: Rank in hardness, from 0 to 1.
    """
    p = probabilities(1 - wrong, variability, place)  # (N, 4)
    best = np.where(flagged, 3, np.where(unsupported, 4, np.nan_to_num(p[:, :3]).argmax(1)))
    columns: dict[str, Any] = {f"p_{name}": p[:, i] for i, name in enumerate(PROBABILITIES)}
    return columns | {"verdict": pa.DictionaryArray.from_arrays(pa.array(best, mask=np.isnan(wrong)), VERDICTS).cast(pa.string())}


def _suggestions(table: pa.Table, judgment: LabelJudgment | None, wrong: Array, flagged: Array) -> dict[str, Any]:
    """The suggested label of every example and its probability; the given one unless the example is flagged."""
    label, predicted = table.column("label").to_pylist(), table.column("predicted").to_pylist()
    if judgment is not None:
        other = judgment.suggested.tolist()
        if judgment.suggested.dtype.kind != "f":  # suggestions are class indices, except for numeric targets
            classes = classes_of(table)
            if classes is None:
                raise ValueError("the table does not know its classes: make it with classes=")
            other = [classes[i] for i in other]
        chance = np.where(flagged, judgment.p_suggested, 1 - wrong)
    else:
        other, chance = predicted, np.where(flagged, wrong, 1 - wrong)
    chosen = [new if moved else old for old, new, moved in zip(label, other, flagged, strict=True)]
    return {"suggested_label": pa.array(chosen), "p_suggested": chance}


def _by_row(name: str, values: Any, table: pa.Table) -> Array:
    made: Array = np.asarray(values, dtype=float)
    if made.shape != (len(table),):
        raise ValueError(f"{name} must have shape ({len(table)},), one value per row of the table, got {made.shape}")
    return made


def label_wrong(table: pa.Table, by: str = "margin") -> tuple[Array, Array]:
    """P(wrong) and the calibrated probability of the given label (N,), from the margins of a table; NaN where unknown."""
    margins = column(table, by).astype(float)
    known = np.isfinite(margins)
    wrong, given = np.full((2, len(table)), np.nan)
    if not known.any():
        return wrong, given
    classes = len(classes_of(table) or ()) or len(set(table.column("label").to_pylist())) if "label" in table.column_names else 2
    top = (
        column(table, "top_confidence").astype(float)[known]
        if by == "margin" and "top_confidence" in table.column_names
        else None
    )
    wrong[known], given[known] = wrong_by_margin(margins[known], top, max(2, classes))
    return wrong, given


def wrong_by_margin(margins: Array, top: Array | None, classes: int) -> tuple[Array, Array]:
    """Margins (N,) and probabilities of the predicted class (N,) -> P(wrong) and calibrated p of the given label (N,)."""
    own = expit(margins).clip(1e-12, 1 - 1e-12)
    if top is None:  # the other classes count as one
        return _wrong(
            np.log(own), np.log1p(-own), np.log(np.full(len(own), 1e-12)), np.zeros(len(own), bool), np.zeros(len(own)), classes
        )
    agrees = own >= top - 1e-6
    first = np.where(agrees, own, top)
    others = classes - np.where(agrees, 1, 2)
    rest = np.log(((1 - np.where(agrees, own, own + first)).clip(1e-12) / np.maximum(others, 1)).clip(1e-12))
    return _wrong(np.log(own), np.log(first.clip(1e-12)), rest, agrees, others, classes)


def _wrong(own: Array, first: Array, rest: Array, agrees: Array, others: Array, classes: int) -> tuple[Array, Array]:
    """As `wrong_by_margin`, from the log-probabilities of the label, of the predicted class (unless it is the label), and of each
    other class.
    """
    fits = []
    for tau in TEMPERATURES:
        p = _tempered(own, first, rest, agrees, others, tau)
        top = np.where(agrees, p, np.maximum(p, _tempered(first, own, rest, agrees, others, tau)))
        values = [float(np.log((1 - r) * p + r * (1 - p) / (classes - 1)).sum()) for r in RATES]
        values = [v + RATE_PRIOR[0] * math.log(r) + RATE_PRIOR[1] * math.log1p(-r) for v, r in zip(values, RATES, strict=True)]
        at = int(np.argmax(values))
        fits.append((values[at], float(tau), float(RATES[at]), top))
    value, tau, rate, top = max(fits, key=lambda fit: fit[0])
    if saturated(np.stack([top, 1 - top], 1)):  # as in the noise model: equally likely, and noise rather than ambiguity
        sharp = [fit for fit in fits if np.median(fit[3]) > 0.985 and fit[0] >= value - max(GAIN, GAIN_SHARE * len(own))]
        _, tau, rate, _ = max(sharp, key=lambda fit: fit[0], default=(value, tau, rate, top))
    p = _tempered(own, first, rest, agrees, others, tau)
    highest = np.where(agrees, p, np.maximum(p, _tempered(first, own, rest, agrees, others, tau)))
    odds = rate * (1 - p) / (classes - 1) / ((1 - rate) * p)
    apparent, unsure = float((odds / (1 + odds)).mean()), float((1 - highest).mean())
    kappa = SKEPTICISM * math.sqrt(PER_CLASS * classes / len(p))
    odds = odds * np.clip(1 - kappa * unsure / max(apparent, 1e-9), LEAST_TRUST, 1)
    wrong = odds / (1 + odds)
    return wrong + AMBIGUOUS * (1 - p) * (1 - wrong), p


def _tempered(one: Array, other: Array, rest: Array, agrees: Array, others: Array, tau: float) -> Array:
    """Probability of the class of log-probability `one` at temperature τ."""
    a, b, c = np.exp(one / tau), np.where(agrees, 0.0, np.exp(other / tau)), others * np.exp(rest / tau)
    tempered: Array = (a / (a + b + c)).clip(1e-12, 1 - 1e-12)
    return tempered


def probabilities(right: Array, variability: Array, rank: Array) -> Array:
    """q, v and r, (N,) each -> the four probabilities (N, 4) in the order of PROBABILITIES; each row sums to 1."""
    wavering = np.nan_to_num((2 * variability) ** 2).clip(0, 1)
    undecided = 1 - (1 - 4 * right * (1 - right)) * (1 - wavering)
    settled, hard = right * (1 - undecided), rank**4
    return np.stack([settled * (1 - hard), settled * hard, right * undecided, 1 - right], 1)


@dataclass(frozen=True, eq=False)
class Places:
    """The rank r of examples in hardness (0 the easiest, 1 the hardest) among those of a table: by the mean of their ranks.

    Attributes:
        scores: Ranks by each of the scores that the table has.
        means: Ranks among the means of these.
    """

    scores: dict[str, Ranks]
    means: Ranks

    @staticmethod
    def of(table: pa.Table) -> Places:
        """Ranks among the examples of this table."""
        found = {name: Ranks.of(hardness(table, name)) for name in PLACES if SCORES[name].column in table.column_names}
        if not found:
            raise ValueError(f"a verdict needs at least one of these columns: {', '.join(PLACES)}")
        first = Places(found, Ranks(np.empty(0)))
        return replace(first, means=Ranks.of(first.mean(table)))

    def mean(self, table: pa.Table) -> Array:
        """Mean over the scores of the rank of each row (N,)."""
        means: Array = np.mean([ranks.rank(hardness(table, name)) for name, ranks in self.scores.items()], axis=0)
        return means

    def __call__(self, table: pa.Table) -> Array:
        return self.means.rank(self.mean(table))


def reasons(table: pa.Table, by: str) -> list[str]:
    """Two or three facts per row as text: the prediction, the neighbors, the training dynamics."""
    names = {name: table.column(name).to_pylist() for name in table.column_names if name in FACTS}
    rows = zip(*names.values(), strict=True)
    return ["; ".join(_facts(dict(zip(names, row, strict=True)), by)) for row in rows]


FACTS = (
    "part", "label", "predicted", "confidence", "top_confidence", *MARGINS, "neighbors", "first_learned", "forgetting", "epochs",
    "mean_confidence",
)  # fmt: skip


def _plain(label: Any) -> Any:
    """A number with four digits, or all digits before the point if there are more: 0.1235, 26061, 1e+20; any other label as it
    is.
    """
    if not isinstance(label, float):
        return label
    return f"{label:.0f}" if 1e4 <= abs(label) < 1e15 else f"{label:.4g}"


def _percent(share: float) -> str:
    """A probability as text: 37%, or under 1% and over 99% at the ends."""
    return "under 1%" if share < 0.01 else "over 99%" if share > 0.99 else f"{share:.0%}"


def _facts(row: dict[str, Any], by: str) -> list[str]:
    if row[by] is None or row[by] != row[by]:
        return ["not judged"]
    predicted, label = (_plain(one) for one in (row.get("predicted"), row.get("label")))
    part = f"{row['part']}: " if row.get("part") is not None else ""
    own, top = (row.get(name) if by == "margin" else None for name in ("confidence", "top_confidence"))
    if own is None or top is None:
        outcome = "predicted as labeled" if predicted == label else f"predicted {predicted}, not {label}"
        outcome += f" ({by.replace('_', ' ')} {row[by]:+.1f})"
    elif predicted == label:
        outcome = f"predicted as labeled ({_percent(own)})"
    else:
        outcome = f"predicted {predicted} ({_percent(top)}), not {label} ({_percent(own)})"
    facts = [part + outcome]
    if row.get("neighbors") is not None:
        facts.append(f"{row['neighbors']:.0%} of its neighbors have its label")
    epochs = row.get("epochs")
    if row.get("first_learned") is not None and epochs:
        never = row["first_learned"] >= epochs
        forgotten = row.get("forgetting") or 0
        again = f", forgotten {forgotten:.0f} time{'s' if forgotten > 1 else ''} since" if forgotten else ""
        facts.append(f"never learned in {epochs:.0f} epochs" if never else f"learned at epoch {row['first_learned']:.0f}{again}")
    return facts
