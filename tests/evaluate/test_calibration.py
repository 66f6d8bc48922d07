"""Calibration: against a loop and torchmetrics, at the edges of bins, and the temperature against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from mohs._core.errors import DataError
from mohs.evaluate.calibration import brier, ece, fit_temperature, reliability


def drawn(n: int = 400, classes: int = 5, scale: float = 3.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(n, classes, generator=generator)
    return z, torch.multinomial((z / 2).softmax(1), 1, generator=generator).squeeze(1)


def loop_ece(probs: list[list[float]], labels: list[int], bins: int) -> float:
    groups: dict[int, list[tuple[float, bool]]] = {}
    for row, y in zip(probs, labels, strict=True):
        top = max(row)
        at = next(b for b in range(bins) if top <= (b + 1) / bins + 1e-12)
        groups.setdefault(at, []).append((top, row.index(top) == y))
    total = 0.0
    for group in groups.values():
        confidence, accuracy = (sum(values) / len(group) for values in zip(*group, strict=True))
        total += len(group) / len(labels) * abs(accuracy - confidence)
    return total


@given(seed=st.integers(0, 2**31), bins=st.sampled_from([1, 10, 15]), n=st.integers(1, 40))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_ece_matches_a_loop(seed: int, bins: int, n: int) -> None:
    z, y = drawn(n, seed=seed)
    probs = z.double().softmax(1)
    assert ece(probs, y, bins) == pytest.approx(loop_ece(probs.tolist(), y.tolist(), bins), abs=1e-9)


def test_matches_torchmetrics() -> None:
    from torchmetrics.functional.classification import multiclass_calibration_error

    z, y = drawn()
    assert ece(z.softmax(1), y) == pytest.approx(float(multiclass_calibration_error(z.softmax(1), y, 5, 15, "l1")), abs=1e-5)


def test_brier_by_its_definition() -> None:
    z, y = drawn()
    probs = z.double().softmax(1).numpy()
    hot = np.eye(5)[y.numpy()]
    assert brier(probs, y) == pytest.approx(((probs - hot) ** 2).sum(1).mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bins_include_their_upper_edge(dtype: torch.dtype) -> None:
    p = torch.tensor([0.1, 0.2, 0.3, 0.6, 0.7, 1.0, 0.0], dtype=dtype)
    found = reliability(p, torch.ones(7, dtype=torch.long), 10)
    assert (found.share * 7).round().tolist() == [2, 1, 1, 0, 0, 1, 1, 0, 0, 1]
    assert found.confidence[0] == pytest.approx(0.05)
    assert found.accuracy[3].isnan()


def test_an_events_probability() -> None:
    p, y = [0.9, 0.9, 0.2, 0.2], [1, 0, 0, 0]
    assert ece(p, y, 10) == pytest.approx((0.4 + 0.2) / 2)
    assert brier(p, y) == pytest.approx((0.01 + 0.81 + 0.04 + 0.04) / 4)


def test_equal_mass_bins_hold_equal_numbers_and_ignore_order() -> None:
    z, y = drawn(600)
    probs = z.double().softmax(1)
    found = reliability(probs, y, 6, binning="mass")
    assert found.share.tolist() == pytest.approx([1 / 6] * 6)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(1))
    assert ece(probs[order], y[order], 6, binning="mass") == pytest.approx(ece(probs, y, 6, binning="mass"))
    same = reliability(torch.full((10,), 0.5), torch.arange(10) % 2, 4, binning="mass")
    assert same.share.sum() == 1
    assert same.share.max() == 1  # equal confidences stay together
    assert ece(torch.full((10,), 0.5), torch.arange(10) % 2, 4, binning="mass") == 0


def test_temperature_matches_scipy_and_improves_calibration() -> None:
    from scipy.optimize import minimize_scalar

    z, y = drawn(2000)
    best = minimize_scalar(lambda t: float(cross_entropy(z.double() / t, y)), bounds=(0.1, 10), method="bounded")
    found = fit_temperature(z, y)
    assert found == pytest.approx(best.x, abs=1e-3)
    assert found == pytest.approx(2, abs=0.2)  # labels were drawn at 2
    assert ece((z / found).softmax(1), y) < ece(z.softmax(1), y) / 3
    assert fit_temperature(z * 1e3, y) == pytest.approx(100)  # beyond what is sought
    assert fit_temperature(torch.eye(3), torch.arange(3)) == pytest.approx(0.01)  # all right: the surer the better


def test_what_is_refused() -> None:
    z, y = drawn(4)
    p = z.softmax(1)
    with pytest.raises(DataError, match=r"probs\[\d\] is outside 0..1: pass probabilities, such as"):
        ece(z, y)
    with pytest.raises(DataError, match=r"probs\[0\] sums to 0.5, not 1"):
        ece(p / 2, y)
    with pytest.raises(DataError, match=r"probs\[2\] holds NaN"):
        ece(p.index_fill(0, torch.tensor([2]), torch.nan), y)
    with pytest.raises(DataError, match=r"labels\[1\] is 9, but there are 5 classes"):
        brier(p, torch.tensor([0, 9, 1, 1]))
    with pytest.raises(DataError, match=r"probs holds no rows"):
        brier(p[:0], y[:0])
    with pytest.raises(ValueError, match=r"labels must have shape \(4,\)"):
        brier(p, y[:3])
    with pytest.raises(ValueError, match=r"labels must be integer class indices, got torch.float32"):
        brier(p, y.float())
    with pytest.raises(ValueError, match=r"bins must be an integer of at least 1, got 0"):
        ece(p, y, 0)
    with pytest.raises(ValueError, match=r"binning must be one of width, mass, got 'area'"):
        ece(p, y, binning="area")
    with pytest.raises(ValueError, match=r"probs must have shape \(N,\) or \(N, K\), got"):
        ece(p[None], y)
    with pytest.raises(ValueError, match=r"logits must have shape \(N, K\)"):
        fit_temperature(y.float(), y)
