from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import mohs

P = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)


def test_any_callable_on_logits() -> None:
    for reduction in ("mean", "sum", "none"):
        torch.testing.assert_close(mohs.emphasis(nn.CrossEntropyLoss(reduction=reduction), P), 1 - P)
    torch.testing.assert_close(mohs.emphasis(lambda z, y: nn.functional.cross_entropy(z, y) * 3, P), 3 * (1 - P))


def test_a_callable_and_its_curve_agree() -> None:
    loss = mohs.EncouragingLoss(log_end=0.5)
    torch.testing.assert_close(mohs.emphasis(loss, P), mohs.emphasis(lambda z, y: loss(z, y), P))


def test_shapes_and_ends() -> None:
    assert mohs.emphasis(mohs.CrossEntropyLoss(), 0.25).item() == pytest.approx(0.75)
    assert mohs.emphasis(mohs.FocalLoss(), torch.rand(2, 3)).shape == (2, 3)
    assert mohs.emphasis(mohs.MeanSquaredErrorLoss(), torch.rand(0)).shape == (0,)
    for name, loss in mohs.LOSSES.items():
        if hasattr(loss, "curve"):
            assert mohs.emphasis(mohs.create_loss(name), torch.tensor([0.0, 1.0])).isfinite().all()
    with torch.no_grad():
        assert mohs.emphasis(mohs.CrossEntropyLoss(), 0.5) == 0.5


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
def test_p_must_be_a_probability(p: float) -> None:
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\], got"):
        mohs.emphasis(mohs.CrossEntropyLoss(), torch.tensor([0.5, p]))


def test_focus() -> None:
    assert mohs.focus(mohs.CrossEntropyLoss()) == 0
    assert mohs.focus(mohs.MeanAbsoluteErrorLoss()) == pytest.approx(0.5, abs=2e-6)
    assert mohs.focus(mohs.GeneralizedCrossEntropyLoss(q=0.7)) == pytest.approx(0.7 / 1.7, abs=2e-6)
    a = -math.log(1e-4)
    assert mohs.focus(mohs.SymmetricCrossEntropyLoss()) == pytest.approx((a - 0.1) / (2 * a), abs=2e-6)
    assert mohs.focus(mohs.EncouragingLoss(log_end=0.75)) == 0  # level up to LE: the smallest p counts
    assert math.isnan(mohs.focus(mohs.EncouragingLoss(log_end=1)))


def test_spread_is_the_population_variance() -> None:
    p = torch.tensor([0.1, 0.4, 0.7])
    w = [0.9, 0.6, 0.3]
    assert mohs.spread(mohs.CrossEntropyLoss(), p) == pytest.approx(sum((x - 0.6) ** 2 for x in w) / 3)
    assert mohs.spread(mohs.CrossEntropyLoss(), p, normalized=True) == pytest.approx(sum((x - 0.6) ** 2 for x in w) / 3 / 1.8**2)
    with pytest.raises(ValueError, match="p is empty"):
        mohs.spread(mohs.CrossEntropyLoss(), torch.tensor([]))


def test_a_name_is_not_a_loss() -> None:
    for function in (mohs.focus, lambda loss: mohs.emphasis(loss, 0.5), lambda loss: mohs.spread(loss, torch.rand(3))):
        with pytest.raises(ValueError, match="loss must be a loss or a callable, got 'gce'; create_loss takes names"):
            function("gce")
