"""When not to believe an audit: the model agrees with too few labels to judge any."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mohs.hardness.noise_rate import NoiseEstimate

HELD_ACCURACY = "accuracy there"  # the fact's name
AGREES = 0.5
UNEXPLAINED = 0.25  # of the held-out labels, which the network misses and wrong labels do not account for


def caution(table: pa.Table) -> str | None:
    """What the reader must know before believing the verdicts; None where nothing speaks against them."""
    pairs = zip(table.column("label").to_pylist(), table.column("predicted").to_pylist(), strict=True)
    agrees = sum(given == said for given, said in pairs) / len(table)
    if agrees >= AGREES:
        return None
    return (
        f"The model agrees with only {agrees:.0%} of the labels: it has learned too little to judge them (few examples a class, "
        "few epochs, features that say little), or most of them are wrong. Do not act on these verdicts without looking."
    )


def weakness(accuracy: float, rate: float) -> str | None:
    """The same for a network that gets so many held-out labels right, where this share of labels is wrong."""
    if 1 - accuracy - rate <= UNEXPLAINED:
        return None
    return (
        f"The network predicts only {accuracy:.0%} of the labels it was not trained on: where it and a label differ, it is often "
        "the network that is wrong. More examples, more epochs or a stronger model make the verdicts better."
    )


def cautions(table: pa.Table, facts: dict[str, Any], estimate: NoiseEstimate) -> dict[str, Any]:
    """The facts with a word of caution among them, where there is one to say."""
    found = 0.0 if estimate.kind == "none found" else estimate.rate
    held = facts.get(HELD_ACCURACY)
    weak = None if held is None else weakness(held, found)
    told = " ".join(text for text in (facts.get("caution"), caution(table) or weak) if text)
    return {**facts, "caution": told} if told else facts
