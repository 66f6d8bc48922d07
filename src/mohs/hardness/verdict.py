"""Easy, hard, ambiguous or mislabeled: a probability of each for every example, from one rule on its margin.

    q = σ(4 m/s − ½ log(π/(1 − π)))       P(the given label is right); m: its margin, s: the median |m| of the table,
                                          π: the mean of p_mislabeled itself, ½ at the most
    p_mislabeled = 1 − q
    p_ambiguous   = q α                   α = 1 − (1 − 4q(1 − q))(1 − (2v)²): undecided now, or wavering (v: variability)
    p_hard        = q (1 − α) r⁴          r: the example's place in hardness, from 0 to 1; ½ for the hardest sixth
    p_easy        = q (1 − α) (1 − r⁴)

The division by s makes the verdict independent of the logits' temperature. 4 and ½ are round numbers read off networks
trained on CIFAR-10, where the logistic slope that fits best is 3.4 to 5.0 medians for GCE, 2.2 to 5.4 for cross-entropy
(results/wrong_labels.csv); half of the prior, because a network has seen the labels and knows part of it. The order is the
margin's own. The margin must not come from a network that learned the wrong labels by heart: train with a robust
emphasis (GCE, GR); for plain cross-entropy pass `by="aum"`. results/wrong_labels.md has precision and calibration;
on out-of-fold margins the order is good but the probabilities are off by up to .2: there `out_of_sample` fits better ones.
Data maps' ambiguous examples: Swayamdipta et al. (EMNLP 2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit, logit

from mohs._core.validation import check_choice
from mohs.hardness.scores import SCORES, hardness, with_grade
from mohs.hardness.table import add_columns, column

STEEPNESS, PRIOR = 4.0, 0.5
ROUNDS, RAREST = 50, 1e-4
VERDICTS = ("easy", "hard", "ambiguous", "mislabeled")
MARGINS = ("margin", "mean_margin", "aum")
PLACES = ("mean_margin", "aum", "mean_confidence", "first_learned", "forgetting", "avh", "mean_avh", "neighbors", "margin")
Array = np.ndarray[Any, Any]


def verdict(table: pa.Table, *, by: str = "margin", right: Any = None, variability: Any = None) -> pa.Table:
    """The table with p_easy, p_hard, p_ambiguous, p_mislabeled, verdict, suggested_label, why and the grade `mohs`.

    `by` is the margin to go by: "margin", "mean_margin" or "aum". A row without one (NaN) gets no verdict. right (N,): the
    probabilities that the labels are right, where they are known better than by q, as by `fit_noise` out of sample.
    variability (N,): in place of the table's, which counts the first epochs too, when nothing was learned yet.
    """
    check_choice("by", by, MARGINS)
    q = label_right(column(table, by)) if right is None else _by_row("right", right, table)
    if variability is None:
        variability = column(table, "variability") if "variability" in table.column_names else np.zeros(len(table))
    p = probabilities(q, _by_row("variability", variability, table), place(table))  # (N, 4)
    best = np.where(np.isnan(q), -1, np.nan_to_num(p).argmax(1))
    columns: dict[str, Any] = {f"p_{name}": p[:, i] for i, name in enumerate(VERDICTS)}
    columns["verdict"] = pa.array([VERDICTS[i] if i >= 0 else None for i in best])
    if {"label", "predicted"} <= set(table.column_names):
        wrong = best == VERDICTS.index("mislabeled")
        label, predicted = table.column("label").to_pylist(), table.column("predicted").to_pylist()
        columns["suggested_label"] = pa.array([new if w else old for old, new, w in zip(label, predicted, wrong, strict=True)])
    return with_grade(add_columns(table, columns | {"why": reasons(table, by)}))


def _by_row(name: str, values: Any, table: pa.Table) -> Array:
    made: Array = np.asarray(values, dtype=float)
    if made.shape != (len(table),):
        raise ValueError(f"{name} must have shape ({len(table)},), one a row of the table, got {made.shape}")
    return made


def label_right(margins: Array) -> Array:
    """q, (N,): the probability that the given label is right; NaN where there is no margin."""
    known = np.isfinite(margins)
    scale = (np.median(np.abs(margins[known])) if known.any() else 0.0) or 1.0
    odds = STEEPNESS * margins / scale
    right: Array = expit(odds)
    for _ in range(ROUNDS if known.any() else 0):  # π is what the verdict itself finds
        prior = np.clip(1 - np.nanmean(right), RAREST, 0.5)
        right = expit(odds - PRIOR * logit(prior))
    return right


def probabilities(right: Array, variability: Array, rank: Array) -> Array:
    """q, v and r, (N,) each -> the four probabilities (N, 4) in the order of VERDICTS; each row sums to 1."""
    wavering = np.nan_to_num((2 * variability) ** 2).clip(0, 1)
    undecided = 1 - (1 - 4 * right * (1 - right)) * (1 - wavering)
    settled, hard = right * (1 - undecided), rank**4
    return np.stack([settled * (1 - hard), settled * hard, right * undecided, 1 - right], 1)


def place(table: pa.Table) -> Array:
    """r, (N,): the mean of the example's places (0 the easiest, 1 the hardest) in the scores the table has, ranked again."""
    names = [name for name in PLACES if SCORES[name].column in table.column_names]
    if not names:
        raise ValueError(f"the table has none of the columns a verdict needs: {', '.join(PLACES)}")
    return _ranks(np.mean([_ranks(hardness(table, name)) for name in names], axis=0))


def reasons(table: pa.Table, by: str) -> list[str]:
    """Two or three facts a row, in words: the margin, the neighbors, the course of training."""
    names = {name: table.column(name).to_pylist() for name in table.column_names if name in FACTS}
    rows = zip(*names.values(), strict=True)
    return ["; ".join(_facts(dict(zip(names, row, strict=True)), by)) for row in rows]


FACTS = ("label", "predicted", *MARGINS, "neighbors", "first_learned", "forgetting", "epochs", "mean_confidence")


def _facts(row: dict[str, Any], by: str) -> list[str]:
    if row[by] is None or row[by] != row[by]:
        return ["not scored"]
    agrees = row.get("predicted") == row.get("label")
    said = "predicted as labeled" if agrees else f"predicted {row.get('predicted')}, not {row.get('label')}"
    told = [f"{said} ({by.replace('_', ' ')} {row[by]:+.1f})"]
    if row.get("neighbors") is not None:
        told.append(f"{row['neighbors']:.0%} of its neighbors bear its label")
    epochs = row.get("epochs")
    if row.get("first_learned") is not None and epochs:
        never = row["first_learned"] >= epochs
        forgotten = row.get("forgetting") or 0
        again = f", forgotten {forgotten:.0f} time{'s' if forgotten > 1 else ''} since" if forgotten else ""
        told.append(f"never learned in {epochs:.0f} looks" if never else f"learned at epoch {row['first_learned']:.0f}{again}")
    return told


def _ranks(values: Array) -> Array:
    """Places from 0 to 1, ties in the middle; the middle where there is no value."""
    from scipy.stats import rankdata

    known = ~np.isnan(values)
    ranks = np.full(len(values), 0.5)
    if known.sum() > 1:
        ranks[known] = (rankdata(values[known]) - 1) / (known.sum() - 1)
    return ranks
