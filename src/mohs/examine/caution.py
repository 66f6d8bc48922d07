"""When not to believe an audit: the model agrees with too few labels to judge any."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

AGREES = 0.5


def caution(table: pa.Table) -> str | None:
    """What the reader must know before believing the verdicts; None where nothing speaks against them."""
    pairs = zip(table.column("label").to_pylist(), table.column("predicted").to_pylist(), strict=True)
    agrees = sum(given == said for given, said in pairs) / len(table)
    if agrees >= AGREES:
        return None
    return (
        f"The model agrees with only {agrees:.0%} of the labels: it has learnt too little to judge them (few examples a class, "
        "few epochs, features that say little), or most of them are wrong. Do not act on these verdicts without looking."
    )


def cautions(table: pa.Table, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts with that word of caution among them, where there is one."""
    told = " ".join(text for text in (facts.get("caution"), caution(table)) if text)
    return {**facts, "caution": told} if told else facts
