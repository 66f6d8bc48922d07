"""Angles: accuracy over the whole range, gradients where there is one and 0 where there is none, extreme lengths."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs.angle import angle, angles, cosines, products, unit

CLOSE = 3e-7  # radians, for float32: π is not known better than 9e-8 there
PLACES = [0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.45, 1.0, math.pi / 2]
HALF = [torch.bfloat16, torch.float16]


def pairs(theta: float, dim: int, n: int = 32, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs of float32 vectors of many lengths at about the angle theta."""
    generator = torch.Generator().manual_seed(seed)
    a, r = torch.randn(2, n, dim, generator=generator, dtype=torch.float64)
    a = a / a.norm(dim=1, keepdim=True)
    r = r - (r * a).sum(1, keepdim=True) * a
    b = math.cos(theta) * a + math.sin(theta) * r / r.norm(dim=1, keepdim=True)
    lengths = 10 ** (4 * torch.rand(2, n, 1, generator=generator, dtype=torch.float64) - 2)
    return (lengths[0] * a).float(), (lengths[1] * b).float()


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """arctan2(‖a‖ ‖r‖, a · b) in float64, r what is left of b across a: accurate everywhere for float32 vectors."""
    a, b = a.double(), b.double()
    a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
    along = (a * b).sum(-1)
    return torch.atan2((b - along.unsqueeze(-1) * a).norm(dim=-1), along)


@pytest.mark.parametrize("dim", [2, 3, 64, 2048])
@pytest.mark.parametrize("place", [*PLACES, *(math.pi - p for p in PLACES[:-1])])
def test_accuracy_in_float32(place: float, dim: int) -> None:
    a, b = pairs(place, dim)
    truth = reference(a, b)
    assert (angle(a, b) - truth).abs().max() < CLOSE
    assert (angles(a, b).diagonal() - truth).abs().max() < CLOSE
    assert angle(a, b).dtype == angles(a, b).dtype == torch.float32


def test_arccos_of_a_float32_cosine_is_inaccurate() -> None:
    a, b = pairs(1e-4, 64)
    assert (cosines(a, b).diagonal().clamp(-1, 1).arccos() - reference(a, b)).abs().max() > 1e-5


def test_paired_form_has_relative_accuracy_in_float64() -> None:
    theta = torch.logspace(-15, 0, 30, dtype=torch.float64)
    b = torch.stack([theta.cos(), theta.sin()], 1)
    torch.testing.assert_close(angle(torch.tensor([3.0, 0.0], dtype=torch.float64), b), theta, rtol=1e-12, atol=0)


@given(seed=st.integers(0, 2**31), dim=st.integers(1, 6))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_every_pair_matches_a_loop(seed: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, w = torch.randn(5, dim, generator=generator), torch.randn(4, dim, generator=generator)
    loop = torch.stack([torch.stack([angle(row, column) for column in w]) for row in x])
    torch.testing.assert_close(angles(x, w), loop, atol=CLOSE, rtol=0)
    torch.testing.assert_close(cosines(x, w), loop.cos(), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1e-30, 1e-15, 1.0, 1e15, 1e30, 3e38])
def test_lengths_do_not_matter(length: float, dtype: torch.dtype) -> None:
    x, w = pairs(0.3, 8)
    x = unit(x).to(dtype)
    w = w.to(dtype)
    long = (length * x).requires_grad_()
    torch.testing.assert_close(unit(long), x, atol=1e-6, rtol=0)
    for values, grown in ((angle(x, w), angle(long, w)), (angles(x, w), angles(long, w))):
        torch.testing.assert_close(grown, values, atol=CLOSE, rtol=0)
    slope = torch.autograd.grad(angle(long, w).sum(), long)[0]
    torch.testing.assert_close((slope * length).norm(dim=1), torch.ones(32, dtype=dtype), atol=1e-5, rtol=0)


@pytest.mark.parametrize("value", [0.0, 1e-42])
def test_zero_vectors_are_at_right_angles_and_have_no_gradient(value: float) -> None:
    zero = torch.full((2, 3), value, requires_grad=True)
    other = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], requires_grad=True)
    assert (unit(zero) == 0).all()
    for function in (angle, angles):
        theta = function(zero, other)
        assert torch.equal(theta, torch.full_like(theta, math.pi / 2))
        assert all((grad == 0).all() for grad in torch.autograd.grad(theta.sum(), (zero, other)))
    assert (torch.autograd.grad(unit(zero).sum(), zero)[0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("times", [1.0, 3.3, -1.0, -0.7])
def test_coincident_and_opposite_vectors_have_no_gradient(times: float, dtype: torch.dtype) -> None:
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    w = (times * x).detach().requires_grad_()
    place = 0.0 if times > 0 else math.pi
    for theta in (angle(x, w), angles(x, w).diagonal()):
        torch.testing.assert_close(theta, torch.full_like(theta, place), atol=CLOSE, rtol=0)
        for grad in torch.autograd.grad(theta.sum(), (x, w)):
            assert grad.abs().max() < 1e-6


@pytest.mark.parametrize("place", [1e-3, 0.2, 1.5, 3.0, math.pi - 1e-3])
def test_gradient_is_one_over_the_length_and_orthogonal(place: float) -> None:
    a, b = pairs(place, 16)
    a.requires_grad_()
    for theta in (angle(a, b), angles(a, b).diagonal()):
        grad = torch.autograd.grad(theta.sum(), a)[0]
        torch.testing.assert_close(grad.norm(dim=1), 1 / a.detach().norm(dim=1), rtol=2e-4, atol=0)
        assert ((grad * a).sum(1)).abs().max() < 2e-4


@pytest.mark.parametrize("place", [1e-8, 3e-8, 1e-7, 1e-6, math.pi - 1e-7])
def test_gradient_stays_bounded_next_to_the_ends(place: float) -> None:
    a, b = pairs(place, 16)
    a.requires_grad_()
    for theta in (angle(a, b), angles(a, b).diagonal()):
        assert (torch.autograd.grad(theta.sum(), a)[0] * a.norm(dim=1, keepdim=True)).norm(dim=1).max() < 3


def test_derivatives() -> None:
    generator = torch.Generator().manual_seed(3)
    x, w = (torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for function in (angle, angles, cosines, products, lambda x, w: unit(x) * w):
        assert torch.autograd.gradcheck(function, (x, w))
        assert torch.autograd.gradgradcheck(function, (x, w))


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_is_raised_to_float32(dtype: torch.dtype) -> None:
    x, w = (v.to(dtype) for v in pairs(0.01, 8))
    for function in (angle, angles, cosines, products):
        assert torch.equal(function(x, w), function(x.float(), w.float()))
        assert torch.equal(function(x, w.float()), function(x.float(), w.float()))
    assert unit(x).dtype == torch.float32


def test_autocast_changes_nothing() -> None:
    x, w = pairs(0.01, 8)
    for function in (angle, angles, cosines, products):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = function(x, w)
        assert torch.equal(inside, function(x, w))


def test_compiles_without_a_graph_break() -> None:
    torch._dynamo.reset()
    x, w = pairs(0.01, 8)
    x.requires_grad_()
    for function in (unit, lambda x: angle(x, w), lambda x: angles(x, w), lambda x: cosines(x, w)):
        value = torch.compile(function, fullgraph=True, backend="eager")(x)
        torch.testing.assert_close(value, function(x))
        torch.testing.assert_close(torch.autograd.grad(value.sum(), x), torch.autograd.grad(function(x).sum(), x))


def test_broadcasting_empty_batches_and_meta() -> None:
    x, w = torch.randn(5, 1, 3), torch.randn(4, 3)
    torch.testing.assert_close(angle(x, w), angles(x.squeeze(1), w), atol=CLOSE, rtol=0)
    assert angles(torch.randn(0, 3), w).shape == (0, 4)
    assert angle(torch.randn(0, 3), torch.randn(0, 3)).shape == (0,)
    assert angles(torch.empty(5, 3, device="meta"), w.to("meta")).shape == (5, 4)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_row_is_nan_and_alone(bad: float) -> None:
    x, w = pairs(1.0, 3, n=4)
    x[1, 2] = bad
    assert angle(x, w).isnan().tolist() == [False, True, False, False]
    assert angles(x, w).isnan().all(1).tolist() == [False, True, False, False]
    assert angles(x, w).isnan().any(1).tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: unit(torch.ones(2, 3).long()), "x must be floating point, got torch.int64"),
        (lambda: unit(torch.tensor(1.0)), "x must hold vectors along its last dimension"),
        (lambda: angle(torch.ones(2, 3), torch.ones(2, 4)), r"a and b must have the same last dimension, got \(2, 3\)"),
        (lambda: angles(torch.ones(2, 3), torch.ones(4, 2)), r"got features \(2, 3\) and weight \(4, 2\)"),
        (lambda: cosines(torch.ones(3), torch.ones(4, 3)), r"features must have shape \(N, D\)"),
        (lambda: products(torch.ones(2, 3), torch.ones(4, 3).long()), "weight must be floating point"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
