"""Whether a row's networks learned anything: where they did not, nothing follows from how they compare.

    learned    training or test accuracy, the mean over seeds, is at least min(2/K, 1/K + ¼ (1 − 1/K))          K classes

Twice chance; where classes are few and that would be too much, a quarter of the way from chance to 1. Either accuracy will
do: with most labels wrong a network that has learned the truth gives few of them. Results that do not say how many classes
there are, or hold neither accuracy, are taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from mohs.studies.collect import Result

ACCURACIES = ("accuracy", "test_accuracy")
NOTHING = "nothing follows from it"


def bar(classes: int) -> float:
    """The accuracy from which on a network of so many classes has learned something."""
    chance = 1 / classes
    return min(2 * chance, chance + (1 - chance) / 4)


def unlearned(results: Sequence[Result], row: str) -> str:
    """Why nothing follows from this row, in a sentence; "" where its networks learned or nothing is known of them."""
    own = [one for one in results if one["row"] == row]
    done = [one for one in own if "error" not in one]
    if own and not done:
        return f"every run of {row} failed ({own[0]['error']}): {NOTHING}"
    known = [one for one in done if "classes" in one and any(name in one for name in ACCURACIES)]
    if not known:
        return ""
    means = {name: _mean([one[name] for one in known if name in one]) for name in ACCURACIES if any(name in one for one in known)}
    need = bar(int(known[0]["classes"]))
    if max(means.values()) >= need:
        return ""
    words = {"accuracy": "training accuracy", "test_accuracy": "test accuracy"}
    told = ", ".join(f"{words[name]} {100 * mean:.1f} %" for name, mean in means.items())
    return f"{row}: {told}, under {100 * need:.1f} % with {known[0]['classes']} classes: this network did not learn: {NOTHING}"


def of_learned(results: Sequence[Result]) -> list[Result]:
    """The results of those rows whose networks learned."""
    bad = {row for row in dict.fromkeys(one["row"] for one in results) if unlearned(results, row)}
    return [one for one in results if one["row"] not in bad]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
