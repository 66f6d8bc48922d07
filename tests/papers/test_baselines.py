"""The plain baselines against their published formulas and gradients, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

import mohs


def case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(32, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (32,), generator=generator)
    probs = logits.softmax(1)
    return logits.requires_grad_(), labels, probs, probs.gather(1, labels[:, None])


FORMULAS = {
    "mae": (mohs.MeanAbsoluteErrorLoss, {}, lambda p: 2 * (1 - p), lambda p: 2 * p),
    "gce": (mohs.GeneralizedCrossEntropyLoss, {"q": 0.7}, lambda p: (1 - p**0.7) / 0.7, lambda p: p**0.7),
    "symmetric": (
        mohs.SymmetricCrossEntropyLoss,
        {"alpha": 0.1, "beta": 1.0},
        lambda p: -0.1 * p.log() - math.log(1e-4) * (1 - p),
        lambda p: 0.1 - math.log(1e-4) * p,
    ),
    "focal": (
        mohs.FocalLoss,
        {"gamma": 2.0},
        lambda p: -((1 - p) ** 2) * p.log(),
        lambda p: (1 - p) ** 2 - 2 * p * (1 - p) * p.log(),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_value_and_gradient(name: str) -> None:
    loss, fields, value, factor = FORMULAS[name]
    logits, labels, probs, p = case()
    ours = loss(reduction="none", **fields)(logits, labels)
    torch.testing.assert_close(ours, value(p).squeeze(1), rtol=1e-12, atol=1e-14)
    grad = torch.autograd.grad(ours.sum(), logits)[0]
    torch.testing.assert_close(grad, (factor(p) * (probs - one_hot(labels, 5))).detach(), rtol=1e-11, atol=1e-14)


def test_neutral_settings_are_cross_entropy() -> None:
    logits, labels, _, _ = case()
    neutral = [
        mohs.CrossEntropyLoss(),
        mohs.GeneralizedCrossEntropyLoss(q=0),
        mohs.FocalLoss(gamma=0),
        mohs.SymmetricCrossEntropyLoss(alpha=1, beta=0),
        mohs.EncouragingLoss(bonus=0),
    ]
    for loss in neutral:
        torch.testing.assert_close(loss(logits, labels), cross_entropy(logits, labels), rtol=1e-14, atol=1e-14)


def test_gce_between_cross_entropy_and_half_of_mae() -> None:
    logits, labels, _, _ = case()
    near = mohs.GeneralizedCrossEntropyLoss(q=1e-9)(logits, labels)
    torch.testing.assert_close(near, cross_entropy(logits, labels), rtol=1e-7, atol=0)
    half = mohs.MeanAbsoluteErrorLoss()(logits, labels) / 2
    torch.testing.assert_close(mohs.GeneralizedCrossEntropyLoss(q=1)(logits, labels), half)


def test_symmetric_emphasis_formula() -> None:
    p = torch.linspace(0.01, 0.99, 9, dtype=torch.float64)
    torch.testing.assert_close(mohs.emphasis(mohs.SymmetricCrossEntropyLoss(), p), (1 - p) * (0.1 - math.log(1e-4) * p))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mohs.GeneralizedCrossEntropyLoss(q=1.5), "q must be between 0 and 1, got 1.5"),
        (lambda: mohs.FocalLoss(gamma=-1), "gamma must be at least 0, got -1"),
        (lambda: mohs.SymmetricCrossEntropyLoss(alpha=-1), "alpha must be at least 0"),
        (lambda: mohs.SymmetricCrossEntropyLoss(floor=0), "floor must be over 0"),
        (lambda: mohs.MeanSquaredErrorLoss(activation="relu"), "activation must be one of softmax, sigmoid, got 'relu'"),
        (lambda: mohs.FocalLoss(label_smoothing=0.1), "label_smoothing is not defined for FocalLoss"),
    ],
)
def test_bad_settings(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
