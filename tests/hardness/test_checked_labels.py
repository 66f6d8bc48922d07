"""A few checked labels calibrate p_mislabeled: nothing without them, the same order always, up or down as they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs.hardness.checked_labels import (
    TO_CHECK,
    Calibration,
    CheckedLabels,
    fit_calibration,
    labels_to_check,
    recalibrate,
)
from mohs.hardness.judge_checks import judge_by_checks
from mohs.hardness.judgment import LabelJudgment, judge_labels
from mohs.hardness.noise_model import Array

CHANCES = st.lists(st.floats(0, 1), min_size=3, max_size=60)


@st.composite
def checked(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """Probabilities (N,), checked rows (n,), and whether each is wrong."""
    p = np.array(draw(CHANCES))
    rows = np.array(draw(st.lists(st.integers(0, len(p) - 1), unique=True, max_size=len(p))), dtype=int)
    wrong = np.array(draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), dtype=bool)
    return p, rows, wrong


@given(CHANCES)
def test_without_checked_labels_nothing_changes(chances: list[float]) -> None:
    p = np.array([*chances, np.nan])
    np.testing.assert_array_equal(recalibrate(p, [], []), p)


@given(checked())
@settings(max_examples=60, deadline=None)
def test_the_order_stays_and_checked_labels_are_certain(given_: tuple[Array, Array, Array]) -> None:
    p, rows, wrong = given_
    new = recalibrate(p, rows, wrong)
    np.testing.assert_array_equal(new[rows], wrong)
    others = np.setdiff1d(np.arange(len(p)), rows)
    order = others[np.argsort(p[others], kind="stable")]
    assert (np.diff(new[order]) >= -1e-12).all()
    assert ((new >= 0) & (new <= 1)).all()


@given(checked())
@settings(max_examples=60, deadline=None)
def test_more_wrong_labels_than_expected_raise_p_and_fewer_lower_it(given_: tuple[Array, Array, Array]) -> None:
    p, rows, _ = given_
    if not len(rows):
        return
    pivot = 1 / (1 + np.exp(2.5))  # where the prior of the slope has no part
    raised, lowered = (fit_calibration(p[rows], np.full(len(rows), wrong))(np.array([pivot])) for wrong in (True, False))
    assert lowered <= pivot <= raised


@given(st.floats(0.01, 0.99), st.integers(1, 40), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_labels_of_one_probability_move_towards_the_share_that_is_wrong(p: float, number: int, share: float) -> None:
    wrong = np.arange(number) < round(share * number)
    new = float(fit_calibration(np.full(number, p), wrong)(np.array([p]))[0])
    assert min(p, wrong.mean()) - 1e-6 <= new <= max(p, wrong.mean()) + 1e-6


@pytest.mark.parametrize(("shift", "slope"), [(-2.0, 1.0), (2.0, 1.0), (0.0, 0.6), (0.0, 1.6)])
def test_many_checks_find_how_far_the_judge_is_off(shift: float, slope: float) -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 2, size=4000)
    wrong = rng.random(4000) < 1 / (1 + np.exp(-shift - slope * odds))
    found = fit_calibration(1 / (1 + np.exp(-odds)), wrong)
    np.testing.assert_allclose(found, (shift, slope), atol=0.2)


def test_the_fit_is_the_maximum_of_the_posterior() -> None:
    rng = np.random.default_rng(1)
    p, wrong = rng.random(20), rng.random(20) < 0.3
    odds = np.log(p / (1 - p))

    def posterior(c: Array, s: Array) -> Array:
        at = -2.5 + c + np.exp(s) * (odds + 2.5)
        return -np.logaddexp(0, np.where(wrong, -at, at)).sum() - c**2 / 2 - s**2 / (2 * 0.4**2)

    grid = [(posterior(c, s), c, s) for c in np.linspace(-3, 3, 121) for s in np.linspace(-1.5, 1.5, 121)]
    _, c, s = max(grid)
    np.testing.assert_allclose(fit_calibration(p, wrong), (-2.5 + c + 2.5 * np.exp(s), np.exp(s)), atol=0.15)


def test_unknown_probabilities_teach_nothing_and_stay_unknown() -> None:
    p = np.array([0.9, np.nan, 0.2, 0.1])
    new = recalibrate(p, [1], [True])
    np.testing.assert_array_equal(new, [0.9, 1, 0.2, 0.1])
    assert np.isnan(recalibrate(p, [0], [False])[1])


def test_one_calibration_after_another() -> None:
    p, first, second = np.array([0.1, 0.5, 0.9]), Calibration(0.5, 0.8), Calibration(-1, 1.2)
    np.testing.assert_allclose(second.after(first)(p), second(first(p)))


def test_labels_to_check_are_spread_over_the_most_doubtful_ones() -> None:
    p = np.linspace(0, 1, 1000)
    first = labels_to_check(p)
    assert len(first) == TO_CHECK
    assert first[0] == 999
    assert set(first) <= set(range(960, 1000))
    again = labels_to_check(p, first.tolist())
    assert not set(first) & set(again)
    many = labels_to_check(p, flagged=400)
    assert many.min() == 400  # 600 doubtful ones
    assert labels_to_check(np.array([0.5, np.nan, 0.7])).tolist() == [2, 0]
    assert labels_to_check(np.array([np.nan])).tolist() == []


@pytest.fixture(scope="module")
def judged() -> tuple[LabelJudgment, Array, Array]:
    """A judgment on 400 labels of 3 classes that overlap, 40 of them wrong: judgment, labels, truth."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    logits = 3 * np.eye(3)[truth] + 1.2 * rng.normal(size=(400, 3))
    labels = np.where(np.arange(400) < 40, (truth + 1) % 3, truth)
    return judge_labels(logits, labels), labels, truth


def test_confirmed_labels_are_never_flagged_and_wrong_ones_get_their_label(judged: tuple[LabelJudgment, Array, Array]) -> None:
    judgment, labels, truth = judged
    rows = np.flatnonzero(judgment.flagged)[:6]
    wrong = np.arange(6) >= 3
    names = [None if not bad else "abc"[truth[row]] for row, bad in zip(rows, wrong, strict=True)]
    checks = CheckedLabels(tuple(rows), tuple(wrong), tuple(names), (True,) * 6)
    new = judge_by_checks(judgment, checks, labels, list("abc"), precision=0.5)
    assert not new.flagged[rows[:3]].any()
    assert not new.cannot_tell[rows].any()
    assert new.flagged[rows[3:]].all()
    np.testing.assert_array_equal(new.p_mislabeled[rows], wrong)
    np.testing.assert_array_equal(new.suggested[rows], np.where(wrong, truth[rows], labels[rows]))
    assert new.low <= new.rate <= new.high
    assert new.rate == pytest.approx(new.p_mislabeled.mean())
    assert new.checks is not None
    assert new.checks.outcome == {int(row): "wrong" if bad else "right" for row, bad in zip(rows, wrong, strict=True)}


def test_flags_on_unchecked_labels_keep_the_precision_by_themselves(judged: tuple[LabelJudgment, Array, Array]) -> None:
    judgment, labels, _ = judged
    rows = tuple(range(20))
    new = judge_by_checks(judgment, CheckedLabels(rows, (True,) * 20, (None,) * 20, (True,) * 20), labels, list("abc"))
    others = new.flagged.copy()
    others[:20] = False
    assert others.any()
    assert new.p_mislabeled[others].mean() >= 0.8


def test_the_summary_says_what_changed(judged: tuple[LabelJudgment, Array, Array]) -> None:
    judgment, labels, _ = judged
    rows = tuple(np.argsort(-judgment.p_mislabeled)[:10].tolist())
    kept = judge_by_checks(judgment, CheckedLabels(rows, (False,) * 10, (None,) * 10, (True,) * 10), labels, list("abc"))
    assert kept.checks is not None
    assert kept.checks.summary.startswith("10 checked labels: 0 wrong, ")
    assert "p_mislabeled of the others lowered" in kept.checks.summary
    assert kept.facts["checked labels"] == kept.checks.summary
    assert judgment.facts == {"trust": round(judgment.trust, 3)}


def test_labels_that_were_corrected_do_not_teach_by_themselves(judged: tuple[LabelJudgment, Array, Array]) -> None:
    judgment, labels, _ = judged
    rows = tuple(range(10))
    new = judge_by_checks(judgment, CheckedLabels(rows, (False,) * 10, (None,) * 10, (False,) * 10), labels, list("abc"))
    np.testing.assert_array_equal(new.p_mislabeled[10:], judgment.p_mislabeled[10:])
    told = CheckedLabels(rows, (False,) * 10, (None,) * 10, (False,) * 10, earlier=((0.9, False),) * 10)
    assert judge_by_checks(judgment, told, labels, list("abc")).p_mislabeled[10:].mean() < new.p_mislabeled[10:].mean()
