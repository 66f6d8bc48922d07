"""The word of caution: said where the model agrees with too few labels, kept beside what else is to be said."""

from __future__ import annotations

import numpy as np

from mohs.audit.caution import HELD_ACCURACY, caution, cautions, weakness
from mohs.hardness.noise_rate import NoiseEstimate, estimate_noise
from mohs.hardness.table import make_table

SOUND = make_table({"label": ["a", "b"], "predicted": ["a", "a"]})
UNSURE = make_table({"label": ["a", "b", "a", "b"], "predicted": ["a", "a", "b", None]})


def estimate(wrong: int) -> NoiseEstimate:
    """Of 100 labels, of which sure predictions contradict so many."""
    labels = np.arange(100) % 2
    probs = np.eye(2)[labels] * 0.98 + 0.01
    return estimate_noise(np.where(np.arange(100) < wrong, 1 - labels, labels), probs)


def test_caution_where_the_model_agrees_with_few_labels() -> None:
    assert "agrees with only 25% of the labels" in (caution(UNSURE) or "")
    assert caution(SOUND) is None
    told = cautions(UNSURE, {"caution": "Known by heart.", HELD_ACCURACY: 0.1}, estimate(0))["caution"]
    assert told.startswith("Known by heart. The model agrees")
    assert "was not trained on" not in told  # one reason is enough


def test_caution_where_the_network_misses_more_than_wrong_labels_explain() -> None:
    assert (
        "predicts only 60% of the labels it was not trained on" in cautions(SOUND, {HELD_ACCURACY: 0.6}, estimate(0))["caution"]
    )
    assert weakness(0.6, 0.3) is None
    assert "caution" not in cautions(SOUND, {HELD_ACCURACY: 0.6}, estimate(40))
    assert cautions(SOUND, {"model": "x"}, estimate(0)) == {"model": "x"}
