"""The noise model against data drawn from it, obvious loops, and judges that are strong, weak and useless."""

from __future__ import annotations

import math
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mohs
from mohs.hardness.judgment import (
    MOST_SHARP,
    SLACK,
    ambiguous_share,
    beyond_chance,
    beyond_shares,
    choose_flags,
    judge_labels,
    kept_right,
    least_alone,
    sharpness,
)
from mohs.hardness.noise_model import (
    RATE_PRIOR,
    STRENGTH,
    Transition,
    _fit_transition,
    _transition_step,
    _weights_step,
    fit_noise,
    softmax,
)

Array = np.ndarray[Any, Any]


def even_noise(rate: float, classes: int) -> np.ndarray:
    """T (K, K) with this share of wrong labels, spread evenly over the other classes."""
    table = np.full((classes, classes), rate / (classes - 1))
    np.fill_diagonal(table, 1 - rate)
    return table


def pair_noise(rate: float, k: int) -> Array:
    """Every wrong label is the next class."""
    return (1 - rate) * np.eye(k) + rate * np.roll(np.eye(k), 1, 1)


def draw(p: Array, random: np.random.Generator) -> Array:
    """One class per row of probabilities."""
    return (p.cumsum(1) < random.random((len(p), 1))).sum(1).clip(max=p.shape[1] - 1)


def drawn(noise: Array, *, n: int = 6000, temperature: float = 1.0, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Scores of a calibrated model times a temperature, given labels, true labels and Bayes' P(wrong | scores, given)."""
    random, k = np.random.default_rng(seed), len(noise)
    z = 4 * random.normal(size=(n, k))
    p = softmax(z)
    true = draw(p, random)
    labels = draw(noise[true], random)
    joint = p * noise.T[labels]
    return z * temperature, labels, true, 1 - joint[np.arange(n), labels] / joint.sum(1)


def made(k: int, n: int, seed: int = 0) -> tuple[Array, Array]:
    """Well-separated scores and their classes."""
    random = np.random.default_rng(seed)
    y = random.integers(0, k, n)
    return 8 * np.eye(k)[y] + random.normal(size=(n, k)), y


# --- recovery ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.2, 9.0])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("kind", "k"), [(even_noise, 2), (even_noise, 5), (pair_noise, 5), (even_noise, 10), (pair_noise, 10)])
def test_finds_temperature_rate_and_transition(kind: Any, k: int, rate: float, temperature: float) -> None:
    noise = kind(rate, k)
    scores, labels, true, bayes = drawn(noise, temperature=temperature)
    judgment, wrong = judge_labels(scores, labels), labels != true
    fit = judgment.model
    assert fit.weights[0] * temperature == pytest.approx(1, abs=0.18)
    assert fit.rate == pytest.approx(rate, abs=0.025)
    np.testing.assert_allclose(fit.transition.sum(1), 1)
    np.testing.assert_allclose(fit.transition, noise, atol=0.12)
    if kind is pair_noise and rate:
        assert (np.where(np.eye(k), 0, fit.transition).argmax(1) == (np.arange(k) + 1) % k).all()
    assert judgment.rate == pytest.approx(rate, abs=0.035)
    assert judgment.low <= wrong.mean() <= judgment.high
    assert judgment.low <= judgment.rate <= judgment.high
    assert np.abs(judgment.p_mislabeled - bayes).mean() < 0.035  # with the true parameters Bayes' rule gives the best answer
    assert ((judgment.p_mislabeled >= 0) & (judgment.p_mislabeled <= 1)).all()
    if rate:
        assert wrong[judgment.flagged].mean() >= 0.8
        clear = wrong & (bayes > 0.9)
        assert judgment.flagged[clear].mean() > 0.8
        assert (judgment.suggested == true)[judgment.flagged & wrong].mean() > 0.75
    else:
        assert judgment.flagged.mean() < 0.002


def test_a_hundred_classes() -> None:
    scores, labels, true, _ = drawn(even_noise(0.2, 100), n=4000)
    judgment, wrong = judge_labels(scores, labels), labels != true
    assert wrong[judgment.flagged].mean() > 0.8
    assert (wrong & judgment.flagged).sum() > 0.6 * wrong.sum()
    assert judgment.low <= wrong.mean() <= judgment.high


def test_several_models_beat_one_and_a_useless_one_does_no_harm() -> None:
    scores, labels, true, _ = drawn(even_noise(0.15, 5), n=3000)
    random, wrong = np.random.default_rng(1), labels != true
    noisy = np.stack([scores + 6 * random.normal(size=scores.shape) for _ in range(3)])
    gaps = []
    for some in (noisy[:1], noisy, np.concatenate([noisy, 50 * random.normal(size=noisy[:1].shape)])):
        judgment = judge_labels(some, labels)
        gaps.append(judgment.p_mislabeled[wrong].mean() - judgment.p_mislabeled[~wrong].mean())
    assert gaps[1] > gaps[0] + 0.1
    assert gaps[2] > gaps[1] - 0.02
    assert judgment.model.weights[3] * 50 < 0.2 * judgment.model.weights[:3].min()


# --- obvious loops -------------------------------------------------------------------------------------------------------


def test_one_step_of_expectation_maximization_against_a_loop() -> None:
    scores, y, _, _ = drawn(even_noise(0.2, 4), n=60)
    before, k = pair_noise(0.3, 4) * 0.9 + 0.025, 4
    counts, likelihood = np.zeros((k, k)), 0.0
    for z, g in zip(scores, y, strict=True):
        joint = softmax(z[None] * 0.7)[0] * before[:, g]
        counts[:, g] += joint / joint.sum()
        likelihood += math.log(joint.sum())
    wrong = sum(counts[t, g] for t in range(k) for g in range(k) if t != g)
    rate = (wrong + RATE_PRIOR[0]) / (60 + sum(RATE_PRIOR))
    even = even_noise(rate, k)
    expected = counts + STRENGTH * even
    likelihood += STRENGTH * (even * np.log(before / even)).sum()
    likelihood += RATE_PRIOR[0] * math.log(rate) + RATE_PRIOR[1] * math.log(1 - rate)
    start = Transition(np.arange(k), before.T, np.zeros(k), np.zeros(k))
    table, found, value = _transition_step(scores.T[None], y, np.array([0.7]), start, times=1, pull=STRENGTH)
    np.testing.assert_allclose(table.dense(), expected / expected.sum(1, keepdims=True), atol=1e-5)
    assert (found, value) == pytest.approx((rate, likelihood), rel=1e-5)


def test_columns_of_classes_without_labels_need_not_be_written_out() -> None:
    """Three steps with 3 of 7 classes among the labels, against the same steps on the whole table."""
    random, k, n = np.random.default_rng(0), 7, 50
    p, y = random.dirichlet(np.ones(k), n), random.choice([1, 2, 5], n)
    table, hot = even_noise(0.2, k), np.eye(k)[y]
    np.testing.assert_array_equal(Transition.even(0.2, k, np.unique(y)).dense(), table)
    for steps in (1, 2, 3):
        joint = p * (hot @ table.T)
        given = joint.sum(1, keepdims=True)
        counts = (joint / given).T @ hot
        rate = (n - np.trace(counts) + RATE_PRIOR[0]) / (n + sum(RATE_PRIOR))
        even = even_noise(rate, k)
        value = np.log(given).sum() + 4.0 * (even * np.log(table / even)).sum()
        value += RATE_PRIOR[0] * math.log(rate) + RATE_PRIOR[1] * math.log(1 - rate)
        table = (counts + 4.0 * even) / (counts.sum(1, keepdims=True) + 4.0)
        found = _fit_transition(p.T, y, Transition.even(0.2, k, np.unique(y)), times=steps, pull=4.0)
        np.testing.assert_allclose(found[0].dense(), table, rtol=1e-12)
        assert found[1:] == pytest.approx((rate, value), rel=1e-12)


def test_weights_minimize_what_torch_computes() -> None:
    scores, y, _, _ = drawn(even_noise(0.2, 4), n=400)
    both = np.stack([scores, scores[:, ::-1]]).astype(np.float32)
    noise = even_noise(0.2, 4)

    def objective(a: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(torch.tensordot(a, torch.from_numpy(both).double(), 1), 1)
        return -(p * torch.from_numpy(noise.T[y])).sum(1).log().sum() + 0.025 * a.sum() ** 2

    found = torch.tensor(_weights_step(both.swapaxes(1, 2), y, np.full(2, 0.5), Transition.even(0.2, 4, np.arange(4))))
    assert (found >= 0).all()
    values = [float(objective(found + torch.tensor(step))) for step in ([0.0, 0.0], [0.05, 0.0], [-0.05, 0.0], [0.0, 0.05])]
    assert min(values) == values[0]


def test_posterior_is_bayes_rule() -> None:
    scores, y, _, _ = drawn(even_noise(0.1, 5), n=300, temperature=2.0)
    fit = fit_noise(scores[None].astype(np.float32), y)
    for i in range(20):
        p = softmax(scores[i][None] * fit.weights[0])[0]
        joint = [p[t] * fit.transition[t, y[i]] for t in range(5)]
        np.testing.assert_allclose(fit.posterior(fit.probs(scores[None]), y)[i], np.array(joint) / sum(joint), rtol=1e-4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.05, 0.95))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_flags_are_the_largest_set_with_that_precision(values: list[float], precision: float) -> None:
    p = np.array(values)
    flagged = choose_flags(p, precision)
    fits = [i for i in range(len(p)) if p[i] >= precision - SLACK]
    sizes = [r for r in range(1, len(fits) + 1) for rows in combinations(fits, r) if np.mean(p[list(rows)]) >= precision + 1e-12]
    largest = max(sizes, default=0)
    if not flagged.any():
        assert largest == 0 or (largest == 1 and p.max() < least_alone(precision))
        return
    assert flagged.sum() >= largest
    assert flagged.sum() > 1 or p.max() >= least_alone(precision)
    assert p[flagged].mean() >= precision - 1e-12
    assert p[flagged].min() >= precision - SLACK
    assert p[flagged].min() >= p[~flagged].max(initial=0)


def test_a_single_label_must_be_likely_wrong_by_itself() -> None:
    assert not choose_flags(np.array([0.85, 0.1, 0.05]), 0.8).any()
    assert choose_flags(np.array([0.92, 0.1, 0.05]), 0.8).tolist() == [True, False, False]
    assert choose_flags(np.array([0.85, 0.81, 0.05]), 0.8).tolist() == [True, True, False]


def test_higher_precision_flags_fewer() -> None:
    scores, labels, true, _ = drawn(even_noise(0.2, 5), n=3000)
    sets = [judge_labels(scores, labels, precision=precision).flagged for precision in (0.5, 0.7, 0.8, 0.9, 0.97)]
    for more, fewer in pairwise(sets):
        assert not (fewer & ~more).any()
    assert sets[0].sum() > sets[-1].sum() > 0
    assert (labels != true)[sets[-1]].mean() > 0.95


# --- symmetries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("models", [1, 3])
def test_names_order_and_scale_do_not_matter(models: int) -> None:
    scores, labels, _, _ = drawn(pair_noise(0.2, 5), n=2000)
    random = np.random.default_rng(0)
    s = scores + random.normal(size=(models, 1, 1)) * random.normal(size=(models, *scores.shape))
    base = judge_labels(s, labels)
    classes, rows = random.permutation(5), random.permutation(2000)
    renamed = judge_labels(s[:, :, classes], np.argsort(classes)[labels])
    shuffled = judge_labels(s[:, rows], labels[rows])
    scaled = judge_labels(s * np.geomspace(0.01, 300, models)[:, None, None], labels)
    shifted = judge_labels(s + 5 * random.normal(size=(models, 2000, 1)), labels)
    for other, p in (
        (renamed, renamed.p_mislabeled),
        (shuffled, shuffled.p_mislabeled[np.argsort(rows)]),
        (scaled, scaled.p_mislabeled),
        (shifted, shifted.p_mislabeled),
    ):
        np.testing.assert_allclose(p, base.p_mislabeled, atol=0.01)
        assert other.rate == pytest.approx(base.rate, abs=1e-3)
    assert (classes[renamed.suggested] == base.suggested).mean() > 0.998


def test_rows_without_scores_are_not_judged_and_change_nothing() -> None:
    scores, labels, _, _ = drawn(even_noise(0.2, 4), n=500)
    holes = scores.copy()
    holes[3, 1], holes[77] = np.nan, np.inf
    judgment, known = judge_labels(holes, labels), np.ones(500, bool)
    known[[3, 77]] = False
    rest = judge_labels(scores[known], labels[known])
    np.testing.assert_array_equal(np.isnan(judgment.p_mislabeled), ~known)
    np.testing.assert_array_equal(np.isnan(judgment.probs).all(1), ~known)
    np.testing.assert_array_equal(np.isnan(judgment.p_suggested), ~known)
    assert not (judgment.flagged | judgment.cannot_tell)[~known].any()
    np.testing.assert_allclose(judgment.p_mislabeled[known], rest.p_mislabeled)
    np.testing.assert_array_equal(judgment.suggested[~known], labels[~known])
    assert judgment.rate == pytest.approx(rest.rate)


# --- judges that know everything, little and nothing ---------------------------------------------------------------------


@pytest.mark.parametrize(("k", "n"), [(2, 600), (8, 1000), (100, 3000)])
@pytest.mark.parametrize("seed", [0, 1])
def test_few_flags_where_there_is_nothing_to_find(k: int, n: int, seed: int) -> None:
    scores, y = made(k, n, seed)
    random = np.random.default_rng(seed + 100)
    assert judge_labels(scores, y).flagged.mean() <= 0.01  # clean
    pure_noise = judge_labels(scores, random.integers(0, k, n))
    assert pure_noise.flagged.mean() < 0.05
    assert pure_noise.high > 0.4
    useless = random.normal(size=(2, n, k))
    assert judge_labels(useless[0], y).flagged.mean() <= 0.005
    assert judge_labels(useless, y).flagged.mean() <= 0.005


@pytest.mark.parametrize("k", [2, 8])
@pytest.mark.parametrize("seed", range(4))
def test_a_weak_judge_gives_the_verdict_cannot_tell(k: int, seed: int) -> None:
    scores, y = made(k, 800, seed)
    strong = judge_labels(scores, y)
    weak = judge_labels(scores + 8 * np.random.default_rng(seed + 50).normal(size=scores.shape), y)
    assert weak.flagged.mean() <= 0.01
    assert weak.trust < 0.5
    assert weak.cannot_tell.mean() > 0.1
    assert not (weak.cannot_tell & weak.flagged).any()
    assert strong.cannot_tell.mean() == 0
    assert weak.high - weak.low > 0.1 > strong.high - strong.low


# --- what it takes -------------------------------------------------------------------------------------------------------


def test_logits_log_probabilities_probabilities_and_tensors_agree() -> None:
    scores, labels, _, _ = drawn(even_noise(0.1, 4), n=400)
    p = softmax(scores)
    base = judge_labels(scores, labels)
    logits = torch.tensor(scores, requires_grad=True)
    for same in (np.log(p), p, p.tolist(), torch.tensor(p), logits, torch.log_softmax(logits, 1)[None]):
        np.testing.assert_allclose(judge_labels(same, labels).p_mislabeled, base.p_mislabeled, atol=2e-3)
    coarse = judge_labels(torch.tensor(p).half(), torch.tensor(labels))  # rows sum to 1 up to half precision
    assert np.abs(coarse.p_mislabeled - base.p_mislabeled).mean() < 5e-3
    assert judge_labels(logits.bfloat16(), labels.tolist()).flagged.shape == (400,)
    certain = judge_labels(np.eye(4)[labels], labels)
    assert np.isfinite(certain.p_mislabeled).all()
    assert not certain.flagged.any()
    assert mohs.judge_labels is judge_labels


def test_mixed_models_and_zeros_in_probabilities() -> None:
    scores, labels, _, _ = drawn(even_noise(0.1, 4), n=400)
    p = softmax(scores)
    both, logs = judge_labels(np.stack([scores, p]), labels), judge_labels(np.stack([scores, np.log(p)]), labels)
    np.testing.assert_allclose(both.p_mislabeled, logs.p_mislabeled, atol=2e-3)


def test_extremes() -> None:
    y = np.array([0, 1, 1, 0])
    for scores in (np.array([[1e4, -1e4], [-1e4, 1e4], [1e4, -1e4], [0.0, 0.0]]), np.zeros((4, 3)), np.full((4, 2), 1e30)):
        judgment = judge_labels(scores, y)
        assert np.isfinite(judgment.p_mislabeled).all()
        np.testing.assert_allclose(judgment.probs.sum(1), 1)
    assert judge_labels(np.array([[2.0, 1.0]]), [0]).p_mislabeled.shape == (1,)


@pytest.mark.parametrize(
    ("scores", "labels", "options", "message"),
    [
        (np.zeros(3), [0, 1, 0], {}, r"scores must have shape \(N, K\) or \(M, N, K\) for 3 labels, got \(3,\)"),
        (np.zeros((4, 2)), [0, 1, 0], {}, r"for 3 labels, got \(4, 2\)"),
        (np.zeros((1, 1, 3, 2)), [0, 1, 0], {}, r"got \(1, 1, 3, 2\)"),
        (np.zeros((3, 1)), [0, 0, 0], {}, "scores must have a column for each of at least 2 classes, got 1"),
        (np.zeros((3, 2)), [0, 2, 0], {}, r"labels\[1\] is 2, but scores have 2 classes: labels must be 0..1"),
        (np.zeros((3, 2)), [0, 1, -1], {}, r"labels\[2\] is -1"),
        (np.zeros((3, 2), dtype=object), [0, 1, 0], {}, "scores must be numbers, got object"),
        (np.zeros((0, 2)), np.zeros(0, int), {}, "labels are empty"),
        (np.array([[0.5, 0.5], [0.2, 0.9], [1.0, 0.0]]), [0, 1, 0], {}, r"scores\[1\] sums to 1.1, .*; 1 row"),
        (
            np.zeros((3, 2)),
            ["a", "b", "a"],
            {},
            r"class indices, got 'a': give the column of each label .*searchsorted\(model.classes_",
        ),
        (np.zeros((3, 2)), [0.0, 1.0, 0.0], {}, "labels must be class indices"),
        (np.zeros((3, 2)), [[0, 1, 0]], {}, r"labels must have shape \(N, d1, ...\)"),
        (np.full((3, 2), np.nan), [0, 1, 0], {}, "no row without NaN"),
        (np.zeros((3, 2)), [0, 1, 0], {"precision": 1.0}, "precision must be over 0 and under 1, got 1.0"),
    ],
)
def test_bad_input(scores: Array, labels: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judge_labels(scores, labels, **options)


# --- ambiguity and noise that depends on the example ---------------------------------------------------------------------


def doubtful(doubt: float, n: int = 1000, k: int = 3, seed: int = 0) -> Array:
    """Probabilities (N, K) with this doubt in every row."""
    top = np.random.default_rng(seed).integers(0, k, n)
    return np.where(np.eye(k, dtype=bool)[top], 1 - doubt, doubt / (k - 1))


@pytest.mark.parametrize(
    ("again", "width", "share"),
    [
        (0.2, 250, 1.0),  # refitted heads doubt as much
        (0.1, 250, 1.0),  # half as much, as √(D/N) = ½ allows
        (0.05, 250, 0.5**2 / 0.85),
        (0.05, 62, 1.0),  # fewer features: a boundary is known more exactly, and a quarter is what ambiguity leaves
        (0.0, 250, 0.0),
    ],
)
def test_doubt_that_refitted_heads_lose_is_noise(again: float, width: int, share: float) -> None:
    p = doubtful(0.2)
    assert ambiguous_share(p, doubtful(again), p.argmax(1), width=width) == pytest.approx(share, rel=0.02)


def test_a_judge_without_skill_says_nothing_about_noise() -> None:
    labels = (np.arange(1000) % 5 == 0).astype(int)
    sure = np.tile([0.9, 0.1], (1000, 1))
    assert ambiguous_share(sure, np.tile([0.999, 0.001], (1000, 1)), labels, width=10) == 1


@given(st.floats(0.02, 0.98), st.integers(0, 99))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_sharpened_predictions_have_the_doubt_asked_for_and_the_same_order(share: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    p, known = softmax(2 * random.normal(size=(200, 4))), random.random(200) < 0.9
    q = softmax(sharpness(p[known], share) * np.log(p))
    before, after, least = (float((1 - one.max(1))[known].mean()) for one in (p, q, softmax(MOST_SHARP * np.log(p))))
    assert after == pytest.approx(max(share * before, least), rel=1e-3)
    assert (q.argsort(1) == p.argsort(1)).all()


def test_labels_kept_right_obey_the_law_of_total_probability() -> None:
    """Every true class keeps the same share of its labels, so Σ_g P(given = g) P(right | g) is that share."""
    p = softmax(2 * np.random.default_rng(0).normal(size=(500, 4)))
    q = softmax(sharpness(p, 0.5) * np.log(p))
    top, share = p.argmax(1), np.zeros(500)
    for g in range(4):
        y = np.full(500, g)
        right, at = kept_right(p, q, y), np.arange(500)
        kept = p[at, top] / q[at, top]
        expected = np.where(y == top, 1, np.minimum(1, kept * q[:, g] / p[:, g]))
        np.testing.assert_allclose(right, expected)
        assert (right[y != top] < 1).all()
        share += p[:, g] * right
    np.testing.assert_allclose(share, kept)


def test_noise_on_separable_classes_is_found_once_the_doubt_is_known_to_be_noise() -> None:
    """Class 0 is labeled 1 in 5 to 35 % of the cases, by a slope that a judge learns: without more, that is ambiguity."""
    random, n = np.random.default_rng(1), 4000
    true, slope = random.integers(0, 2, n), random.random(n)
    chance = np.where(true == 0, 0.05 + 0.3 * slope, 0.0)
    labels = np.where(random.random(n) < chance, 1, true)
    p = np.stack([np.where(true == 0, 1 - chance, 0.01), np.where(true == 0, chance, 0.99)], 1)
    wrong = labels != true
    blind, told = judge_labels(p, labels), judge_labels(p, labels, ambiguity=0.05)
    assert blind.flagged.sum() < 0.5 * wrong.sum()
    assert told.flagged.sum() > 0.9 * wrong.sum()
    assert wrong[told.flagged].mean() > 0.95
    assert (told.suggested[told.flagged] == true[told.flagged]).mean() > 0.95
    assert abs(told.rate - wrong.mean()) < 0.02
    np.testing.assert_allclose(told.posterior.sum(1), 1)


def test_ambiguity_of_one_changes_nothing() -> None:
    scores, labels, _, _ = drawn(even_noise(0.1, 4), n=1000)
    one, other = judge_labels(scores, labels), judge_labels(scores, labels, ambiguity=1.0)
    np.testing.assert_array_equal(one.p_mislabeled, other.p_mislabeled)
    with pytest.raises(ValueError, match="ambiguity"):
        judge_labels(scores, labels, ambiguity=1.5)


def test_a_judgment_prints_its_counts_and_swapped_arguments_are_named() -> None:
    probs, labels = np.full((60, 3), 0.1), np.arange(60) % 3
    probs[np.arange(60), labels] = 0.8
    line = repr(judge_labels(probs, labels))
    assert line.startswith("LabelJudgment(60 labels, 0 flagged, 0 cannot tell; ")
    assert "array" not in line
    with pytest.raises(ValueError, match=r"the scores \(N, K\) come first"):
        judge_labels(labels, probs)


def contradicting(n: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A judge that is sure of another class than the label, every time: it learned from rows that differ on purpose."""
    labels = np.arange(n) % classes
    probs = np.full((n, classes), 0.01)
    probs[np.arange(n), (labels + 1 + (np.arange(n) // classes) % (classes - 1)) % classes] = 0.98
    return probs / probs.sum(1, keepdims=True), labels


def test_a_judge_that_agrees_with_the_labels_no_more_often_than_by_chance_flags_nothing() -> None:
    probs, labels = contradicting(300)
    judgment = judge_labels(probs, labels)
    assert not judgment.flagged.any()
    assert judgment.p_mislabeled.max() < 0.06
    assert judgment.cannot_tell.mean() > 0.9
    assert judgment.low == 0
    assert judgment.high > 0.6  # nor are all labels said to be right
    rng = np.random.default_rng(0)
    for k in (2, 5):
        assert not judge_labels(rng.dirichlet(np.full(k, 0.1), 400), rng.integers(k, size=400)).flagged.any()


@pytest.mark.parametrize(("classes", "rate"), [(2, 0.3), (10, 0.6)])
def test_a_good_judge_of_many_wrong_labels_agrees_beyond_chance(classes: int, rate: float) -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(classes, size=600)
    wrong = rng.random(600) < rate
    labels = np.where(wrong, (true + rng.integers(1, classes, 600)) % classes, true)
    probs = softmax(rng.uniform(2, 8, (600, 1)) * np.eye(classes)[true])
    assert beyond_chance(probs, labels, 600)
    judgment = judge_labels(probs, labels)
    assert (judgment.flagged & wrong).sum() > 0.9 * wrong.sum()


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("size", [60, 400])
def test_a_judge_that_knows_nothing_cannot_tell_about_any_label(share: float, size: int) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(size) < share).astype(int)
    positive = softmax(np.stack([np.zeros(size), np.log(share / (1 - share)) + rng.normal(0, 0.3, size)], 1))
    judgment = judge_labels(positive, labels)
    assert judgment.trust == 0
    assert judgment.cannot_tell.all()


def test_a_judge_without_rare_predictions_may_know_the_labels() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(2000) < 0.05).astype(int)
    odds = np.log(0.05 / 0.95) + rng.normal(0, 1, 2000) + 1.2 * labels  # hardly ever above ½
    probs = softmax(np.stack([np.zeros(2000), odds.clip(None, -0.1)], 1))
    assert not beyond_chance(probs, labels, 2000)
    assert beyond_shares(probs, labels, 2000)
    judgment = judge_labels(probs, labels)
    assert judgment.trust > 0
    assert not judgment.cannot_tell[labels == 0].any()


def test_groups_may_have_names() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    scores = 3 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    names = [f"patient {i // 5}" for i in range(300)]
    expected = judge_labels(scores, labels, groups=np.arange(300) // 5).p_mislabeled
    for groups in (names, np.array(names, dtype=object), [None if name == "patient 0" else name for name in names]):
        found = judge_labels(scores, labels, groups=groups)
        if None not in groups:
            np.testing.assert_array_equal(found.p_mislabeled, expected)
        assert np.isfinite(found.p_mislabeled).all()


def test_few_groups_tell_less_than_as_many_examples() -> None:
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(30), 20)
    true = groups % 3
    labels = np.where(groups < 4, (true + 1) % 3, true)
    probs = softmax(3 * np.eye(3)[true] + 2 * rng.normal(size=(30, 3))[groups] + 0.3 * rng.normal(size=(600, 3)))
    alone, together = judge_labels(probs, labels), judge_labels(probs, labels, groups=groups)
    assert together.trust < alone.trust
    assert together.flagged.sum() <= alone.flagged.sum()
    assert together.high - together.low > alone.high - alone.low
    each = judge_labels(probs, labels, groups=np.arange(600))
    assert np.array_equal(each.p_mislabeled, alone.p_mislabeled)
    with pytest.raises(ValueError, match=r"groups must have shape \(600,\), one per label, got \(599,\)"):
        judge_labels(probs, labels, groups=groups[1:])
