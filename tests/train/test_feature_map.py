from __future__ import annotations

import numpy as np
import pytest
import torch

from mohs._core.errors import DataError
from mohs.train.feature_map import MappedFeatures, feature_map, feature_scale, kernel, moments, row_keys

X = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)) * 3 + 7


def test_kernel_is_the_formula() -> None:
    k = kernel(X[:6].double(), X[10:14].double(), 20.0)
    for i in range(6):
        for j in range(4):
            d2 = float((X[i].double() - X[10 + j].double()).square().sum())
            assert float(k[i, j]) == pytest.approx(np.exp(-2 * d2 / 20))


def test_units_reproduce_the_kernel() -> None:
    """With every row a landmark, products of the units are the kernel again, up to centering and size."""
    made = feature_map(X, landmarks=60, seed=1)
    raw = made(X) + made.center
    scaled = (X.double() - made.mean) / made.scale
    gram = kernel(scaled, scaled, made.reach)
    size = float(gram[0, 0] / (raw[0] @ raw[0]))
    assert torch.allclose(raw @ raw.T * size, gram, atol=2e-2)
    assert made(X).mean(0).abs().max() < 1e-8
    assert float(made(X).square().mean()) == pytest.approx(1)


def test_moments_with_weights_are_those_of_repeated_rows() -> None:
    weight = torch.arange(60) % 4
    mean, deviation = moments(X, weight.double())
    repeated = X.double().repeat_interleave(weight, 0)
    assert torch.allclose(mean, repeated.mean(0))
    assert torch.allclose(deviation, repeated.std(0, correction=0))


def test_scale_is_shared_unless_units_differ() -> None:
    alike = feature_scale(torch.tensor([1.0, 2.0, 0.0, 3.0]))
    assert len(alike.unique()) == 1
    own = feature_scale(torch.tensor([1.0, 2.0, 0.0, 3000.0]))
    assert own.tolist() == [1, 2, 1, 3000]
    assert feature_scale(torch.zeros(3)).tolist() == [1, 1, 1]


def test_constant_features_and_single_rows_stay_finite() -> None:
    for x in (torch.full((9, 3), 1 / 3), X[:1], X[:2]):
        assert feature_map(x, landmarks=4)(x).isfinite().all()


def test_more_landmarks_than_rows_and_precision() -> None:
    made = feature_map(X, landmarks=500)
    assert made.width == 60
    assert made(X).dtype == torch.float64
    assert feature_map(X, dtype=torch.float32)(X).dtype == torch.float32


@pytest.mark.parametrize("limits", [(10**9, 10**9), (0, 10**9), (0, 0)])
def test_mapped_rows_do_not_depend_on_caching(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MappedFeatures, "FULL", limits[0])
    monkeypatch.setattr(MappedFeatures, "HALF", limits[1])
    made = feature_map(X, landmarks=16, dtype=torch.float32)
    places = torch.tensor([5, 0, 59])
    frozen = X.numpy().copy()
    frozen.setflags(write=False)
    for features in (X, frozen):
        mapped = MappedFeatures(features, made)
        assert torch.allclose(mapped[places], made(X)[places], atol=3e-3)
        assert mapped[places].dtype == torch.float32
        assert len(mapped) == 60


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.ones(3), r"shape \(N, D\) with N and D at least 1, got \(3,\)"),
        (torch.ones(0, 3), "N and D at least 1"),
        ([[1.0]], "got list"),
        (torch.tensor([[1.0], [torch.nan]]), r"features\[1\] holds NaN or infinity"),
        (torch.ones(2, 2, dtype=torch.complex64), "real numbers"),
    ],
)
def test_bad_features(features: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        feature_map(features)
    with pytest.raises(ValueError, match="landmarks must be at least 0, got -1"):
        feature_map(X, landmarks=-1)


def test_landmarks_do_not_depend_on_the_order_of_rows_or_on_copies() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-2, 3, (60, 3), generator=generator).double()  # some rows occur more than once
    weight = torch.randint(1, 4, (60,), generator=generator)
    order = torch.randperm(int(weight.sum()), generator=generator)
    weighted = feature_map(x, landmarks=12, sample_weight=weight.double())
    repeated = feature_map(x.repeat_interleave(weight, 0)[order], landmarks=12)
    torch.testing.assert_close(weighted(x), repeated(x))
    assert len(torch.unique(weighted.landmarks, dim=0)) == 12
    other = feature_map(x, landmarks=12, sample_weight=weight.double(), seed=1)
    assert not torch.equal(other.landmarks, weighted.landmarks)


def test_hashes_of_rows_tell_nearly_equal_rows_apart() -> None:
    small = torch.cartesian_prod(*[torch.arange(8.0)] * 5)  # small integers differ in few bits
    keys = row_keys(small.double().numpy(), 0)
    assert len(set(keys.tolist())) == 8**5
    assert abs((keys % 2).mean() - 0.5) < 0.02
    signed = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])
    assert row_keys(signed, 0)[0] == row_keys(signed, 0)[1] != row_keys(signed, 0)[2]
