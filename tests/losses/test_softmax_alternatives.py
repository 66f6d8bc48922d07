"""Spherical and Taylor softmax: large logits, sign, shift, and how the two are one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mohs.losses.softmax_alternatives import SphericalLoss, TaylorLoss, log_square, spherical_loss, taylor_loss


def batch(n: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    logits = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(4, (n,), generator=generator)


def test_taylor_is_a_shifted_spherical_loss() -> None:
    logits, labels = batch()
    torch.testing.assert_close(taylor_loss(logits, labels), spherical_loss(1 + logits, labels, eps=1.0))


@pytest.mark.parametrize("function", [spherical_loss, taylor_loss])
@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 1e4), (torch.float32, 1e30), (torch.float64, 1e300), (torch.float16, 6e4)]
)
def test_ratios_of_large_logits(function, dtype: torch.dtype, size: float) -> None:
    shape = torch.tensor([[2, 1, 1, 0], [0, 1, 1, 2], [-2, 1, 1, 0]], dtype=torch.float64)
    logits = (shape * size / 2).to(dtype).requires_grad_()
    values = function(logits, torch.tensor([0, 1, 0]), reduction="none")
    rtol = 1e-3 if size < 1e5 else 1e-5  # Taylor's 1 + z is not yet z there; float32 has log 1e60 to 1e-5
    torch.testing.assert_close(values.tolist(), [math.log(6 / 4), math.log(6), math.log(6 / 4)], rtol=rtol, atol=0)
    (grad,) = torch.autograd.grad(values.sum(), logits)
    assert grad.dtype == dtype
    assert grad.isfinite().all()
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_logit_of_zero_under_large_others(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, 1e4, 1e4]]).to(dtype).requires_grad_()
    exact = 2 * float(logits[0, 1].detach()) ** 2
    value = spherical_loss(logits, torch.tensor([0]), eps=1e-6)
    assert value.item() == pytest.approx(math.log(exact / 1e-6), rel=1e-6)
    assert torch.autograd.grad(value, logits)[0][0, 0] == 0
    value = taylor_loss(logits, torch.tensor([0]))
    assert value.item() == pytest.approx(math.log(exact / 2), rel=1e-4)


def test_all_zero_is_uniform() -> None:
    for function in (spherical_loss, taylor_loss):
        assert function(torch.zeros(1, 4), torch.tensor([2])).item() == pytest.approx(math.log(4))


def test_log_square_keeps_its_digits() -> None:
    z = torch.tensor([0.0, 1e-3, -1e-3, 1.0, 1e18], dtype=torch.float32)
    expected = [math.log(float(x) ** 2 + 1e-6) for x in z.double()]
    torch.testing.assert_close(log_square(z, eps=1e-6).tolist(), expected, rtol=1e-6, atol=1e-6)
    assert log_square(z.half(), eps=1e-6).dtype == torch.float32


def test_spherical_is_blind_to_the_sign_and_taylor_is_not() -> None:
    logits, labels = batch()
    torch.testing.assert_close(spherical_loss(-logits, labels), spherical_loss(logits, labels))
    assert not torch.allclose(taylor_loss(-logits, labels), taylor_loss(logits, labels))


@pytest.mark.parametrize("function", [spherical_loss, taylor_loss])
def test_neither_is_invariant_to_a_shift(function) -> None:
    logits, labels = batch()
    assert not torch.allclose(function(logits + 1, labels), function(logits, labels))


@pytest.mark.parametrize("function", [spherical_loss, taylor_loss])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("column", [0, 1])
def test_nan_and_infinity_make_their_row_nan(function, bad: float, column: int) -> None:
    logits = torch.ones(3, 4)
    logits[1, column] = bad
    assert function(logits, torch.zeros(3).long(), reduction="none").isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("function", [spherical_loss, taylor_loss])
def test_minus_infinity_masks_its_class_as_in_cross_entropy(function) -> None:
    logits, labels = torch.ones(3, 4), torch.zeros(3).long()
    logits[1, 0] = logits[2, 1] = -torch.inf
    value = function(logits, labels, reduction="none")
    assert value[1] == torch.inf  # the label itself is masked
    assert value[2] == pytest.approx(function(torch.ones(1, 3), labels[:1]).item())


def test_the_steepest_gradient_is_one_over_the_root_of_eps() -> None:
    eps = 1e-4
    logits = torch.tensor([[eps**0.5, 1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(spherical_loss(logits, torch.tensor([0]), eps=eps), logits)
    assert grad[0, 0].item() == pytest.approx(-100, rel=0.01)


def test_wrong_settings() -> None:
    for eps in (0.0, -1e-6):
        with pytest.raises(ValueError, match=f"eps must be over 0 .*, got {eps}"):
            SphericalLoss(eps=eps)
    for kind in (SphericalLoss, TaylorLoss):
        with pytest.raises(ValueError, match="label_smoothing is not defined for"):
            kind(label_smoothing=0.1)
    for function in (spherical_loss, taylor_loss):
        with pytest.raises(ValueError, match=r"logits must be floating point, got torch.int64"):
            function(torch.ones(2, 3).long(), torch.zeros(2).long())
