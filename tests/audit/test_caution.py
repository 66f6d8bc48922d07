"""The caution: present where the judge is weak or agrees with too few labels, and kept beside others."""

from __future__ import annotations

from mohs.audit.caution import caution, cautions
from mohs.hardness.table import make_table

SOUND = make_table({"label": ["a", "b"], "predicted": ["a", "a"], "verdict": ["easy", "mislabeled"]})
CLEAN = make_table({"label": ["a", "b"], "predicted": ["a", "b"], "verdict": ["easy", "hard"]})
UNSURE = make_table({"label": ["a", "b", "a", "b"], "predicted": ["a", "a", "b", None], "verdict": ["easy"] * 4})


def test_caution_where_the_judge_agrees_with_few_labels() -> None:
    assert "agrees with only 25% of the labels" in (caution(UNSURE) or "")
    assert caution(SOUND) is None
    text = cautions(UNSURE, {"caution": "Memorized.", "trust": 0.02})["caution"]
    assert text.startswith("Memorized. The judge agrees")
    assert "weak" not in text  # one reason is enough


def test_caution_where_the_judge_is_weak() -> None:
    assert "The judge is weak on these data" in cautions(SOUND, {"trust": 0.1, "model": "x"})["caution"]
    assert caution(SOUND, 0.3) is None
    assert caution(CLEAN, 0.02) is None  # nothing is flagged, so there is nothing to rely on
    assert "no better than by chance: it agrees with 100% of them" in (caution(CLEAN, 0.0) or "")
    assert cautions(SOUND, {"model": "x", "trust": 0.9}) == {"model": "x", "trust": 0.9}
    assert cautions(SOUND, {"model": "x"}) == {"model": "x"}


def test_numbers_are_not_predicted_exactly() -> None:
    numbers = {"label": [1.0, 2.0, 3.0, 4.0], "verdict": ["easy"] * 4, "residual": [0.1] * 4}
    assert caution(make_table({**numbers, "predicted": [1.1, 2.1, 3.1, 3.9]})) is None
    assert "hardly better than their median" in (caution(make_table({**numbers, "predicted": [2.5, 2.5, 2.5, 2.5]})) or "")
