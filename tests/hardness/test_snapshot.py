"""Measurements of one look: against NumPy in float64, at extreme logits, and in rows that are not numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs.hardness.snapshot import el2n, energy, entropy, gap, measure_logits, norm, norm_in_class


def loop(z: list[float], y: int) -> dict[str, float]:
    """One row, by the definitions, in Python's floats."""
    e = [math.exp(v) for v in z]
    p = [v / sum(e) for v in e]
    return {
        "predicted": z.index(max(z)),
        "confidence": p[y],
        "top_confidence": max(p),
        "margin": z[y] - math.log(sum(v for k, v in enumerate(e) if k != y)),
        "loss": -math.log(p[y]),
        "el2n": math.sqrt(sum((v - (k == y)) ** 2 for k, v in enumerate(p))),
        "entropy": -sum(v * math.log(v) for v in p),
        "energy": -math.log(sum(e)),
    }


@given(seed=st.integers(0, 2**31), classes=st.integers(2, 8), scale=st.sampled_from([0.1, 2.0, 8.0]))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_matches_a_loop(seed: int, classes: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(6, classes, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (6,), generator=generator)
    got = measure_logits(z, y)
    rows = [loop(row, label) for row, label in zip(z.tolist(), y.tolist(), strict=True)]
    assert set(got) == set(rows[0])
    for name, values in got.items():
        assert values.tolist() == pytest.approx([row[name] for row in rows], rel=1e-9, abs=1e-12)
    gaps = [
        row[label] - max(v for k, v in enumerate(row) if k != label) for row, label in zip(z.tolist(), y.tolist(), strict=True)
    ]
    assert gap(z, y).tolist() == pytest.approx(gaps)
    torch.testing.assert_close(energy(z, kind="max_logit"), -z.amax(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_at_extreme_logits_and_in_float32(dtype: torch.dtype) -> None:
    z = torch.tensor([[1e4, -1e4, 0], [-1e4, 1e4, 1e4], [0, 0, 0], [1e4, 1e4, 1e4]]).to(dtype)
    y = torch.tensor([0, 0, 1, 2])
    got = measure_logits(z, y)
    for name, values in got.items():
        assert values.isfinite().all(), name
        assert values.dtype == (torch.int64 if name == "predicted" else torch.float32)
    torch.testing.assert_close(got["el2n"], torch.tensor([0, math.sqrt(1.5), math.sqrt(6) / 3, math.sqrt(6) / 3]))
    torch.testing.assert_close(entropy(z), torch.tensor([0, math.log(2), math.log(3), math.log(3)]), atol=1e-6, rtol=1e-5)


def test_a_masked_class_counts_for_nothing() -> None:
    z = torch.tensor([[1.0, 2.0, -torch.inf]])
    got = measure_logits(z, torch.tensor([0]))
    for name, values in measure_logits(z[:, :2], torch.tensor([0])).items():
        torch.testing.assert_close(got[name], values)


def test_a_nan_row_is_nan_alone() -> None:
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 0, 1])
    sound = measure_logits(z, y)
    z[2, 0] = torch.nan
    for name, values in measure_logits(z, y).items():
        if name != "predicted":
            assert values.isnan().nonzero().flatten().tolist() == [2]
            torch.testing.assert_close(values[[0, 1, 3, 4]], sound[name][[0, 1, 3, 4]])


def test_norms() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0], [0.0, 1.0]])
    assert norm(x).tolist() == [5, 0, 10, 1]
    assert norm(x.bfloat16()).dtype == torch.float32
    labels = torch.tensor([7, 7, 7, -2])
    assert norm_in_class(norm(x), labels).tolist() == [0.5, 0, 1, 0]
    assert norm_in_class(torch.empty(0), torch.empty(0, dtype=torch.int64)).shape == (0,)


def test_norm_in_class_ignores_a_bad_row() -> None:
    norms = torch.tensor([1.0, torch.nan, 3.0, 2.0, torch.inf, torch.nan])
    got = norm_in_class(norms, torch.tensor([0, 0, 0, 0, 0, 1])).numpy()
    np.testing.assert_array_equal(got, [0, np.nan, 1, 0.5, np.nan, np.nan])


def test_no_gradient_and_errors() -> None:
    z = torch.zeros(2, 3, requires_grad=True)
    assert not any(values.requires_grad for values in measure_logits(z, torch.tensor([0, 1])).values())
    with pytest.raises(ValueError, match="kind must be"):
        energy(z, kind="dark")
    with pytest.raises(ValueError, match=r"labels\[1\] is 3, but logits have 3 classes"):
        el2n(z, torch.tensor([0, 3]))
