"""Each curve with its emphasis against the curve of the loss file and its derivative by autograd."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from mohs.losses._numerics.emphases import EMPHASES, with_emphasis
from mohs.losses.cross_entropy import cross_entropy
from mohs.losses.encouraging import encouraging
from mohs.losses.focal import focal
from mohs.losses.gce import gce
from mohs.losses.gradient_rescaling import gradient_rescaling
from mohs.losses.mae import mae
from mohs.losses.symmetric import symmetric
from mohs.losses.truncated_gce import truncated_gce


def name_of(curve: Any) -> str:
    """A name without addresses, the same in every process."""
    given = getattr(curve, "keywords", {})
    return "-".join([getattr(curve, "func", curve).__name__, *(f"{key}={value}" for key, value in given.items())])


CURVES = [
    cross_entropy,
    mae,
    *(partial(gce, q=q) for q in (0.0, 0.7, 1.0)),
    *(partial(truncated_gce, q=q, threshold=k) for q, k in ((0.7, 0.5), (0.0, 0.1))),
    *(partial(focal, gamma=gamma) for gamma in (0.0, 0.5, 2.0)),
    *(partial(symmetric, alpha=a, beta=b) for a, b in ((0.1, 1.0), (6.0, 0.1), (1.0, 0.0))),
    encouraging,
    *(partial(encouraging, log_end=1.0, eps=eps) for eps in (0.0, 1e-5)),
    *(partial(encouraging, log_end=1.0, start=0.5, eps=eps) for eps in (0.0, 1e-2)),
    *(partial(encouraging, log_end=log_end, bonus=0.5) for log_end in (0.0, 0.3)),
    partial(encouraging, log_end=0.9, eps=0.3),
    *(
        partial(gradient_rescaling, transform=g, lam=lam, eps=eps)
        for g in ("exp", "identity")
        for lam, eps in ((0.5, 1e-6), (0, 0))
    ),
]
MARGINS = torch.cat([torch.linspace(-80, 80, 397, dtype=torch.float64), torch.tensor([-1e4, 1e4], dtype=torch.float64)])


@pytest.mark.parametrize("curve", CURVES, ids=name_of)
def test_value_and_derivative(curve: Any) -> None:
    value, emphasis = with_emphasis(curve)(MARGINS)
    m = MARGINS.clone().requires_grad_()
    exact = curve(m)
    (slope,) = torch.autograd.grad(exact.sum(), m)
    torch.testing.assert_close(value, exact.detach(), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(emphasis, -slope, rtol=1e-12, atol=2e-15)  # autograd's own rounding error: 1 − p is a difference


@pytest.mark.parametrize("curve", CURVES, ids=name_of)
def test_float32_has_the_digits_of_float32(curve: Any) -> None:
    m = MARGINS.float()
    for found, exact in zip(with_emphasis(curve)(m), with_emphasis(curve)(m.double()), strict=True):
        torch.testing.assert_close(found.double(), exact, rtol=2e-5, atol=1e-7 if "encouraging" in name_of(curve) else 1e-37)


@pytest.mark.parametrize("curve", CURVES, ids=name_of)
def test_masked_classes_have_the_value_of_the_curve(curve: Any) -> None:
    m = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)  # the label is masked; all other classes are
    exact = curve(m)
    known = ~exact.isnan()
    torch.testing.assert_close(with_emphasis(curve)(m)[0][known], exact[known])


@pytest.mark.parametrize("curve", CURVES, ids=name_of)
def test_the_margins_are_not_changed(curve: Any) -> None:
    m = MARGINS.clone()
    with_emphasis(curve)(m)
    assert torch.equal(m, MARGINS)


def test_every_curve_is_tested_and_others_have_none() -> None:
    assert {getattr(curve, "func", curve).__name__ for curve in CURVES} == set(EMPHASES)
    assert with_emphasis(lambda m: m) is None
    assert with_emphasis(partial(torch.clamp, min=0.0)) is None
