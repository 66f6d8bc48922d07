"""NormFace, CosFace, ArcFace, SphereFace and L-Softmax against their closed forms, one example and class at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mohs.heads.arcface import arcface, margin_cosine
from mohs.heads.cosface import cosface
from mohs.heads.lsoftmax import lsoftmax, lsoftmax_strength
from mohs.heads.normface import normface
from mohs.heads.sphereface import psi, sphereface, sphereface_strength

THETA = torch.linspace(0, math.pi, 1001, dtype=torch.float64)
POLYNOMIALS = {
    1: lambda c: c,
    2: lambda c: 2 * c**2 - 1,
    3: lambda c: 4 * c**3 - 3 * c,
    4: lambda c: 8 * c**4 - 8 * c**2 + 1,
}


def batch(n: int = 40, dim: int = 3, classes: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """In 3 dimensions many labels are at large angles, so that every branch is taken."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(n, dim, generator=generator, dtype=torch.float64)
    w = 0.7 * torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return x, w, torch.randint(classes, (n,), generator=generator)


def loop(x: torch.Tensor, w: torch.Tensor, labels: torch.Tensor, target, other) -> torch.Tensor:
    """target and other are functions of (cos θ, ‖x‖, ‖w_k‖)."""
    logits = np.empty((len(x), len(w)))
    for i, row in enumerate(x.numpy()):
        for k, column in enumerate(w.numpy()):
            lengths = np.linalg.norm(row), np.linalg.norm(column)
            logits[i, k] = (target if k == labels[i] else other)(row @ column / (lengths[0] * lengths[1]), *lengths)
    return torch.from_numpy(logits)


def piecewise(c: float, m: int) -> float:
    """ψ by its definition: on [kπ/m, (k + 1)π/m] it is (−1)^k cos(mθ) − 2k, cos(mθ) as a polynomial of cos θ."""
    for k in range(m):
        if math.cos((k + 1) * math.pi / m) <= c <= math.cos(k * math.pi / m) + 1e-15:
            return (-1) ** k * POLYNOMIALS[m](c) - 2 * k
    raise AssertionError(c)


def test_normface() -> None:
    x, w, labels = batch()
    expected = loop(x, w, labels, lambda c, *_: 30 * c, lambda c, *_: 30 * c)
    torch.testing.assert_close(normface(x, w, scale=30.0), expected)


@pytest.mark.parametrize("scale", [5.0, 20.0])
def test_normface_proposition_2(scale: float) -> None:
    corners = torch.eye(10, dtype=torch.float64) - 0.1
    p = normface(corners, corners, scale=scale).softmax(1).diagonal()
    torch.testing.assert_close(p, torch.full_like(p, 1 / (1 + 9 * math.exp(-scale * 10 / 9))))


def test_cosface_equation_4() -> None:
    x, w, labels = batch()
    expected = loop(x, w, labels, lambda c, *_: 64 * (c - 0.35), lambda c, *_: 64 * c)
    torch.testing.assert_close(cosface(x, w, labels, scale=64.0, margin=0.35), expected)


@pytest.mark.parametrize("margin", [0.1, 0.5, 1.0])
def test_arcface_equation_3_and_its_fallback(margin: float) -> None:
    x, w, labels = batch()
    taken = set()

    def target(c: float, *_: float) -> float:
        inside = c > math.cos(math.pi - margin)
        taken.add(inside)
        if inside:
            return 64 * (c * math.cos(margin) - math.sqrt(1 - c * c) * math.sin(margin))
        return 64 * (c - margin * math.sin(math.pi - margin))

    expected = loop(x, w, labels, target, lambda c, *_: 64 * c)
    torch.testing.assert_close(arcface(x, w, labels, scale=64.0, margin=margin), expected)
    assert taken == ({True} if margin == 0.1 else {True, False})


@pytest.mark.parametrize("margin", [0.0, 0.2, 0.5, 1.0])
def test_arcface_target_decreases_throughout(margin: float) -> None:
    values = margin_cosine(THETA, margin=margin)
    assert (values.diff() < 0).all()
    last, first = (margin_cosine(torch.tensor(math.pi - margin + d, dtype=torch.float64), margin=margin) for d in (-1e-9, 1e-9))
    assert float(last - first) == pytest.approx(math.cos(margin) + margin * math.sin(margin) - 1, abs=1e-8)


def test_arcface_gradient_is_bounded_where_the_square_root_has_none() -> None:
    w = torch.eye(3, dtype=torch.float64)
    x = torch.tensor([[1.0, 0, 0], [1.0, 1e-12, 0], [1.0, 1e-6, 0], [-1.0, 0, 0], [-1.0, 1e-9, 0]], dtype=torch.float64)
    x.requires_grad_()
    target = arcface(x, w, torch.zeros(5, dtype=torch.long), scale=1.0, margin=0.5)[:, 0]
    lengths = torch.autograd.grad(target.sum(), x)[0].norm(dim=1)
    expected = torch.tensor([0.0, math.sin(0.5), math.sin(0.5), 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(lengths, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("margin", [1, 2, 3, 4])
def test_psi_is_its_piecewise_definition(margin: int) -> None:
    expected = torch.tensor([piecewise(math.cos(t), margin) for t in THETA.tolist()], dtype=torch.float64)
    torch.testing.assert_close(psi(THETA, margin=margin), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("margin", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_psi_decreases_continuously_from_1(margin: int, dtype: torch.dtype) -> None:
    values = psi(THETA.to(dtype), margin=margin)
    assert values[0] == 1
    assert float(values[-1]) == pytest.approx(1 - 2 * margin)
    assert (values.diff() <= 1e-6).all()
    assert values.diff().abs().max() < 1.1 * margin * math.pi / 1000


@pytest.mark.parametrize("margin", [1, 2, 3, 4])
@pytest.mark.parametrize("strength", [1.0, 1 / 6])
def test_sphereface_equation_7(margin: int, strength: float) -> None:
    x, w, labels = batch()

    def target(c: float, x_length: float, _: float) -> float:
        lam = 1 / strength - 1
        return (lam * x_length * c + x_length * piecewise(c, margin)) / (1 + lam)

    expected = loop(x, w, labels, target, lambda c, x_length, _: x_length * c)
    torch.testing.assert_close(sphereface(x, w, labels, margin=margin, strength=strength), expected)


@pytest.mark.parametrize("margin", [1, 2, 3, 4])
@pytest.mark.parametrize("strength", [1.0, 0.3])
def test_lsoftmax_equations_4_to_6(margin: int, strength: float) -> None:
    x, w, labels = batch()

    def target(c: float, x_length: float, w_length: float) -> float:
        lam = 1 / strength - 1
        return x_length * w_length * (lam * c + piecewise(c, margin)) / (1 + lam)

    expected = loop(x, w, labels, target, lambda c, x_length, w_length: x_length * w_length * c)
    torch.testing.assert_close(lsoftmax(x, w, labels, margin=margin, strength=strength), expected)


def test_neutral_margins() -> None:
    x, w, labels = batch()
    torch.testing.assert_close(cosface(x, w, labels, scale=9.0, margin=0.0), normface(x, w, scale=9.0))
    torch.testing.assert_close(arcface(x, w, labels, scale=9.0, margin=0.0), normface(x, w, scale=9.0))
    torch.testing.assert_close(lsoftmax(x, w, labels, margin=1), x @ w.T)
    torch.testing.assert_close(sphereface(x, w, labels, margin=1), x @ (w / w.norm(dim=1, keepdim=True)).T)


def test_published_schedules() -> None:
    for step in (0, 10, 1000, 2989, 2990, 100_000):
        assert 1 / sphereface_strength(step) - 1 == pytest.approx(max(5, 1500 / (1 + 0.1 * step)))
    assert sphereface_strength(2991) == pytest.approx(1 / 6)
    lam = 100.0
    for step in range(500):
        assert lsoftmax_strength(step) == pytest.approx(1 / (1 + lam))
        lam *= 0.99
    assert lsoftmax_strength(10_000) == pytest.approx(1.0)
