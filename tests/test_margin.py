from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.nn.functional import cross_entropy

import mohs
from mohs.margin import all_margins, checked_labels, log_probs, margin, plain_margin, softplus

LOGIT = st.floats(-30, 30)


@given(st.lists(st.lists(LOGIT, min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 2))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_margin_is_the_log_odds(rows: list[list[float]], label: int) -> None:
    logits = torch.tensor(rows, dtype=torch.float64)
    m = margin(logits, torch.full((len(rows),), label))
    for row, value in zip(rows, m.tolist(), strict=True):  # the definition, one example at a time
        others = [z for k, z in enumerate(row) if k != label]
        top = max(others)
        assert value == pytest.approx(row[label] - top - math.log(sum(math.exp(z - top) for z in others)), rel=1e-12, abs=1e-12)


def test_margin_is_accurate_where_the_probability_saturates() -> None:
    logits = torch.tensor([[40.0, 0.0, 0.0], [-40.0, 0.0, 1.0]])
    exact = margin(logits.double(), torch.tensor([0, 0]))
    assert 1 - logits.softmax(1)[0, 0] == 0  # what a plain 1 − p would give
    torch.testing.assert_close(margin(logits, torch.tensor([0, 0])).double(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("classes", [2, 10, 60])
@pytest.mark.parametrize("size", [1.0, 59.0, 61.0, 86.0, 95.0, 1e4])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_margin_and_gradient_have_the_digits_of_float32_at_every_size(classes: int, size: float, sign: float) -> None:
    logits = torch.randn(7, classes, generator=torch.Generator().manual_seed(0))
    logits[3, 0] += sign * size
    labels = torch.zeros(7, dtype=torch.long)
    found, exact = (logits.to(dtype, copy=True).requires_grad_() for dtype in (torch.float32, torch.float64))
    values = [margin(z, labels) for z in (found, exact)]
    torch.testing.assert_close(values[0].double(), values[1], rtol=1e-6, atol=1e-6)
    for m in values:
        m.sum().backward()
    torch.testing.assert_close(found.grad.double(), exact.grad, rtol=1e-5, atol=1e-30)


def test_gradient_is_one_hot_minus_the_others_softmax() -> None:
    logits = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    margin(logits, labels).sum().backward()
    for row, grad, y in zip(logits.detach(), logits.grad, labels, strict=True):
        others = torch.arange(5) != y
        assert grad[y] == 1
        torch.testing.assert_close(grad[others], -row[others].softmax(0))


def test_masked_classes_and_bad_rows_behave_as_in_cross_entropy() -> None:
    inf, nan = torch.inf, torch.nan
    logits = torch.tensor(
        [[0, -inf, 1], [0, -inf, -inf], [-inf, 0, 1], [-inf, -inf, -inf], [inf, 0, 0], [0, inf, 0], [nan, 0, 0], [0, 0, nan]]
    )
    labels = torch.zeros(8, dtype=torch.long)
    ours, theirs = softplus(-margin(logits, labels)), cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    logits = logits[:2].requires_grad_()
    margin(logits, labels[:2]).sum().backward()
    assert logits.grad.isfinite().all()


def test_all_margins_is_margin_of_each_class() -> None:
    logits = torch.randn(7, 4, 2, dtype=torch.float64) * 20
    every = all_margins(logits)
    for k in range(4):
        torch.testing.assert_close(every[:, k], margin(logits, torch.full((7, 2), k)))
    far = torch.tensor([[1e4, -1e4, 0.0]])
    torch.testing.assert_close(all_margins(far), torch.tensor([[1e4, -2e4, -1e4]]))
    assert torch.autograd.gradcheck(all_margins, torch.randn(3, 4, dtype=torch.float64, requires_grad=True))


def test_ignored_labels_read_class_zero() -> None:
    logits = torch.randn(2, 3)
    assert torch.equal(margin(logits, torch.tensor([-100, 1])), margin(logits, torch.tensor([0, 1])))
    assert checked_labels(logits, torch.tensor([7, 1]), ignore_index=7).tolist() == [0, 1]


def test_log_probs_raises_half_precision() -> None:
    logits = torch.randn(3, 5).half()
    assert log_probs(logits).dtype == torch.float32
    assert log_probs(logits.double()).dtype == torch.float64


def test_logits_are_unchanged() -> None:
    logits = torch.randn(3, 5)
    before = logits.clone()
    margin(logits, torch.tensor([0, 1, 2]))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("x", [-700.0, -45.5, -20.5, -1.0, 0.0, 1.0, 19.5, 20.5, 25.0, 36.0, 39.9, 40.1, 700.0])
def test_softplus_has_all_digits_of_float64(x: float) -> None:
    with localcontext() as context:
        context.prec = 400  # digits: e⁻⁷⁰⁰ counts
        exact = float((1 + Decimal(x).exp()).ln())
    value = torch.tensor(x, dtype=torch.float64)
    assert softplus(value).item() == pytest.approx(exact, rel=4e-16, abs=0)
    logits = torch.tensor([[0.0, x]], dtype=torch.float64)  # of margin −x
    for loss in (mohs.CrossEntropyLoss(), mohs.FocalLoss(gamma=0.0), mohs.GeneralizedCrossEntropyLoss(q=0.0)):
        assert loss(logits, torch.tensor([0])).item() == pytest.approx(exact, rel=1e-15, abs=0)


def test_the_default_threshold_of_torch_is_not_enough() -> None:
    x = torch.tensor(20.5, dtype=torch.float64)
    assert functional.softplus(x) == x
    assert softplus(x) > x


@pytest.mark.parametrize("classes", [2, 5, 47, 48, 300])  # both ways of the CPU, which change over at 48 classes
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_cpu_agrees_with_the_plain_version(classes: int, scale: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = (scale * torch.randn(20, classes, 2, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
    labels = torch.randint(classes, (20, 2), generator=generator)
    labels[3, 1] = -100
    quick, plain = margin(logits, labels), plain_margin(logits, labels)
    torch.testing.assert_close(
        quick, plain, rtol=1e-12 if dtype == torch.float64 else 1e-6, atol=1e-6 * scale if dtype == torch.float32 else 1e-13
    )
    g = torch.randn(20, 2, generator=generator, dtype=torch.float64).to(dtype)
    (ours,), (theirs,) = torch.autograd.grad(quick, logits, g), torch.autograd.grad(plain, logits, g)
    torch.testing.assert_close(ours, theirs)
