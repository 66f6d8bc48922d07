"""When not to rely on an audit: the judge is too weak, or agrees with too few labels."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

AGREES = 0.5  # share of labels that the judge predicts, below which it may know too little
WEAK = 0.25  # trust below which flags reach a precision of .75 in 55 % of the audits of tables, instead of 81 %


def caution(table: pa.Table, trust: float = 1.0) -> str | None:
    """What the reader must know before relying on the verdicts; None if nothing speaks against them."""
    pairs = zip(table.column("label").to_pylist(), table.column("predicted").to_pylist(), strict=True)
    agrees = sum(given == predicted for given, predicted in pairs) / len(table)
    if agrees < AGREES:
        return (
            f"The judge agrees with only {agrees:.0%} of the labels. It knows too little to judge them (few examples per class, "
            "features that say little), or most labels are wrong. Look before you act on these verdicts."
        )
    if trust < WEAK:
        return (
            "The judge is weak on these data: many of the labels that it disagrees with are its own mistakes, and what it flags "
            "is less certain than usual. Check some of its flags before you rely on them. More examples or more informative "
            "features make it better."
        )
    return None


def cautions(table: pa.Table, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts, with a caution if there is one."""
    text = " ".join(one for one in (facts.get("caution"), caution(table, facts.get("trust", 1.0))) if one)
    return {**facts, "caution": text} if text else facts
