"""The scores: a table's measurements turned so that higher is always harder, and the grade from 1 to 10 made of them.

    hardness = sign · column                        grade = ⌈10 · (place − ½) / N⌉        place: rank from 1, the easiest first

Equal hardness gets an equal grade, that of the middle of its ranks, so identical examples (or a single one) are graded 5; with
fewer than ten examples some grades do not occur. An example without a value (NaN) has no grade and is not counted in N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mohs.hardness.ranks import Ranks
from mohs.hardness.table import add_columns, column


@dataclass(frozen=True)
class Score:
    """A column of the table and the sign that makes higher mean harder."""

    column: str
    sign: int
    meaning: str


SCORES: dict[str, Score] = {
    "confidence": Score("confidence", -1, "the model gives the label little probability"),
    "margin": Score("margin", -1, "the label's log-odds are low"),
    "loss": Score("loss", 1, "the label's cross-entropy is high"),
    "el2n": Score("el2n", 1, "the prediction is far from the one-hot label"),
    "avh": Score("avh", 1, "the features point away from the label's weights, compared with the other classes'"),
    "avc": Score("avc", -1, "the features point at no class in particular"),
    "norm": Score("norm", -1, "the features are short"),
    "norm_in_class": Score("norm_in_class", -1, "the features are short for the label's class"),
    "entropy": Score("entropy", 1, "the prediction is spread over several classes"),
    "energy": Score("energy", 1, "all logits are low, as for inputs far from the training data"),
    "aum": Score("aum", -1, "another class had a larger logit than the label during training"),
    "mean_margin": Score("mean_margin", -1, "the label's log-odds were low during training"),
    "mean_confidence": Score("mean_confidence", -1, "the label's probability was low during training"),
    "variability": Score("variability", 1, "the label's probability varied during training"),
    "mean_avh": Score("mean_avh", 1, "the features pointed away from the label's weights during training"),
    "forgetting": Score("forgetting", 1, "it was learned and forgotten again, or never learned"),
    "first_learned": Score("first_learned", 1, "it was learned late or never"),
    "neighbors": Score("neighbors", -1, "its nearest neighbors have other labels"),
    "residual": Score("residual", 1, "the given number is far from the expected one"),
    "human": Score("human", -1, "few people would choose the label, by a model trained on people's votes"),
    "disagreement": Score("disagreement", 1, "people disagree on its label"),
}

# Averages over training follow human judgment best, margins before angles (CIFAR-10H); scores that ignore the label are not used.
PREFERENCE = (
    "mean_margin",
    "aum",
    "mean_confidence",
    "margin",
    "loss",
    "confidence",
    "el2n",
    "mean_avh",
    "avh",
    "first_learned",
    "forgetting",
    "neighbors",
)


def hardness(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """The score of every example (N,), float64, higher = harder; NaN where the table has no value."""
    if name not in SCORES:
        raise ValueError(f"unknown score {name!r}; known: {', '.join(SCORES)}")
    score = SCORES[name]
    values: np.ndarray[Any, Any] = score.sign * column(table, score.column).astype(np.float64)
    return values


def grade(values: Any) -> np.ndarray[Any, Any]:
    """Hardness (N,) -> grade (N,) from 1 (easiest) to 10 (hardest) by decile; 0, no grade, where it is NaN."""
    values = np.asarray(values, np.float64)
    if values.ndim != 1:
        raise ValueError(f"hardness must have shape (N,), one number per row, got shape {values.shape}")
    return Ranks.of(values).grade(values)


def with_grade(table: pa.Table, *, by: str | None = None) -> pa.Table:
    """The table with the column `mohs`: the grade by this score, or by the first of PREFERENCE that the table has."""
    if by is None:
        there = [name for name in PREFERENCE if SCORES[name].column in table.column_names]
        if not there:
            raise ValueError(f"the table has no score to grade by; it needs one of: {', '.join(PREFERENCE)}")
        by = there[0]
    return add_columns(table, {"mohs": grade_column(hardness(table, by))})


def grade_column(values: Any) -> pa.Array:
    """`grade` as a column; null without a grade."""
    grades = grade(values)
    return pa.array(grades, mask=grades == 0)
