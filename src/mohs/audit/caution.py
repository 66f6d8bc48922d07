"""When not to rely on an audit: the judge is too weak, or agrees with too few labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

AGREES = 0.5  # share of labels that the judge predicts, below which it may know too little
NO_BETTER = 0.9  # median error of predicted numbers, relative to that of their median, beyond which a judge knows too little
WEAK = 0.25  # trust below which flags reach a precision of .75 in 55 % of the audits of tables, instead of 81 %


def caution(table: pa.Table, trust: float = 1.0) -> str | None:
    """A warning about the verdicts, for the reader; None if they can be relied on.

    trust: `LabelJudgment.trust`. It is also low where there is little to find, so unless it is 0 it counts only if labels are
    flagged.
    """
    if "residual" in table.column_names:
        return _caution_of_numbers(table)
    pairs = zip(table.column("label").to_pylist(), table.column("predicted").to_pylist(), strict=True)
    agrees = sum(given == predicted for given, predicted in pairs) / len(table)
    if trust == 0:
        return (
            f"The judge predicts the labels no better than by chance: it agrees with {agrees:.0%} of them. It cannot judge them "
            "(few examples per class, uninformative features). Check examples before you act on these verdicts."
        )
    if agrees < AGREES:
        return (
            f"The judge agrees with only {agrees:.0%} of the labels. It cannot judge them well (few examples per class, "
            "uninformative features), or most labels are wrong. Check examples before you act on these verdicts."
        )
    if trust < WEAK and "mislabeled" in table.column("verdict").to_pylist():
        return (
            "The judge is weak on these data: many of its disagreements with labels are its own mistakes, and its flags are less "
            "certain than usual. Check some of them before you rely on them. More examples or more informative features make the "
            "judge better."
        )
    return None


def _caution_of_numbers(table: pa.Table) -> str | None:
    """The warning for a regression: numbers are never predicted exactly, so the size of the errors decides."""
    given, predicted = (np.asarray(table.column(name).to_pylist(), dtype=np.float64) for name in ("label", "predicted"))
    error, spread = np.nanmedian(np.abs(given - predicted)), np.nanmedian(np.abs(given - np.nanmedian(given)))
    if error < NO_BETTER * spread:
        return None
    return (
        "The judge predicts the numbers hardly better than their median does. It cannot judge them well (few examples, "
        "uninformative features). Check examples before you act on these verdicts."
    )


def cautions(table: pa.Table, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts, with the caution added if there is one."""
    text = " ".join(one for one in (facts.get("caution"), caution(table, facts.get("trust", 1.0))) if one)
    return {**facts, "caution": text} if text else facts
