"""Calibrate p_mislabeled on the data set itself, by a few labels that somebody has checked.

Labels and features alone cannot distinguish natural ambiguity from mistakes, so p_mislabeled is too high on some data sets and
too low on others. Checked labels show which. With l the log-odds of p_mislabeled, the calibrated log-odds of a wrong label are

    l₀ + c + e^s (l − l₀),    l₀ = −2.5,   c ~ N(0, 1),   s ~ N(0, 0.4²)

with c and s of the highest posterior probability. Without checked labels they are 0, and p_mislabeled is unchanged. Which labels
are checked may depend on p_mislabeled: choosing the most doubtful ones causes no bias.

l₀ and the widths come from 1,326 draws of tables with wrong labels, judged by networks that had not seen the table: the marginal
likelihood is highest for widths of 1.4 and 0.6, uncorrelated at l₀. With 70 % of that a little less is flagged, and more of it
is wrong, because c and s are uncertain (results/audit/README.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from mohs.hardness.learned_odds import log_odds
from mohs.hardness.noise_model import Array

PIVOT, SHIFT, SLOPE = -2.5, 1.0, 0.4  # l₀, and the standard deviations of c and s
MOST, EXACT = 6.0, {"ftol": 1e-12, "gtol": 1e-8}  # bounds (in standard deviations) and tolerances of the search for c and s
LEAST = 1e-6  # distance of p_mislabeled from 0 and 1 below which it is cut
TO_CHECK, AMONG, BEYOND = 20, 2, 1.5  # labels to check first, out of twice as many, or of 1.5 times as many as are flagged


class Calibration(NamedTuple):
    """log-odds of a wrong label = intercept + slope · log-odds of p_mislabeled."""

    intercept: float = 0.0
    slope: float = 1.0

    def __call__(self, p: Array) -> Array:
        """Probabilities (N,) -> calibrated ones; NaN stays NaN."""
        if self == Calibration():
            return p
        calibrated: Array = expit(self.intercept + self.slope * log_odds(p, LEAST))
        return calibrated

    def after(self, first: Calibration) -> Calibration:
        """This calibration of probabilities that `first` has calibrated."""
        return Calibration(self.intercept + self.slope * first.intercept, self.slope * first.slope)


IDENTITY = Calibration()


@dataclass(frozen=True)
class CheckedLabels:
    """Labels that somebody has checked.

    Attributes:
        rows: The examples (n,), indices.
        wrong: Whether the label of each was found wrong (n,).
        labels: The class that each should have instead (n,), a name; None where it is unknown, or where the label is right.
        fresh: Whether each current label is the one that was checked (n,), so that its probability can be compared with the
        outcome.
            A corrected label is right because it was corrected.
        earlier: Probability and outcome of labels that were checked in an earlier audit, and may have been corrected since.
        before: The calibration that the earlier audit used already.
    """

    rows: tuple[int, ...] = ()
    wrong: tuple[bool, ...] = ()
    labels: tuple[Any, ...] = ()
    fresh: tuple[bool, ...] = ()
    earlier: tuple[tuple[float, bool], ...] = ()
    before: Calibration = IDENTITY


@dataclass(frozen=True)
class Checks:
    """What checked labels changed.

    Attributes:
        number, wrong: Number of newly checked labels, and how many of them were wrong.
        expected: How many were expected to be wrong.
        others, others_before: Expected share of wrong labels among the unchecked ones, with and without the checks.
        calibration: The calibration from the judge's probabilities to these.
        outcome: "right" or "wrong" for each checked example, by its index.
    """

    number: int
    wrong: int
    expected: float
    others: float
    others_before: float
    calibration: Calibration
    outcome: dict[int, str]

    @property
    def summary(self) -> str:
        """The change in a line."""
        number = self.number or len(self.outcome)
        held = f"{number:,} checked label{'s' * (number != 1)}"
        if self.number:
            held += f": {self.wrong:,} wrong, {self.expected:.1f} expected"
        elif self.calibration == IDENTITY:
            return f"{held}; p_mislabeled of the others is unchanged: to calibrate it, name the earlier audit (previous)"
        now, then = f"{self.others:.1%}", f"{self.others_before:.1%}"
        if now == then:
            return f"{held}; p_mislabeled of the others is unchanged ({now} wrong)"
        moved = "lowered" if self.others < self.others_before else "raised"
        return f"{held}; p_mislabeled of the others {moved} ({now} wrong instead of {then})"


def recalibrate(p: Array, rows: Sequence[int] | Array, wrong: Sequence[bool] | Array) -> Array:
    """Probabilities of a wrong label, calibrated by labels that were checked.

    Args:
        p: Probability that each label is wrong (N,); NaN where it is unknown.
        rows: The checked examples (n,), indices.
        wrong: Whether the label of each was found wrong (n,).

    Returns:
        The probabilities (N,), ranked as before; those of the checked labels are 0 or 1.
    """
    rows, wrong = np.asarray(rows, dtype=int), np.asarray(wrong, dtype=bool)
    calibrated = fit_calibration(p[rows], wrong)(p).copy()
    calibrated[rows] = wrong
    return calibrated


def fit_calibration(p: Array, wrong: Array) -> Calibration:
    """The calibration by checked labels: their probabilities (n,), and whether each was found wrong (n,)."""
    known = ~np.isnan(p)
    if not known.any():
        return IDENTITY
    away, found = log_odds(p[known], LEAST) - PIVOT, np.asarray(wrong, dtype=bool)[known]

    def loss(at: Array) -> tuple[float, Array]:
        """Minus the log-posterior, and its gradient."""
        slope = np.exp(at[1])
        odds = PIVOT + at[0] + slope * away
        value = np.logaddexp(0, np.where(found, -odds, odds)).sum() + at[0] ** 2 / (2 * SHIFT**2) + at[1] ** 2 / (2 * SLOPE**2)
        beyond = expit(odds) - found
        return float(value), np.array([beyond.sum() + at[0] / SHIFT**2, (beyond * slope * away).sum() + at[1] / SLOPE**2])

    bounds = [(-MOST * width, MOST * width) for width in (SHIFT, SLOPE)]
    shift, log_slope = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=bounds, options=EXACT).x
    slope = float(np.exp(log_slope))
    return Calibration(float(PIVOT + shift - slope * PIVOT), slope)


def labels_to_check(p: Array, checked: Sequence[int] = (), *, flagged: int = 0, number: int = TO_CHECK) -> Array:
    """The labels whose check is most informative (n,), indices, the most doubtful first.

    They are spread evenly over the most doubtful labels: 1.5 times as many as are flagged, because the calibration may move the
    threshold of flagging, and at least twice as many as are checked, because checked labels may no longer be flagged.

    Args:
        p: Probability that each label is wrong (N,); NaN where it is unknown.
        checked: Labels that are checked already, indices.
        flagged: Number of labels that are flagged without having been checked.
        number: Number of labels.
    """
    open_ = np.setdiff1d(np.flatnonzero(~np.isnan(p)), np.asarray(checked, dtype=int))
    doubtful = open_[np.argsort(-p[open_], kind="stable")][: max(AMONG * number, round(BEYOND * flagged))]
    spread = np.unique(np.linspace(0, len(doubtful) - 1, min(number, len(doubtful))).round().astype(int))
    first: Array = doubtful[spread]
    return first
