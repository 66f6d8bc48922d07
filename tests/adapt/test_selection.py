"""Selections: the obvious loop gives the same, portions are exact, empty classes and ties do what is said."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mohs.adapt.selection import SELECTIONS, SOFT, create_selection
from mohs.adapt.thresholds import Predictions, class_thresholds, portion_counts
from mohs.hardness.angular import avc


def made(seed: int = 0, *, examples: int = 300, classes: int = 5, spread: float = 3.0) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    weight, features = draw(classes, 8), draw(examples, 8)
    return Predictions(spread * (features @ weight.T / 4 + draw(examples, classes) / 2 + draw(classes)), features, weight)


def loop(outputs: Predictions, portion: float, by: str) -> tuple[list[int], list[int]]:
    """Every selection with hard labels, example by example."""
    p = torch.softmax(outputs.logits.double(), 1).tolist()
    angle = lambda x, w: math.acos(max(-1.0, min(1.0, float(x @ w) / (float(x.norm()) * float(w.norm())))))
    left = [[math.pi - angle(x, w) for w in outputs.weight.double()] for x in outputs.features.double()]
    a = [[value / sum(row) for value in row] for row in left]
    number = len(p[0])
    plain = [max(range(number), key=lambda k, row=row: row[k]) for row in (a if by == "avh" else p)]
    threshold = {"p": [1.0] * number, "a": [1.0] * number}
    counts = [0] * number
    for k in range(number):
        own = [i for i in range(len(p)) if plain[i] == k]
        counts[k] = math.floor(portion * len(own) + 1e-9)
        if counts[k]:
            threshold["p"][k] = sorted((p[i][k] for i in own), reverse=True)[counts[k] - 1]
            threshold["a"][k] = sorted((a[i][k] for i in own), reverse=True)[counts[k] - 1]
    places, labels = [], []
    for i in range(len(p)):
        weighed = [p[i][k] / threshold["p"][k] for k in range(number)]
        k = plain[i] if by == "avh" else max(range(number), key=lambda k, weighed=weighed: weighed[k])
        sure = p[i][k] >= threshold["p"][k] if by == "cbst" else a[i][k] >= threshold["a"][k]
        if sure and counts[k]:
            places.append(i)
            labels.append(k)
    return places, labels


@pytest.mark.parametrize("by", ["cbst", "cbst_avh", "avh"])
@settings(deadline=None, derandomize=True, max_examples=15)
@given(seed=st.integers(0, 1000), portion=st.floats(0.01, 1.0))
def test_matches_a_plain_loop(by: str, seed: int, portion: float) -> None:
    outputs = made(seed, examples=60)
    found = create_selection(by)(outputs, portion)
    assert (found.places.tolist(), found.labels.tolist()) == loop(outputs, portion, by)


def test_avc_matches_the_score() -> None:
    outputs = made()
    torch.testing.assert_close(outputs.avc.max(1).values.float(), avc(outputs.features, outputs.weight), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(outputs.avc.sum(1), torch.ones(300, dtype=torch.float64))
    torch.testing.assert_close(outputs.log_p.exp().sum(1), torch.ones(300, dtype=torch.float64))


@pytest.mark.parametrize("portion", [0.2, 0.29, 0.5, 1.0])
def test_portions_are_exact(portion: float) -> None:
    """Of each class's own examples exactly ⌊portion · |S_k|⌋ reach the threshold: .29 of 100 is 29."""
    outputs = made(3)
    classes = torch.arange(300) % 3
    values = outputs.log_p
    counts = portion_counts(classes, portion, 5)
    assert counts.tolist() == [round(portion * 100)] * 3 + [0, 0]
    thresholds = class_thresholds(values, classes, portion, none=7.0)
    for k in range(3):
        assert int((values[classes == k, k] >= thresholds[k]).sum()) == counts[k]
    assert thresholds[3:].tolist() == [7.0, 7.0]
    assert len(create_selection("confidence")(outputs, portion)) == round(portion * 300)
    plain = torch.bincount(create_selection("random")(outputs, portion).labels, minlength=5)
    assert plain.tolist() == portion_counts(outputs.logits.argmax(1), portion, 5).tolist()


def test_one_threshold_selects_the_most_confident() -> None:
    outputs = made(5)
    found = create_selection("confidence")(outputs, 0.1)
    top = torch.softmax(outputs.logits, 1).max(1).values
    assert set(found.places.tolist()) == set(top.topk(30).indices.tolist())
    assert torch.equal(found.labels, outputs.logits.argmax(1)[found.places])
    assert len(create_selection("confidence")(outputs, 0.001)) == 0


@pytest.mark.parametrize("name", SELECTIONS)
def test_classes_without_predictions_get_no_pseudo_labels(name: str) -> None:
    outputs = made(1)
    outputs.logits[:, 2] -= 100.0
    away = Predictions(outputs.logits, outputs.features.abs(), outputs.weight.abs())
    away.weight[2] *= -1
    found = create_selection(name)(away, 0.3)
    assert len(found)
    assert 2 not in found.labels


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_class_too_small_for_its_portion_gives_nothing(name: str) -> None:
    """Two examples, wholly certain of class 0: ⌊.2 · 2⌋ = 0."""
    logits = torch.zeros(12, 2)
    logits[:2, 0], logits[2:, 1] = 1000.0, 1 + torch.arange(10) / 10
    features = torch.stack([logits[:, 0] > 500, logits[:, 1] > 0.5], 1).float() + torch.rand(12, 1) / 10
    found = create_selection(name)(Predictions(logits, features, torch.eye(2)), 0.2)
    assert found.labels.tolist() == [1, 1] or name == "confidence"


def test_confident_networks_do_not_tie_at_one() -> None:
    logits = torch.stack([50 + torch.arange(20.0), torch.zeros(20)], 1)
    assert (torch.softmax(logits, 1)[:, 0] == 1).all()
    assert create_selection("cbst")(Predictions(logits, torch.rand(20, 2), torch.eye(2)), 0.25).places.tolist() == [
        15,
        16,
        17,
        18,
        19,
    ]


def test_ties_are_all_kept() -> None:
    logits = torch.tensor([[2.0, 0.0]] * 6 + [[1.0, 0.0]] * 4)
    assert create_selection("cbst")(Predictions(logits, torch.ones(10, 2), torch.eye(2)), 0.2).places.tolist() == list(range(6))


def test_the_weighted_class_may_differ_from_the_argmax() -> None:
    """Class 0 is sure (λ = .9), class 1 is not (λ = .4): p = (.55, .42, .03) is labeled 1, and believed."""
    p = torch.tensor([[0.9, 0.05, 0.05]] * 5 + [[0.3, 0.4, 0.3]] * 4 + [[0.55, 0.42, 0.03]])
    found = create_selection("cbst")(Predictions(p.log(), torch.rand(10, 2), torch.rand(3, 2)), 0.5)
    assert found.places.tolist() == list(range(10))
    assert found.labels.tolist() == [0] * 5 + [1] * 5


def test_mrkld_is_the_loss_of_the_label_and_a_times_the_divergence() -> None:
    outputs = made(2)
    plain, found = create_selection("cbst")(outputs, 0.3), create_selection("mrkld:weight=0.1")(outputs, 0.3)
    assert torch.equal(plain.places, found.places)
    log_p = torch.log_softmax(torch.randn(len(found), 5), 1)
    expected = torch.stack([-row[k] - 0.1 * row.mean() for row, k in zip(log_p, found.labels, strict=True)])
    torch.testing.assert_close(-(found.soft * log_p).sum(1), expected)


@pytest.mark.parametrize("softness", [0.25, 1.0])
def test_lrent_is_its_formula(softness: float) -> None:
    outputs = made(4)
    p = torch.softmax(outputs.logits.double(), 1)
    lam = class_thresholds(outputs.log_p, p.argmax(1), 0.3, none=0.0).exp()
    found = create_selection({"name": "lrent", "softness": softness})(outputs, 0.3)
    closed = portion_counts(p.argmax(1), 0.3, 5) == 0
    places = []
    for i in range(len(p)):
        powers = (p[i] / lam) ** (1 / softness)
        if softness * math.log(float(powers.sum())) >= 0 and not closed[powers.argmax()]:
            row: Tensor = found.soft[len(places)]
            torch.testing.assert_close(row.double(), powers / powers.sum(), atol=1e-6, rtol=1e-5)
            y = powers / powers.sum()
            gain = (-y * p[i].log()).sum() + softness * (y * y.log()).sum() + (y * lam.log()).sum()
            assert gain <= 1e-9  # the condition as the paper has it
            places.append(i)
    assert found.places.tolist() == places


def test_lrent_goes_to_cbst_and_crst_is_both() -> None:
    outputs = made(6)
    plain, hard = create_selection("cbst")(outputs, 0.3), create_selection("lrent:softness=0.0001")(outputs, 0.3)
    assert torch.equal(plain.places, hard.places)
    assert torch.equal(plain.labels, hard.soft.argmax(1))
    assert (hard.soft.max(1).values > 0.99).float().mean() > 0.9
    soft, both = create_selection("lrent")(outputs, 0.3), create_selection("crst")(outputs, 0.3)
    torch.testing.assert_close(both.soft, soft.soft + 0.1 / 5)
    assert {name for name in SELECTIONS if create_selection(name)(outputs, 0.3).soft is not None} == set(SOFT)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cbts", "unknown selection 'cbts'; known: cbst, cbst_avh"),
        ("mrkld:weight=-1", "weight must be at least 0, got -1"),
        ("lrent:softness=0", "softness must be over 0, got 0"),
        ("crst:softness=0", "softness must be over 0"),
        ("cbst:portion=1", "cbst has no field 'portion'"),
    ],
)
def test_wrong_specs_are_named(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_selection(spec)


def test_a_portion_is_a_share() -> None:
    with pytest.raises(ValueError, match="portion must be between 0 and 1, got 20"):
        create_selection("cbst")(made(), 20)
