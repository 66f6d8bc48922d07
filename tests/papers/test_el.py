"""Encouraging Loss (AAAI 2022): its equations, figures and gradients, and the mirror bonus of its Table 5."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

import mohs

P = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
LOG_ENDS = [0.0, 0.25, 0.5, 0.75, 1.0]


def logit(p: torch.Tensor | float) -> torch.Tensor:
    return torch.special.logit(torch.as_tensor(p, dtype=torch.float64))


def batch(seed: int = 0, n: int = 64, k: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(k, (n,), generator=generator)


def definition(p: torch.Tensor, log_end: float) -> torch.Tensor:
    """Eq. 7, and eq. 6 for LE = 1, written out."""
    bonus = torch.log(1 - p)
    if log_end < 1:
        bonus = torch.where(p > log_end, -(p - log_end) / (1 - log_end) + math.log(1 - log_end), bonus)
    return -torch.log(p) + bonus


@pytest.mark.parametrize("log_end", LOG_ENDS)
def test_equations_6_and_7(log_end: float) -> None:
    loss = mohs.EncouragingLoss(log_end=log_end, eps=0)
    torch.testing.assert_close(loss.curve(logit(P)), definition(P, log_end), rtol=1e-10, atol=1e-12)
    p = P.clone().requires_grad_()
    slope = torch.autograd.grad((loss.curve(logit(p)) + torch.log(p)).sum(), p)[0]  # of the bonus
    torch.testing.assert_close(slope, -1 / (1 - P.clamp(max=log_end)))  # the logarithm's; beyond LE that at LE: the tangent


def test_closed_form_of_the_normal_bonus() -> None:
    logits, labels = batch()
    others = logits.masked_fill(one_hot(labels, 6).bool(), -torch.inf).logsumexp(1)
    closed = others - logits.gather(1, labels[:, None]).squeeze(1)
    torch.testing.assert_close(mohs.EncouragingLoss(log_end=1, eps=0, reduction="none")(logits, labels), closed)


@pytest.mark.parametrize("log_end", LOG_ENDS)
def test_logit_gradients(log_end: float) -> None:
    logits, labels = batch()
    grad = torch.autograd.grad(mohs.EncouragingLoss(log_end=log_end, eps=0, reduction="sum")(logits, labels), logits)[0]
    probs = logits.detach().softmax(1)
    p = probs.gather(1, labels[:, None])
    factor = 1 / (1 - p) if log_end == 1 else torch.where(p > log_end, 1 + p / (1 - log_end), 1 / (1 - p))
    torch.testing.assert_close(grad, (probs - one_hot(labels, 6)) * factor, rtol=1e-9, atol=1e-12)


def test_equation_8_gradient_does_not_depend_on_p() -> None:
    torch.testing.assert_close(mohs.emphasis(mohs.EncouragingLoss(log_end=1, eps=0), P), torch.ones(99, dtype=torch.float64))


@pytest.mark.parametrize("log_end", [0.25, 0.5, 0.75])
def test_continuous_at_the_log_end_in_value_and_slope(log_end: float) -> None:
    loss = mohs.EncouragingLoss(log_end=log_end, eps=0)
    below, above = logit(log_end - 1e-9), logit(log_end + 1e-9)
    assert loss.curve(below).item() == pytest.approx(loss.curve(above).item(), abs=1e-7)
    left, right = mohs.emphasis(loss, log_end - 1e-9).item(), mohs.emphasis(loss, log_end + 1e-9).item()
    assert left == pytest.approx(right, abs=1e-7)


def test_figure_2_and_3_at_analytic_points() -> None:
    at = lambda p, **fields: mohs.EncouragingLoss(eps=0, **fields).curve(logit(p)).item()
    assert at(0.5, log_end=1) == pytest.approx(0, abs=1e-12)  # Figure 2: −log ½ + log ½
    assert at(0.9, log_end=1) == pytest.approx(-math.log(9))
    assert at(0.75, log_end=0.5) == pytest.approx(-math.log(0.75) - 0.5 + math.log(0.5))  # Figure 3
    assert at(0.9, log_end=0.75) == pytest.approx(-math.log(0.9) - 0.6 + math.log(0.25))
    assert at(1 - 1e-12, log_end=0.5) == pytest.approx(-1 + math.log(0.5), abs=1e-9)  # the tangent ends at −1 + log(1 − LE)
    assert at(0.3, log_end=0.0) == pytest.approx(-math.log(0.3) - 0.3)


def test_figure_3_steeper_from_right_to_left() -> None:
    """For well-classified examples every larger LE pulls harder, and all pull harder than cross-entropy."""
    curves = [mohs.emphasis(mohs.CrossEntropyLoss(), P)] + [mohs.emphasis(mohs.EncouragingLoss(log_end=e), P) for e in LOG_ENDS]
    for weaker, stronger in itertools.pairwise(curves):
        assert (stronger >= weaker - 1e-12).all()
        assert stronger[P > 0.8].sum() > weaker[P > 0.8].sum()


def test_log_end_0_is_not_cross_entropy_but_bonus_0_is() -> None:
    logits, labels = batch()
    ce = cross_entropy(logits, labels)
    assert not torch.isclose(mohs.EncouragingLoss(log_end=0)(logits, labels), ce)
    torch.testing.assert_close(mohs.emphasis(mohs.EncouragingLoss(log_end=0), P), 1 - P**2)
    for log_end in LOG_ENDS:
        torch.testing.assert_close(mohs.EncouragingLoss(log_end=log_end, bonus=0)(logits, labels), ce)


def test_beyond_1_minus_eps_the_clamp_gives_the_gradient_of_cross_entropy() -> None:
    loss = mohs.EncouragingLoss(log_end=1)  # ε = 1e-5
    assert mohs.emphasis(loss, 1 - 1.1e-5).item() == pytest.approx(1)
    assert mohs.emphasis(loss, 1 - 0.9e-5).item() == pytest.approx(0.9e-5, rel=1e-6)
    edge = logit(1 - 1e-5).item()
    assert edge == pytest.approx(11.51, abs=0.01)
    assert loss.curve(torch.tensor(1e4)).item() == pytest.approx(-11.5129, abs=1e-3)  # bounded below
    assert mohs.EncouragingLoss(log_end=1, eps=0).curve(torch.tensor(1e4)).item() == pytest.approx(-1e4)


def test_aggressive_bonus() -> None:
    loss = mohs.EncouragingLoss(log_end=1, start=0.5, eps=0)
    w = mohs.emphasis(loss, P)
    torch.testing.assert_close(w[P < 0.495], (1 - P)[P < 0.495])
    torch.testing.assert_close(w[P > 0.505], torch.ones_like(w[P > 0.505]))
    assert loss.curve(logit(0.5)).item() == pytest.approx(math.log(2))  # continuous: the bonus starts at 0
    assert loss.curve(logit(0.9)).item() == pytest.approx(-math.log(0.9) + math.log(0.1) - math.log(0.5))


@pytest.mark.parametrize("log_end", [0.5, 1.0])
def test_label_smoothing_smooths_every_class_term(log_end: float) -> None:
    logits, labels = batch()
    loss = mohs.EncouragingLoss(log_end=log_end, eps=0, label_smoothing=0.1, reduction="none")
    every = definition(logits.softmax(1), log_end)  # (N, K)
    own = every.gather(1, labels[:, None]).squeeze(1)
    torch.testing.assert_close(loss(logits, labels), 0.9 * own + 0.1 * every.mean(1), rtol=1e-9, atol=1e-9)
    none = mohs.EncouragingLoss(log_end=log_end, label_smoothing=0.0)(logits, labels)
    torch.testing.assert_close(none, mohs.EncouragingLoss(log_end=log_end)(logits, labels))


def test_cross_entropy_smoothing_and_weights_match_torch() -> None:
    logits, labels = batch()
    labels[5] = -100
    weight = torch.rand(6, dtype=torch.float64)
    for smoothing in (0.0, 0.1, 1.0):
        for w in (None, weight):
            for reduction in ("mean", "sum", "none"):
                ours = mohs.CrossEntropyLoss(label_smoothing=smoothing, reduction=reduction).double()
                ours.weight = w
                theirs = cross_entropy(logits, labels, weight=w, label_smoothing=smoothing, reduction=reduction)
                torch.testing.assert_close(ours(logits, labels), theirs)
                g, h = (torch.autograd.grad(v.sum(), logits)[0] for v in (ours(logits, labels), theirs))
                torch.testing.assert_close(g, h)


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("mirror", [False, True])
def test_table_5_squared_error_and_its_mirror(activation: str, mirror: bool) -> None:
    logits, labels = batch()
    a = logits.softmax(1) if activation == "softmax" else logits.sigmoid()
    y = one_hot(labels, 6).double()
    printed = (y - a) ** 2 - mirror * ((y * a) ** 2 + ((1 - y) * (1 - a)) ** 2)
    loss = mohs.MeanSquaredErrorLoss(activation=activation, mirror=mirror)(logits, labels)
    torch.testing.assert_close(loss, printed.mean(), rtol=1e-12, atol=1e-12)
    g, h = (torch.autograd.grad(v, logits, retain_graph=True)[0] for v in (loss, printed.mean()))
    torch.testing.assert_close(g, h, rtol=1e-9, atol=1e-14)


def test_squared_error_with_mirror_bonus_is_mean_absolute_error() -> None:
    logits, labels = batch()
    mirrored = mohs.MeanSquaredErrorLoss(mirror=True, reduction="none")(logits, labels)
    mae = mohs.MeanAbsoluteErrorLoss(reduction="none")(logits, labels)
    torch.testing.assert_close(6 * mirrored, 2 * mae - 6, rtol=1e-13, atol=1e-13)
    off = (one_hot(labels, 6) - logits.sigmoid()).abs().sum(1)
    sigmoid = mohs.MeanSquaredErrorLoss(activation="sigmoid", mirror=True, reduction="none")(logits, labels)
    torch.testing.assert_close(6 * sigmoid, 2 * off - 6)
    z, first = torch.stack([logit(P), torch.zeros_like(P)], 1).requires_grad_(), torch.zeros(99, dtype=torch.long)
    bonus, plain = (mohs.MeanSquaredErrorLoss(activation="sigmoid", mirror=m, reduction="sum")(z, first) for m in (True, False))
    with_bonus, without = (torch.autograd.grad(loss, z)[0][:, 0] for loss in (bonus, plain))  # by the label's logit
    torch.testing.assert_close(with_bonus, without / (1 - P))  # well-classified examples gain weight


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"log_end": 1.2}, "log_end must be between 0 and 1, got 1.2"),
        ({"start": 0.5}, "start=0.5 needs log_end=1"),
        ({"log_end": 1, "start": 1.0}, "start must be at least 0 and under 1"),
        ({"eps": -1}, "eps must be at least 0 and under 1"),
        ({"bonus": -1}, "bonus must be at least 0"),
    ],
)
def test_bad_settings(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mohs.EncouragingLoss(**fields)
