"""How likely each label is wrong, by a model and by checked labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mohs.hardness.checked_labels import CheckedLabels, Checks, fit_calibration
from mohs.hardness.judgment import LabelJudgment, choose_flags, suggestions
from mohs.hardness.noise_model import Array


def judge_by_checks(
    judgment: LabelJudgment, checked: CheckedLabels, labels: Array, classes: Sequence[Any], *, precision: float = 0.8
) -> LabelJudgment:
    """The judgment on labels by a model, revised by labels that somebody has checked.

    Args:
        judgment: By scores that are out of sample (`judge_labels`).
        checked: The checked labels.
        labels: The given labels, class indices (N,).
        classes: Class names, in the order of the columns of the judgment.
        precision: Expected share of wrong labels among those that are flagged without having been checked.

    Returns:
        The judgment: p_mislabeled is calibrated, that of checked labels is 0 or 1, and they are flagged if they are wrong.
    """
    rows, wrong, fresh = np.array(checked.rows, int), np.array(checked.wrong, bool), np.array(checked.fresh, bool)
    raw = judgment.p_mislabeled
    told = np.array([*checked.before(raw)[rows[fresh]], *(p for p, _ in checked.earlier)])
    found = np.array([*wrong[fresh], *(one for _, one in checked.earlier)], dtype=bool)
    told, found = told[~np.isnan(told)], found[~np.isnan(told)]
    calibration = fit_calibration(told, found).after(checked.before)
    p, flagged, unchecked = calibration(raw).copy(), np.zeros(len(raw), dtype=bool), ~np.isnan(raw)
    unchecked[rows] = False
    flagged[unchecked] = choose_flags(p[unchecked], precision)
    others, others_before = (float(one[unchecked].mean()) if unchecked.any() else 0.0 for one in (p, raw))
    p[rows], flagged[rows] = wrong, wrong
    place, posterior = {str(name): i for i, name in enumerate(classes)}, judgment.posterior.copy()
    for row, bad, name in zip(rows, wrong, checked.labels, strict=True):
        right = place.get(str(name)) if bad else labels[row]
        if right is not None:
            posterior[row] = np.arange(len(classes)) == right
    suggested, p_suggested = suggestions(p, posterior, labels)
    rate, caught = float(np.nanmean(p)), float(p[flagged].sum()) / len(p)
    outcome = {int(row): "wrong" if bad else "right" for row, bad in zip(rows, wrong, strict=True)}
    return replace(
        judgment,
        p_mislabeled=p,
        flagged=flagged,
        cannot_tell=judgment.cannot_tell & ~flagged & unchecked,
        suggested=suggested,
        p_suggested=p_suggested,
        posterior=posterior,
        rate=rate,
        low=min(max(min(judgment.low, caught / 2), float(wrong.sum()) / len(p)), rate),
        high=max(judgment.high, rate),
        checks=Checks(len(told), int(found.sum()), float(told.sum()), others, others_before, calibration, outcome),
    )
