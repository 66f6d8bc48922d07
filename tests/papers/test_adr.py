"""Adaptive discriminative regularization (IJCV 2024): its equations and figure, and where its function turns."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from mohs.losses.adr import adr, entropy_penalty

# C, τ, F(uniform), the p of the largest F (None: F falls all the way), the p from which F is under F(uniform)
TURNING_POINTS = [
    (2, 1, 0.352, None, None),
    (2, 2, 0.124, 0.878, 0.942),
    (10, 1, 0.397, None, None),
    (10, 2, 0.158, 0.712, 0.857),
    (10, 3, 0.0626, 0.836, 0.939),
    (10, 5, 0.00986, 0.916, 0.976),
    (100, 1, 0.399, 0.364, 0.558),
    (100, 2, 0.159, 0.648, 0.837),
    (100, 5, 0.0101, 0.877, 0.964),
    (1000, 1, 0.399, 0.373, 0.585),
    (1000, 5, 0.0101, 0.857, 0.957),
]


def path(p: float, classes: int) -> Tensor:
    """Logits for one class at probability p and the rest equal."""
    logits = torch.zeros(1, classes, dtype=torch.float64)
    logits[0, 0] = math.log(p) - math.log((1 - p) / (classes - 1))
    return logits


def binary(p: float, **options) -> tuple[float, float]:
    """F and dF/dz of the first class for two classes at p and 1 − p, τ = 1."""
    logits = path(p, 2).requires_grad_()
    value = adr(logits, tau=1, **options)
    value.backward()
    return value.item(), logits.grad[0, 0].item()


@pytest.mark.parametrize(("classes", "tau", "uniform", "peak", "under"), TURNING_POINTS)
def test_turning_points(classes, tau, uniform, peak, under):
    def value(p: float) -> float:
        return adr(path(p, classes), tau=tau).item()

    start = value(1 / classes)
    assert start == pytest.approx(uniform, rel=1e-3, abs=5e-4 if uniform > 0.1 else 5e-5)
    assert start == pytest.approx((2 * math.pi) ** (-tau / 2) * math.exp(-tau / (2 * classes**2)), rel=1e-12)
    grid = [1 / classes + (0.9999 - 1 / classes) * i / 300 for i in range(301)]
    values = [value(p) for p in grid]
    if peak is None:
        assert all(a > b for a, b in pairwise(values) if a > 1e-300)
        return
    best = grid[max(range(301), key=values.__getitem__)]
    found = minimize_scalar(lambda p: -value(p), bounds=(best - 0.01, best + 0.01), method="bounded", options={"xatol": 1e-6}).x
    assert found == pytest.approx(peak, abs=1e-3)
    assert brentq(lambda p: value(p) - start, found, 0.9999) == pytest.approx(under, abs=1e-3)


@pytest.mark.parametrize(("tau", "turn"), [(2, 0.509), (3, 0.666)])
def test_turning_point_of_a_two_way_confusion(tau, turn):
    def value(p: float) -> float:
        q = torch.full((1, 10), 0.1 * (1 - p) / 8, dtype=torch.float64)
        q[0, 0], q[0, 1] = p, 0.9 * (1 - p)
        return adr(q.log(), tau=tau).item()

    found = minimize_scalar(lambda p: -value(p), bounds=(0.48, 0.9), method="bounded", options={"xatol": 1e-6}).x
    assert found == pytest.approx(turn, abs=1e-3)
    rising = [value(0.475 + (found - 0.475) * i / 50) for i in range(51)]  # from where the rival is as likely
    assert all(a < b for a, b in pairwise(rising))


@pytest.mark.parametrize("tau", [1, 3, 7])
def test_gradient_formula(tau):
    logits = torch.randn(1, 7, generator=torch.Generator().manual_seed(tau), dtype=torch.float64)
    p = logits[0].softmax(0)
    phi = -(p * p.log()).sum() / math.log(7)
    top = torch.zeros(7, dtype=torch.float64)
    top[p.argsort(descending=True)[:tau]] = 1
    squares = (top * p * p).sum()
    d_phi = -p * (phi + p.log() / math.log(7))
    d_squares = 2 * p * (p * top - squares)
    f = (2 * math.pi * phi) ** (-tau / 2) * torch.exp(-squares / (2 * phi))
    expected = f * ((squares - tau * phi) / (2 * phi**2) * d_phi - d_squares / (2 * phi))
    leaf = logits.clone().requires_grad_()
    value = adr(leaf, tau=tau)
    value.backward()
    torch.testing.assert_close(value.detach(), f, rtol=1e-12, atol=0)
    torch.testing.assert_close(leaf.grad[0], expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("tau", [1, 3, 7])
def test_the_printed_gradient_is_not_that_of_autograd(tau):
    """Eqs. 8 and 16 are one sum over the τ largest probabilities; eq. 17 is φ' by p_j, the rest shrunk, without 1/log C."""
    logits = torch.randn(1, 7, generator=torch.Generator().manual_seed(tau), dtype=torch.float64).requires_grad_()
    value, phi = adr(logits, tau=tau), entropy_penalty(logits) / math.log(7)
    (by_logit,), (phi_by_logit,) = torch.autograd.grad(value, logits)[0], torch.autograd.grad(phi, logits)[0]
    f, phi, p = value.detach(), phi.detach(), logits.detach()[0].softmax(0)
    shrunk = p * (1 - p)  # raising z_j raises p_j by this, and shrinks the rest in proportion
    top, where = p.sort(descending=True).values[:tau], p.argsort(descending=True)[:tau]
    slope = -(phi + top.log()) / (1 - top)
    printed = (f * (top**2 * slope - 2 * top * phi - phi * slope) / (2 * phi**2)).sum()
    assert printed.dim() == 0
    for gradient in (by_logit, by_logit / shrunk):
        assert len(gradient) == 7
        assert ((gradient - printed).abs() > 1e-2 * printed.abs()).all()
    true = (phi_by_logit / shrunk)[where]
    torch.testing.assert_close(true, -(phi + top.log() / math.log(7)) / (1 - top), rtol=1e-10, atol=1e-14)
    assert ((slope - true).abs() > 1e-2 * true.abs()).all()


@pytest.mark.parametrize("tau", [1, 3])
def test_equation_14_differentiates_the_root_over_phi(tau):
    """Eq. 14: H' = −φ'/(2φ) H, which is the derivative of (2πφ)^(−1/2) and half of that of the printed (√2π φ)^(−1)."""
    logits = torch.randn(1, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def slope(normalizer: str) -> Tensor:
        """The derivative of the factor's logarithm by the logits: that of log F less that of the exponential."""
        leaf = logits.clone().requires_grad_()
        (adr(leaf, tau=tau, normalizer=normalizer).log() - adr(leaf, tau=tau, normalizer="none").log()).backward()
        return leaf.grad

    leaf = logits.clone().requires_grad_()
    phi = entropy_penalty(leaf) / math.log(5)
    (d_phi,) = torch.autograd.grad(phi, leaf)
    printed_in_14 = tau * -d_phi / (2 * phi.detach())
    torch.testing.assert_close(slope("root"), printed_in_14, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(slope("printed"), 2 * printed_in_14, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("classes", "tau"), [(2, 2), (10, 3), (100, 5)])
@pytest.mark.parametrize(("normalizer", "times"), [("root", 1), ("printed", 2)])
def test_where_it_is_not_monotone_by_phi(classes, tau, normalizer, times):
    """log F falls with φ exactly where T < τφ, or T < 2τφ as printed: T fixed by the path, φ moved by hand."""
    for p in (0.3, 0.6, 0.9, 0.97):
        q = path(max(p, 1.01 / classes), classes).softmax(1)[0]
        squares = q.sort(descending=True).values[:tau].square().sum()
        phi = (-(q * q.log()).sum() / math.log(classes)).requires_grad_()
        base = 2 * math.pi * (phi if normalizer == "root" else phi**2)
        (slope,) = torch.autograd.grad(-tau / 2 * base.log() - squares / (2 * phi), phi)
        assert (slope < 0) == (squares < times * tau * phi)
        expected = (base ** (-tau / 2) * torch.exp(-squares / (2 * phi))).item()
        assert adr(q.log().unsqueeze(0), tau=tau, normalizer=normalizer).item() == pytest.approx(expected, rel=1e-9)


def test_turning_point_of_the_printed_form():
    grid = [0.1 + 0.0005 * i for i in range(1800)]
    values = [adr(path(p, 10), tau=3, normalizer="printed").item() for p in grid]
    assert grid[values.index(max(values))] == pytest.approx(0.933, abs=0.001)


@pytest.mark.parametrize("phi", ["entropy", "variance"])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_uncertainty_is_1_at_uniform_and_0_at_one_hot(phi, classes):
    uniform = torch.zeros(1, classes, dtype=torch.float64)
    # without the normalizer −2 log F = T/φ, and T = 1/C² for τ = 1
    assert -2 * adr(uniform, tau=1, phi=phi, normalizer="none").log() * classes**2 == pytest.approx(1, rel=1e-10)
    one_hot = torch.full((1, classes), -1e4, dtype=torch.float64)
    one_hot[0, 1] = 1e4
    leaf = one_hot.requires_grad_()
    value = adr(leaf, tau=1, phi=phi)
    value.backward()
    assert value == 0
    assert (leaf.grad == 0).all()


@pytest.mark.parametrize(
    ("p", "slope"), [(0.5, 0.044), (0.7, 0.033), (0.8, 0.046), (0.9, 0.097), (0.956, 0.143), (0.99, 0.015), (0.996, 0.0)]
)
def test_the_gradient_of_the_binary_function_is_largest_on_confident_predictions(p, slope):
    assert abs(binary(p)[1]) == pytest.approx(slope, abs=6e-4)


def test_the_largest_gradient_is_at_a_quarter_of_the_uncertainty():
    best = max((0.5 + 0.002 * i for i in range(250)), key=lambda p: abs(binary(p)[1]))
    bounds = (best - 0.004, best + 0.004)
    found = minimize_scalar(lambda p: -abs(binary(p)[1]), bounds=bounds, method="bounded", options={"xatol": 1e-6}).x
    assert found == pytest.approx(0.956, abs=1e-3)
    assert entropy_penalty(path(found, 2)) / math.log(2) == pytest.approx(0.26, abs=5e-3)
    largest, undecided = abs(binary(found)[1]), abs(binary(0.5)[1])
    assert largest > 3 * undecided
    assert largest / (found * (1 - found)) > 19 * undecided / 0.25  # by p instead of by the logit


@pytest.mark.parametrize("p", [0.5, 0.6, 0.75, 0.9, 0.97])
def test_figure_4(p):
    """b: the entropy; c and d: the exponential of the variance and of the entropy; at p and, mirrored, at 1 − p."""
    logits = path(p, 2).requires_grad_()
    entropy_penalty(logits).backward()
    slope_of_entropy = logits.grad[0, 0].item() / (p * (1 - p))  # by p instead of by the logit
    assert slope_of_entropy == pytest.approx(math.log((1 - p) / p), abs=1e-12)
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert entropy_penalty(path(p, 2)) == pytest.approx(entropy, rel=1e-12)
    for phi, uncertainty in (("entropy", entropy / math.log(2)), ("variance", 4 * p * (1 - p))):
        expected = math.exp(-(p**2) / (2 * uncertainty)) / math.sqrt(2 * math.pi * uncertainty)
        assert binary(p, phi=phi)[0] == pytest.approx(expected, rel=1e-10)
        assert binary(1 - p, phi=phi)[0] == pytest.approx(expected, rel=1e-10)


def test_figure_4_the_pull_of_the_exponential_variance_ends_sooner():
    for p, share in ((0.97, 0.6), (0.98, 0.25), (0.985, 0.1), (0.99, 0.01)):
        pulls = {phi: abs(binary(p, phi=phi)[1]) for phi in ("entropy", "variance")}
        assert pulls["variance"] < share * pulls["entropy"]


@pytest.mark.parametrize(("classes", "tau"), [(2, 2), (10, 3), (10, 5), (100, 5), (1000, 5)])
def test_without_the_normalizer_it_decreases_with_certainty(classes, tau):
    grid = [1 / classes + (0.999 - 1 / classes) * i / 100 for i in range(101)]
    values = [adr(path(p, classes), tau=tau, normalizer="none").item() for p in grid]
    assert all(a > b for a, b in pairwise(values))


@pytest.mark.parametrize("phi", ["entropy", "variance"])
def test_a_batch_of_one_is_a_sample(phi):
    logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grads = []
    for scope in ("sample", "batch"):
        leaf = logits.clone().requires_grad_()
        adr(leaf, phi=phi, scope=scope).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1])
    two = torch.cat([logits, 3 * logits])
    assert adr(two, phi=phi, scope="batch") != pytest.approx(adr(two, phi=phi).item(), rel=1e-3)
