"""Gradient Rescaling (arXiv 1905.11233): its equations, figure and special cases, and what its code adds to them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch.nn.functional import one_hot

import mohs
from mohs.losses.gradient_rescaling import gradient_rescaling_loss

P = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)


def batch(seed: int = 0, n: int = 16, k: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(k, (n,), generator=generator)


def logit_gradient(loss: torch.nn.Module, seed: int = 0) -> torch.Tensor:
    logits, labels = batch(seed)
    return torch.autograd.grad(loss(logits, labels), logits)[0]


def author_gradient(logits: torch.Tensor, labels: torch.Tensor, beta: float, lam: float, eps: float) -> torch.Tensor:
    """The published backward pass, written out: (p − e_y)/(2(1 − p_y) + ε) · w/Σw."""
    probs = logits.detach().softmax(1)
    p = probs.gather(1, labels[:, None])
    w = torch.exp(beta * p**lam * (1 - p))
    return (probs - one_hot(labels, logits.shape[1])) / (2 * (1 - p) + eps) * w / w.sum()


@given(st.integers(0, 10**6), st.floats(0, 24), st.floats(0, 3), st.sampled_from([0.0, 1e-8, 1e-6]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_gradient_matches_the_authors_code(seed: int, beta: float, lam: float, eps: float) -> None:
    logits, labels = batch(seed)
    loss = mohs.GradientRescalingLoss(beta=beta, lam=lam, eps=eps)
    grad = torch.autograd.grad(loss(logits, labels), logits)[0]
    torch.testing.assert_close(grad, author_gradient(logits, labels, beta, lam, eps), rtol=1e-6, atol=1e-12)


def test_value_is_the_surrogate() -> None:
    logits, labels = batch()
    for eps in (0.0, 1e-6):
        ce = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        p = (-ce).exp()
        w = torch.exp(8 * p**0.5 * (1 - p))
        s = w / (2 * (1 - p) + eps)
        none = gradient_rescaling_loss(logits, labels, reduction="none", eps=eps)
        torch.testing.assert_close(none, 16 * s * ce / w.sum(), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradient_rescaling_loss(logits, labels, eps=eps), (s * ce).sum() / w.sum())


@pytest.mark.parametrize(
    ("beta", "lam", "same"),
    [
        (2.0, 0.0, mohs.CrossEntropyLoss()),
        (4.0, 1.0, mohs.MeanAbsoluteErrorLoss()),
        (2.0, 0.7, mohs.GeneralizedCrossEntropyLoss(q=0.7)),  # the paper prints β = 1, against its own Section 3.1
        (2.0, 0.3, mohs.GeneralizedCrossEntropyLoss(q=0.3)),
    ],
)
def test_equation_7_special_cases(beta: float, lam: float, same: torch.nn.Module) -> None:
    loss = mohs.GradientRescalingLoss(beta=beta, lam=lam, transform="identity", normalize="mean", eps=0)
    torch.testing.assert_close(logit_gradient(loss), logit_gradient(same), rtol=1e-12, atol=1e-14)


def test_equation_7_gce_is_not_beta_1() -> None:
    loss = mohs.GradientRescalingLoss(beta=1, lam=0.7, transform="identity", normalize="mean", eps=0)
    torch.testing.assert_close(2 * logit_gradient(loss), logit_gradient(mohs.GeneralizedCrossEntropyLoss(q=0.7)))


def test_beta_0_is_half_of_encouraging_loss() -> None:
    """The two papers' update rules are one: exact at ε = 0, near at each one's own default."""
    exact = logit_gradient(mohs.GradientRescalingLoss(beta=0, eps=0))
    torch.testing.assert_close(exact, logit_gradient(mohs.EncouragingLoss(log_end=1, eps=0)) / 2, rtol=1e-13, atol=1e-16)
    near = logit_gradient(mohs.GradientRescalingLoss(beta=0))
    torch.testing.assert_close(near, logit_gradient(mohs.EncouragingLoss(log_end=1)) / 2, rtol=1e-3, atol=1e-6)
    assert not torch.equal(near, exact)


@given(st.integers(0, 10**6), st.floats(0, 50), st.floats(0, 4), st.sampled_from(["exp", "identity"]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_l1_norms_of_a_batch_sum_to_1(seed: int, beta: float, lam: float, transform: str) -> None:
    if transform == "identity" and beta < 1e-3:
        beta = 1.0  # every weight 0: nothing to normalize
    loss = mohs.GradientRescalingLoss(beta=beta, lam=lam, transform=transform, eps=0)
    assert logit_gradient(loss, seed).abs().sum().item() == pytest.approx(1, abs=1e-9)
    assert logit_gradient(mohs.GradientRescalingLoss(beta=beta, lam=lam, transform=transform), seed).abs().sum().item() <= 1


@pytest.mark.parametrize(("beta", "lam"), [(8, 0.5), (12, 0.5), (16, 1), (24, 2)])
def test_equation_6_leaves_out_the_normalizer(beta: float, lam: float) -> None:
    """As printed the L1 norms of a batch sum to Σw; in the authors' code and in ours they sum to 1."""
    logits, labels = batch()
    p = logits.detach().softmax(1).gather(1, labels[:, None])
    w = torch.exp(beta * p**lam * (1 - p))
    printed = (logits.detach().softmax(1) - one_hot(labels, logits.shape[1])) * w / (2 * (1 - p))
    torch.testing.assert_close(printed.abs().sum(1, keepdim=True), w)
    assert printed.abs().sum() > 10
    ours = logit_gradient(mohs.GradientRescalingLoss(beta=beta, lam=lam, eps=0))
    for grad in (author_gradient(logits, labels, beta, lam, 0), ours):
        torch.testing.assert_close(grad, printed / w.sum())
        assert grad.abs().sum().item() == pytest.approx(1)


def test_identity_with_beta_0_has_zero_gradient_not_nan() -> None:
    assert (logit_gradient(mohs.GradientRescalingLoss(beta=0, transform="identity")) == 0).all()


def test_for_identity_beta_cancels() -> None:
    one, ten = (logit_gradient(mohs.GradientRescalingLoss(beta=b, transform="identity")) for b in (1, 10))
    torch.testing.assert_close(one, ten)


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("beta", [0.5, 8, 24])
@pytest.mark.parametrize("transform", ["exp", "identity"])
def test_focus_is_lambda_over_1_plus_lambda(lam: float, beta: float, transform: str) -> None:
    loss = mohs.GradientRescalingLoss(beta=beta, lam=lam, transform=transform, eps=0)
    assert mohs.focus(loss) == pytest.approx(lam / (1 + lam), abs=2e-6)


def test_beta_0_has_no_focus() -> None:
    assert math.isnan(mohs.focus(mohs.GradientRescalingLoss(beta=0)))


@pytest.mark.parametrize(("beta", "lam"), [(2, 0), (8, 0.5), (12, 1), (8, 2)])
def test_figure_1_curves(beta: float, lam: float) -> None:
    """Twice our emphasis is the weight the figure plots."""
    loss = mohs.GradientRescalingLoss(beta=beta, lam=lam, eps=0)
    torch.testing.assert_close(2 * mohs.emphasis(loss, P), torch.exp(beta * P**lam * (1 - P)), rtol=1e-10, atol=0)
    peak = math.exp(beta * lam**lam / (1 + lam) ** (1 + lam))
    assert 2 * mohs.emphasis(loss, lam / (1 + lam)).item() == pytest.approx(peak, rel=1e-9)
    assert 2 * mohs.emphasis(loss, 1.0).item() == pytest.approx(1, rel=1e-6)  # a fitted example keeps a unit gradient


def test_figure_1a_baselines() -> None:
    torch.testing.assert_close(2 * mohs.emphasis(mohs.CrossEntropyLoss(), P), 2 * (1 - P))  # eq. 2
    torch.testing.assert_close(2 * mohs.emphasis(mohs.MeanAbsoluteErrorLoss(), P), 4 * P * (1 - P))  # eq. 3
    torch.testing.assert_close(2 * mohs.emphasis(mohs.GeneralizedCrossEntropyLoss(q=0.7), P), 2 * P**0.7 * (1 - P))  # eq. 4


def test_table_1_focus_of_the_baselines() -> None:
    assert mohs.focus(mohs.CrossEntropyLoss()) == 0
    assert mohs.focus(mohs.MeanAbsoluteErrorLoss()) == pytest.approx(0.5, abs=2e-6)
    for q in (0.1, 0.5, 1.0):
        assert mohs.focus(mohs.GeneralizedCrossEntropyLoss(q=q)) == pytest.approx(q / (1 + q), abs=2e-6)


def test_figure_1c_spread_falls_as_lambda_rises() -> None:
    spreads = [mohs.spread(mohs.GradientRescalingLoss(beta=8, lam=lam), P) for lam in (0, 0.5, 1, 2)]
    assert all(one > less for one, less in pairwise(spreads))


@pytest.mark.parametrize("lam", [0.5, 2])
def test_figure_1b_spread_rises_with_beta(lam: float) -> None:
    spreads = [mohs.spread(mohs.GradientRescalingLoss(beta=beta, lam=lam), P) for beta in (0, 4, 8, 12, 16)]
    assert all(one < more for one, more in pairwise(spreads))
    assert spreads[0] == pytest.approx(0, abs=1e-9)


def test_equation_5_truncated_gce() -> None:
    """L_q(p) above ½, L_q(½) below: no gradient there."""
    loss = mohs.TruncatedGeneralizedCrossEntropyLoss()
    w = mohs.emphasis(loss, P)
    assert (w[P < 0.5] == 0).all()
    torch.testing.assert_close(w[P > 0.5], (P**0.7 * (1 - P))[P > 0.5])
    value = loss.curve(torch.tensor([-5.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(value, torch.full((2,), (1 - 0.5**0.7) / 0.7, dtype=torch.float64))


def test_the_loss_behind_the_gradient_is_an_integral() -> None:
    """−dL/dp of L(p) = ∫ w(t)/(2t(1 − t)) dt, by quadrature, is the curve's slope over p(1 − p).

    Near 1 the integrand is 1/(2(1 − t)): each hundredth part of 1 − t adds ½ log 100, without end, unlike an error function.
    """
    loss = mohs.GradientRescalingLoss(beta=8, lam=0.5, eps=0)
    primitive = lambda p: quad(lambda t: math.exp(8 * t**0.5 * (1 - t)) / (2 * t * (1 - t)), p, 0.99)[0]
    for p in (0.1, 0.4, 0.8):
        slope = (primitive(p - 1e-4) - primitive(p + 1e-4)) / 2e-4
        assert slope == pytest.approx(mohs.emphasis(loss, p).item() / (p * (1 - p)), rel=1e-5)
    for near in (1e-4, 1e-6, 1e-8):  # t = 1 − exp(−s)
        tail = lambda s: math.exp(8 * (1 - math.exp(-s)) ** 0.5 * math.exp(-s)) / (2 * (1 - math.exp(-s)))
        added = quad(tail, -math.log(near), -math.log(near / 100))[0]
        assert added == pytest.approx(math.log(100) / 2, rel=1e-3)


def test_the_weight_is_not_differentiated() -> None:
    logits, labels = batch()
    fixed = author_gradient(logits, labels, 8, 0.5, 1e-6)
    live = logits.detach().requires_grad_()
    ce = torch.nn.functional.cross_entropy(live, labels, reduction="none")
    p = (-ce).exp()
    w = torch.exp(8 * p**0.5 * (1 - p))
    through = torch.autograd.grad((w / (2 * (1 - p) + 1e-6) * ce).sum() / w.sum(), live)[0]
    assert not torch.allclose(through, fixed, rtol=1e-2)
    torch.testing.assert_close(logit_gradient(mohs.GradientRescalingLoss()), fixed, rtol=1e-9, atol=1e-15)


def test_a_batch_of_one_is_not_reweighted() -> None:
    logits, labels = batch(n=1)
    grads = [torch.autograd.grad(mohs.GradientRescalingLoss(beta=b)(logits, labels), logits)[0] for b in (0, 20)]
    torch.testing.assert_close(*grads)


def test_huge_beta_cannot_overflow() -> None:
    logits, labels = batch()
    grad = torch.autograd.grad(mohs.GradientRescalingLoss(beta=1e6)(logits.float(), labels), logits)[0]
    assert grad.isfinite().all()
    with pytest.raises(ValueError, match="beta must be between 0 and 80, got 100"):
        mohs.GradientRescalingLoss(beta=100, normalize="mean")


def test_exact_form_has_gradient_one_half_at_any_margin() -> None:
    z = torch.tensor([[500.0, 0.0], [50.0, 0.0], [-500.0, 0.0]], requires_grad=True)
    loss = mohs.GradientRescalingLoss(beta=0, eps=0, normalize="mean", reduction="sum")
    grad = torch.autograd.grad(loss(z, torch.zeros(3).long()), z)[0]
    torch.testing.assert_close(grad, torch.tensor([[-0.5, 0.5]] * 3))
    fades = torch.autograd.grad(
        mohs.GradientRescalingLoss(beta=0, normalize="mean", reduction="sum")(z, torch.zeros(3).long()), z
    )[0]
    assert fades[0].abs().max() < 1e-6  # with the default ε the fitted example is let go


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"beta": -1}, "beta must be at least 0, got -1"),
        ({"lam": -0.5}, "lam must be at least 0"),
        ({"eps": -1e-6}, "eps must be at least 0"),
        ({"transform": "log"}, "transform must be one of exp, identity, got 'log'"),
        ({"normalize": "max"}, "normalize must be one of sum, mean, got 'max'"),
        ({"label_smoothing": 0.1}, "label_smoothing is not defined for GradientRescalingLoss"),
    ],
)
def test_bad_settings(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mohs.GradientRescalingLoss(**fields)
