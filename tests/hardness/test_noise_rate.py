"""The noise estimate against known truth: digits with labels changed, predicted out of fold; and everything that can be wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from torch.nn.functional import cross_entropy

import mohs
from mohs._core.specs import as_spec, create_spec
from mohs.hardness.judgment import judge_labels, rate_interval
from mohs.hardness.noise_rate import NoiseEstimate, estimate_from, estimate_noise, suggest_emphasis
from mohs.hardness.noise_shape import lower_weight, noise_kind, wilson
from mohs.hardness.recorder import Recorder
from mohs.hardness.table import make_table

CLASSES = 10


def spoil(labels: np.ndarray, kind: str, rate: float, seed: int) -> np.ndarray:
    """Labels of which each is changed with probability `rate`: to any other class, or to the next one."""
    rng = np.random.default_rng(seed)
    step = rng.integers(1, CLASSES, len(labels)) if kind == "symmetric" else 1
    return np.where(rng.random(len(labels)) < rate, (labels + step) % CLASSES, labels)


@cache
def digits(kind: str, rate: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True labels, given labels, and probabilities out of three folds."""
    data = load_digits()
    given = spoil(data.target, kind, rate, seed)
    probs = np.zeros((len(given), CLASSES))
    for train, test in StratifiedKFold(3, shuffle=True, random_state=seed).split(data.data, given):
        model = LogisticRegression(C=0.01, max_iter=1000).fit(data.data[train] / 4, given[train])
        probs[test] = model.predict_proba(data.data[test] / 4)
    return data.target, given, probs


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("kind", "rate", "tolerance"),
    [
        ("symmetric", 0.0, 0.005),
        ("symmetric", 0.05, 0.03),
        ("symmetric", 0.1, 0.04),
        ("symmetric", 0.2, 0.05),
        ("symmetric", 0.4, 0.05),
        ("pair", 0.05, 0.03),
        ("pair", 0.1, 0.04),
        ("pair", 0.2, 0.06),
    ],
)
def test_rate_and_kind_are_near_the_truth(kind: str, rate: float, tolerance: float, seed: int) -> None:
    true, given, probs = digits(kind, rate, seed)
    estimate = estimate_noise(given, probs)
    wrong = float((true != given).mean())
    assert estimate.rate == pytest.approx(wrong, abs=tolerance)
    assert estimate.low <= estimate.rate <= estimate.high
    assert estimate.low <= wrong <= estimate.high
    assert estimate.kind == ("none found" if rate == 0 else "about uniform" if kind == "symmetric" else "class-dependent")
    assert estimate.disagreement == pytest.approx((probs.argmax(1) != given).mean())


def test_class_table_shows_which_classes_were_confused() -> None:
    true, given, probs = digits("pair", 0.2, 0)
    estimate = estimate_noise(given, probs)
    truth = np.zeros((CLASSES, CLASSES))
    np.add.at(truth, (given, true), 1)
    assert estimate.counts.sum(1) == pytest.approx(np.bincount(given))  # rows are the given labels, all of them
    assert estimate.rates.sum(1) == pytest.approx(np.ones(CLASSES))
    assert estimate.transition.sum(1) == pytest.approx(np.ones(CLASSES))
    assert 1 - np.trace(estimate.counts) / len(given) == pytest.approx(estimate.rate)
    off = np.where(np.eye(CLASSES, dtype=bool), 0, estimate.counts)
    assert off.argmax(1).tolist() == [(g - 1) % CLASSES for g in range(CLASSES)]  # labeled g, truly the one before
    assert np.abs(estimate.counts - truth).sum() / (2 * len(given)) < 0.08  # share of examples in the wrong cell
    assert mohs.create_loss("forward", transition=torch.tensor(estimate.transition)) is not None


@pytest.mark.parametrize(("rate", "seed"), [(0.3, 0), (0.4, 0), (0.4, 1)])
def test_much_noise_between_two_classes_stays_within_the_interval(rate: float, seed: int) -> None:
    """It looks like classes that the model cannot tell apart: the rate is too low, as the module says."""
    true, given, probs = digits("pair", rate, seed)
    estimate = estimate_noise(given, probs)
    assert estimate.rate < (true != given).mean()
    assert estimate.low <= (true != given).mean() <= estimate.high


def test_the_estimate_matches_the_judgment() -> None:
    _, given, probs = digits("symmetric", 0.2, 0)
    estimate, judgment = estimate_noise(given, probs), mohs.judge_labels(probs, given)
    assert (estimate.rate, estimate.low, estimate.high) == (judgment.rate, judgment.low, judgment.high)
    assert estimate.source == "out-of-sample predictions"
    counts = np.zeros((CLASSES, CLASSES))  # (given, true), an example at a time
    for p, wrong, label in zip(judgment.posterior, judgment.p_mislabeled, given, strict=True):
        others = np.where(np.arange(CLASSES) == label, 0, p)
        counts[label] += wrong * others / others.sum()
        counts[label, label] += 1 - wrong
    np.testing.assert_allclose(estimate.counts, counts)


def test_noise_on_hard_examples_stays_within_the_interval() -> None:
    true, given, probs = digits("symmetric", 0.0, 0)
    doubt = 1.02 - probs[np.arange(len(true)), true]
    rows = np.random.default_rng(0).choice(len(true), len(true) // 10, replace=False, p=doubt / doubt.sum())
    given = given.copy()
    given[rows] = np.where(np.eye(CLASSES, dtype=bool)[true[rows]], -1, probs[rows]).argmax(1)
    estimate = estimate_noise(given, probs)
    assert estimate.rate < 0.1  # too low, as the module says
    assert estimate.low <= 0.1 <= estimate.high


def recorded(given: np.ndarray, seed: int = 0, **options: object) -> object:
    """The record of a small network trained on digits with GCE."""
    torch.manual_seed(seed)
    x, labels = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1, torch.tensor(given)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    optimizer, loss = torch.optim.Adam(net.parameters(), lr=5e-3), mohs.GeneralizedCrossEntropyLoss(q=0.7)
    recorder = Recorder(len(x) + 1)  # the last example is never seen
    for _ in range(20):
        for rows in torch.randperm(len(x)).split(128):
            logits = net(x[rows])
            optimizer.zero_grad()
            loss(logits, labels[rows]).backward()
            optimizer.step()
            recorder.update(rows, logits, labels[rows])
    return recorder.table(**options)


@pytest.mark.parametrize(("kind", "rate"), [("symmetric", 0.0), ("symmetric", 0.1), ("symmetric", 0.3), ("pair", 0.2)])
def test_dynamics_are_near_the_truth(kind: str, rate: float) -> None:
    true = load_digits().target
    given = spoil(true, kind, rate, 0)
    estimate = estimate_noise(table=recorded(given))
    assert estimate.source == "training dynamics"
    assert estimate.examples == len(true)
    assert estimate.rate == pytest.approx((true != given).mean(), abs=0.04)
    assert estimate.low <= (true != given).mean() <= estimate.high
    assert estimate.kind == ("none found" if rate == 0 else "about uniform" if kind == "symmetric" else "class-dependent")
    assert estimate.counts.sum(1) == pytest.approx(np.bincount(given))


def test_labels_learned_late_are_not_lost() -> None:
    rng = np.random.default_rng(0)
    aum = np.concatenate([rng.normal(-5, 1, 300), rng.normal(5, 1, 700)])
    labels = np.arange(1000) % 2
    columns = {"label": labels, "predicted": np.where(np.arange(1000) < 200, 1 - labels, labels), "aum": aum}
    alone = estimate_noise(table=make_table(columns))
    believed = np.where(np.arange(1000) < 200, 0.1, 0.6)  # a hundred lost early by much, and won for most of training
    both = estimate_noise(table=make_table(columns | {"mean_confidence": believed}))
    assert alone.rate == pytest.approx(0.3)
    assert both.rate == pytest.approx(0.2)
    assert both.low <= both.rate <= both.high == alone.high


def test_class_names_are_passed_on() -> None:
    names = [f"digit {k}" for k in range(CLASSES)]
    given = spoil(load_digits().target, "symmetric", 0.2, 0)
    by_name, by_number = estimate_noise(table=recorded(given, classes=names)), estimate_noise(table=recorded(given))
    assert by_name.classes == names
    assert by_name.rate == by_number.rate
    _, given, probs = digits("symmetric", 0.1, 0)
    told = estimate_noise([names[k] for k in given], probs, classes=names)
    assert np.array_equal(told.counts, estimate_noise(given, torch.tensor(probs)).counts)
    assert estimate_noise(np.array(names)[given], probs).classes == names  # sorted, as there are exactly ten


def test_few_examples_leave_a_wide_interval() -> None:
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2], [0.1, 0.9], [0.9, 0.1], [0.3, 0.7]])
    estimate = estimate_noise([0, 1, 0, 1, 0, 1], probs)
    assert (estimate.kind, estimate.low) == ("none found", 0)
    assert estimate.rate < 0.01
    assert estimate.high > 0.3
    assert "6 labels" in estimate.summary


def test_classes_without_examples_are_unchanged() -> None:
    rng = np.random.default_rng(0)
    given = rng.integers(0, 2, 200)
    probs = np.full((200, 4), 0.02)
    probs[np.arange(200), given] = 0.94
    estimate = estimate_noise(given, probs)
    assert estimate.rate < 1e-3
    assert estimate.counts[2:].sum() == 0
    assert np.isnan(estimate.rates[2:]).all()
    np.testing.assert_allclose(estimate.transition[:2], np.eye(4)[:2], atol=1e-3)
    assert estimate.imbalance == pytest.approx(max(np.bincount(given)) / min(np.bincount(given)))


def test_ties_do_not_depend_on_the_order_of_the_examples() -> None:
    _, given, probs = digits("symmetric", 0.2, 0)
    coarse = np.eye(CLASSES)[probs.argmax(1)]  # as the votes of one neighbor would be
    order = np.argsort(given, kind="stable")
    assert estimate_noise(given, coarse).rate == pytest.approx(estimate_noise(given[order], coarse[order]).rate, abs=1e-3)


GOOD = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])


@pytest.mark.parametrize(
    ("labels", "probs", "options", "match"),
    [
        ([0, 1, 0], None, {}, "either probs"),
        (None, GOOD, {}, "labels are missing"),
        ([0, 1], GOOD, {}, "each of the 3 examples, got 2"),
        (GOOD, [0, 1, 0], {}, r"the labels \(N,\) come first"),
        ([0, 1, 0], GOOD[:, :1], {}, "at least 2 classes"),
        ([0, 1, 0], GOOD * [[1], [2], [1]], {}, r"probs\[1\] does not sum to 1.*1 row"),
        ([0, 1, 0], np.log(GOOD), {}, r"probs\[0\] has a negative entry.*3 row"),
        ([0, 1, 0], np.where(GOOD == 0.6, np.nan, GOOD), {}, r"probs\[2\] is NaN"),
        ([0, 1, 2], GOOD, {}, "different classes"),
        ([0, 0, 0], GOOD, {}, "fewer than 2 classes"),
        ([0.0, 1.0, 0.0], GOOD, {}, "integers or names"),
        ([0, 1, 0], GOOD, {"interval": 95}, "interval must lie"),
        (None, None, {"table": make_table({"id": [0, 1], "aum": [math.nan, math.nan]})}, "nothing was recorded"),
        (None, None, {"table": make_table({"id": [0, 1], "aum": [1.0, 2.0]})}, "no column 'label'"),
    ],
)
def test_errors_name_problem_and_place(labels: object, probs: object, options: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        estimate_noise(labels, probs, **options)


def test_wilson_and_mixture_and_kind_at_their_edges() -> None:
    assert wilson(0.0, 100, 0.95) == pytest.approx((0.0, 0.0370), abs=1e-4)
    assert wilson(0.5, 100, 0.95) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(-3, 1, 300), rng.normal(4, 1.5, 700)])
    assert lower_weight(values) == pytest.approx(0.3, abs=0.01)
    assert lower_weight(np.ones(50)) == lower_weight(values[:5]) == 1.0
    even = np.full((4, 4), 10.0) + 90 * np.eye(4)
    assert noise_kind(even, low=0.2, seed=0) == "about uniform"
    assert noise_kind(even, low=0.001, seed=0) == "none found"
    assert noise_kind(100 * np.eye(4), low=0.2, seed=0) == "none found"
    assert noise_kind(90 * np.eye(4) + 30 * np.roll(np.eye(4), 1, 1), low=0.2, seed=0) == "class-dependent"
    one_sided = np.array([[100.0, 0.0], [40.0, 60.0]])  # two classes, of which one is spoilt
    assert noise_kind(one_sided, low=0.2, seed=0) == "class-dependent"


@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_flagged_labels_are_a_sign_of_wrong_labels(rate: float) -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=400)
    given = true.copy()
    given[: round(rate * 400)] = (given[: round(rate * 400)] + 1) % 3
    weak = np.full((400, 3), 0.3) + 0.1 * np.eye(3)[true]  # a judge that expects to err in most cases
    judgment = judge_labels(weak, given)
    flagged = np.arange(400) < rate * 400
    assert estimate_from(replace(judgment, low=0.0, flagged=~flagged & flagged), given, [0, 1, 2]).kind == "none found"
    found = replace(judgment, low=0.0, flagged=flagged, p_mislabeled=np.where(flagged, 0.9, 0.01))
    assert estimate_from(found, given, [0, 1, 2]).kind != "none found"
    low, high = rate_interval(rate, 0.9 * rate, apparent=0.5, unsure=0.6, doubted=0.3, kappa=1.0, n=400, z=1.96)
    assert low == pytest.approx(0.45 * rate)
    assert low < rate < high


def pretended(rate: float, kind: str, imbalance: float = 1.0) -> NoiseEstimate:
    eye = np.eye(2)
    return NoiseEstimate(
        rate=rate,
        low=rate / 2,
        high=rate + 0.05,
        transition=eye,
        counts=100 * eye,
        kind=kind,
        imbalance=imbalance,
        examples=200,
        source="out-of-sample probabilities",
        disagreement=rate,
        classes=[0, 1],
    )


@pytest.mark.parametrize(
    ("estimate", "spec", "words"),
    [
        (pretended(0.001, "none found"), "cross_entropy", ["no clear sign", "at most"]),
        (pretended(0.001, "none found", 50.0), "encouraging:log_end=0.75", ["50 times", "logit_adjusted"]),
        (pretended(0.09, "about uniform"), "gce:q=0.7", ["9.0%", "4.5% to 14.0%", "about uniform"]),
        (pretended(0.4, "about uniform"), "gce:q=0.7", ["40.0%"]),
        (pretended(0.4, "class-dependent", 20.0), "gce:q=0.7", ["ForwardLoss", "20 times"]),
    ],
)
def test_suggestions(estimate: NoiseEstimate, spec: str, words: list[str]) -> None:
    suggestion = suggest_emphasis(estimate)
    assert suggestion.spec == spec
    assert repr(create_spec(mohs.LOSSES, "loss", as_spec(spec))) == repr(suggestion.loss)
    assert all(word in suggestion.reason for word in words)
    assert suggestion.reason.endswith(".")
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(8, 2, generator=generator), torch.randint(2, (8,), generator=generator)
    assert torch.isclose(suggestion.loss(logits, labels), cross_entropy(logits, labels)) == (spec == "cross_entropy")


def test_estimate_summary_text() -> None:
    estimate = pretended(0.09, "about uniform")
    assert "rate=0.09" in repr(estimate)
    assert "array" not in repr(estimate)
    assert "9.0%" in estimate.summary
    assert "between 4.5% and 14.0%" in estimate.summary


def test_a_wider_interval_is_wider() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=300)
    probs = np.eye(3)[true] * 0.9 + 0.1 / 3
    given = np.where(np.arange(300) < 30, (true + 1) % 3, true)
    narrow, wide = (estimate_noise(given, probs, interval=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_number_is_not_an_estimate() -> None:
    with pytest.raises(ValueError, match=r"estimate must be what estimate_noise returns, got 0\.3"):
        suggest_emphasis(0.3)
