"""AVH and AVC: against float64 loops, what they do not depend on, the cases without an angle, and no (N, K) array."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from mohs.hardness import angular
from mohs.hardness.angular import avc, avh
from mohs.margin import _choose

INTERPRETED = _choose.INTERPRETED


def theta(x: torch.Tensor, w: torch.Tensor) -> float:
    """The angle between two vectors, one pair at a time, in float64."""
    x, w = x.double(), w.double()
    if not x.any() or not w.any():
        return math.pi / 2
    x, w = x / x.norm(), w / w.norm()
    return 2 * math.atan2(float((x - w).norm()), float((x + w).norm()))


def loop_avh(features: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> list[float]:
    rows = [[theta(x, w) for w in weight] for x in features]
    return [row[y] / sum(row) for row, y in zip(rows, labels.tolist(), strict=True)]


def loop_avc(features: torch.Tensor, weight: torch.Tensor) -> list[float]:
    rows = [[math.pi - theta(x, w) for w in weight] for x in features]
    return [max(row) / sum(row) for row in rows]


def data(
    n: int = 40, classes: int = 6, dim: int = 8, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    w = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return x.to(dtype), w.to(dtype), torch.randint(classes, (n,), generator=generator)


@given(seed=st.integers(0, 2**31), classes=st.integers(2, 9), dim=st.integers(3, 9), chunk=st.sampled_from([1, 20, 2**21]))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_matches_a_float64_loop(seed: int, classes: int, dim: int, chunk: int) -> None:
    x, w, y = data(12, classes, dim, seed)
    x[::3] = w[y[::3]] + 1e-3 * x[::3]  # some near their class, where arccos loses digits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(angular, "CHUNK_ENTRIES", chunk)
        for dtype, close in ((torch.float32, 2e-5), (torch.float64, 1e-10)):
            x, w = x.to(dtype), w.to(dtype)
            for got, expected in ((avh(x, w, y), loop_avh(x, w, y)), (avc(x, w), loop_avc(x, w))):
                assert got.dtype == dtype
                torch.testing.assert_close(got.double(), torch.tensor(expected, dtype=torch.float64), atol=close, rtol=0)


def test_float32_is_close_for_examples_near_their_own_class() -> None:
    x, w, y = data(300, 20, 32)
    x = w[y] + torch.logspace(-7, 0, 300).unsqueeze(1) * x
    torch.testing.assert_close(avh(x, w, y).double(), torch.tensor(loop_avh(x, w, y), dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(avc(x, w).double(), torch.tensor(loop_avc(x, w), dtype=torch.float64), atol=1e-6, rtol=0)


def test_on_other_devices_the_result_is_the_same_without_synchronization(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, y = data(300, 20, 32)
    x = w[y] + torch.logspace(-7, 0, 300).unsqueeze(1) * x
    x[5] = 0.0
    here = avh(x, w, y), avc(x, w)
    monkeypatch.setattr(angular, "readable", lambda tensor: False)
    there = avh(x, w, y), avc(x, w)
    torch.testing.assert_close(there, here, atol=1e-6, rtol=0)


def test_probabilities_of_all_classes_sum_to_one() -> None:
    x, w, _ = data(10, 6)
    total = sum(avh(x, w, torch.full((10,), k)) for k in range(6))
    torch.testing.assert_close(total, torch.ones(10), atol=1e-5, rtol=0)
    nearest = torch.stack([avh(x, w, torch.full((10,), k)) for k in range(6)]).argmin(0)
    shares = torch.stack([math.pi - torch.tensor([theta(a, w[k]) for a, k in zip(x, nearest, strict=True)])])
    whole = torch.tensor([sum(math.pi - theta(a, b) for b in w) for a in x])
    torch.testing.assert_close(avc(x, w), (shares[0] / whole).float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1e-25, 1e-6, 1e6, 1e25])
def test_lengths_do_not_matter(length: float) -> None:
    x, w, y = data()
    scale = torch.rand(6, 1, generator=torch.Generator().manual_seed(1)) * length
    for grown in (avh(length * x, w, y), avh(x, scale * w, y), avh(length * x, scale * w, y)):
        torch.testing.assert_close(grown, avh(x, w, y), atol=1e-6, rtol=0)
    torch.testing.assert_close(avc(length * x, scale * w), avc(x, w), atol=1e-6, rtol=0)


def test_equal_angles_and_no_direction_give_one_over_k() -> None:
    for classes in (2, 5):
        corners = torch.eye(classes)
        y = torch.arange(classes)
        torch.testing.assert_close(avh(torch.ones(classes, classes), corners, y), torch.full((classes,), 1 / classes))
        torch.testing.assert_close(avh(torch.zeros(classes, classes), corners, y), torch.full((classes,), 1 / classes))
        torch.testing.assert_close(avc(torch.zeros(classes, classes), corners), torch.full((classes,), 1 / classes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_that_are_all_parallel_give_one_over_k(dtype: torch.dtype) -> None:
    x, _, _ = data(30, dim=512, dtype=dtype)
    for row in x:
        w = row * torch.tensor([[0.1], [1.0], [3.0], [7.7]], dtype=dtype)
        assert avh(row.unsqueeze(0), w, torch.tensor([2])).item() == 0.25
        assert avc(row.unsqueeze(0), -w).item() == 0.25


def test_a_class_without_weights_is_at_a_right_angle() -> None:
    x, w, y = data()
    w[2] = 0.0
    torch.testing.assert_close(avh(x, w, y).double(), torch.tensor(loop_avh(x, w, y), dtype=torch.float64), atol=1e-6, rtol=0)


def test_a_row_that_is_nan_or_infinite_is_nan_alone() -> None:
    x, w, y = data()
    sound = avh(x, w, y), avc(x, w)
    x[3, 1], x[9, 0] = torch.nan, torch.inf
    others = [i for i in range(40) if i not in (3, 9)]
    for got, expected in zip((avh(x, w, y), avc(x, w)), sound, strict=True):
        assert got.isnan().nonzero().flatten().tolist() == [3, 9]
        torch.testing.assert_close(got[others], expected[others])


def test_half_precision_is_raised_and_no_gradient_is_kept() -> None:
    x, w, y = data()
    assert avh(x.bfloat16(), w.half(), y).dtype == torch.float32
    assert not avh(x.requires_grad_(), w.requires_grad_(), y).requires_grad


class Largest(TorchDispatchMode):
    """The most bytes behind any tensor that an operation gave."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.most = max(self.most, tensor.untyped_storage().nbytes())
        return out


def test_no_array_is_larger_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(angular, "CHUNK_ENTRIES", 1000)
    x, w, y = data(2000, 50, 8)
    with Largest() as watched:
        avh(x, w, y)
        avc(x, w)
    assert 4 * 1000 <= watched.most <= 8 * 2000 * 8  # the features are larger than a chunk here; N × K would be 400,000 bytes


def test_errors_name_the_argument() -> None:
    x, w, y = data()
    with pytest.raises(ValueError, match=r"weight must have a row for each of at least 2 classes, got shape \(1, 8\)"):
        avh(x, w[:1], y)
    with pytest.raises(ValueError, match=r"labels\[0\] is 9, but logits have 6 classes"):
        avh(x, w, torch.full((40,), 9))
    with pytest.raises(ValueError, match=r"features must have shape \(N, D\) and weight \(K, D\)"):
        avc(x, w[:, :3])


@pytest.mark.gpu
@pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a GPU or TRITON_INTERPRET=1")
def test_the_kernel_agrees_with_the_plain_version(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(40, 33, generator=generator), torch.randn(7, 33, generator=generator)
    y = torch.randint(7, (40,), generator=generator)
    w[3], x[2] = 0, 0
    x[0], x[1], x[6] = 3 * w[y[0]], -w[y[1]], w[y[6]] + 1e-5
    x[3], x[4] = x[3] * 1e30, x[4] * 1e-30
    x[5, 0], x[7, 3] = torch.nan, torch.inf
    x, w, y = (part.to("cpu" if INTERPRETED else "cuda") for part in (x, w, y))
    ours = avh(x, w, y)
    monkeypatch.setattr(_choose, "ENABLED", False)
    torch.testing.assert_close(ours.double(), avh(x.double(), w.double(), y), atol=1e-7, rtol=0, equal_nan=True)
