"""AMC and the Euclidean contrastive loss: against an obvious loop, and at the edges."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mohs.angle import angle
from mohs.losses._numerics.pairs import pair_angles
from mohs.losses.amc import AMC, EuclideanContrastive, amc, euclidean_contrastive


def batch(n: int, dim: int = 4, classes: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator, dtype=dtype), torch.randint(classes, (n,), generator=generator)


def loop(features: Tensor, labels: Tensor, distance, margin: float) -> Tensor:
    """One pair at a time."""
    n = len(labels) // 2
    total = 0 * features.sum()
    for k in range(n):
        d = distance(features[k], features[k + n])
        total = total + (d**2 if labels[k] == labels[k + n] else max(margin - d, 0 * d) ** 2)
    return total / n


def arc(a: Tensor, b: Tensor) -> Tensor:
    return torch.arccos(a @ b / (a.norm() * b.norm()))


def gradient(f, features: Tensor) -> Tensor:
    leaf = features.clone().requires_grad_()
    f(leaf).backward()
    return leaf.grad


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(2, 17), st.integers(2, 6), st.integers(1, 4), st.integers(0, 10**6), st.floats(0, math.pi))
def test_amc_is_the_loop(n, dim, classes, seed, margin):
    features, labels = batch(n, dim, classes, seed)
    torch.testing.assert_close(amc(features, labels, margin=margin), loop(features, labels, arc, margin))
    torch.testing.assert_close(
        gradient(lambda x: amc(x, labels, margin=margin), features), gradient(lambda x: loop(x, labels, arc, margin), features)
    )


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(2, 17), st.integers(1, 6), st.integers(0, 10**6), st.floats(0, 5), st.sampled_from(["sum", "mean"]))
def test_euclidean_contrastive_matches_a_loop(n, dim, seed, margin, over):
    features, labels = batch(n, dim, 2, seed)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return torch.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / (1 if over == "sum" else dim))

    def ours(x: Tensor) -> Tensor:
        return euclidean_contrastive(x, labels, margin=margin, over=over)

    torch.testing.assert_close(ours(features), loop(features, labels, distance, margin))
    torch.testing.assert_close(gradient(ours, features), gradient(lambda x: loop(x, labels, distance, margin), features))


def test_first_and_second_derivatives():
    features, labels = batch(8)
    features.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: amc(x, labels, margin=3.0), features)
    assert torch.autograd.gradgradcheck(lambda x: amc(x, labels, margin=3.0), features)
    assert torch.autograd.gradgradcheck(lambda x: euclidean_contrastive(x, labels, margin=9.0), features)


def edges(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Pairs at random, small and extreme scales, nearly coincident, nearly opposite, and the special ones."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(60, 8, generator=generator, dtype=torch.float64)
    b = torch.randn(60, 8, generator=generator, dtype=torch.float64)
    b[:10] = a[:10] + 1e-3 * b[:10]
    b[10:20] = -a[10:20] + 1e-3 * b[10:20]
    a[20:25], b[25:30], a[30:35] = 1e-30 * a[20:25], 1e30 * b[25:30], 1e-30 * b[30:35]
    b[40], b[41], a[42], b[43] = a[40], -2 * a[41], 0, 0
    a[44] = b[44] = 0
    return a.to(dtype), b.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_pair_angles_match_angle_in_value_and_gradient(dtype):
    a, b = edges(dtype)
    ours, theirs = torch.stack([a, b]).requires_grad_(), torch.stack([a, b]).requires_grad_()
    theta, expected = pair_angles(ours), angle(theirs[0], theirs[1])
    error = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(theta, expected, rtol=0, atol=error)
    (theta**2).sum().backward()
    (expected**2).sum().backward()
    length = torch.stack([a, b]).double().norm(dim=-1, keepdim=True)  # the gradient's size goes with 1 over it
    torch.testing.assert_close(
        ours.grad.double() * length, theirs.grad.double() * length, rtol=0, atol=2e-3 if dtype == torch.float32 else 1e-11
    )


def test_pair_angles_in_float32_are_right_to_the_seventh_digit():
    a, b = edges(torch.float32)
    exact = pair_angles(torch.stack([a, b]).double())
    torch.testing.assert_close(pair_angles(torch.stack([a, b])).double(), exact, rtol=0, atol=5e-7)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("f", [amc, euclidean_contrastive])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_no_pair_is_loss_0_and_stays_connected(n, f, dtype):
    features = torch.full((n, 5), torch.inf, dtype=dtype).requires_grad_()
    value = f(features, torch.zeros(n, dtype=torch.int64))
    value.backward()
    assert value == 0
    assert value.dtype == torch.float32
    assert torch.equal(features.grad, torch.zeros(n, 5, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_raised(dtype):
    features, labels = batch(10, 16, dtype=torch.float32)
    features = features.to(dtype)
    for f in (amc, euclidean_contrastive):
        assert f(features, labels) == f(features.float(), labels)
        assert gradient(lambda x, f=f: f(x, labels), features).dtype == dtype


def test_a_nan_feature_shows():
    features, labels = batch(6, dtype=torch.float32)
    for bad in (torch.nan, torch.inf):
        features[1, 2] = bad
        assert amc(features, labels * 0).isnan()


@pytest.mark.parametrize("same", [True, False])
def test_coincident_vectors_have_no_euclidean_gradient(same):
    x = torch.ones(2, 3)
    labels = torch.tensor([0, 0 if same else 1])
    assert euclidean_contrastive(x, labels, margin=2.0) == (0 if same else 4)
    assert torch.equal(gradient(lambda v: euclidean_contrastive(v, labels, margin=2.0), x), torch.zeros(2, 3))


@pytest.mark.parametrize(
    "module", [AMC(), AMC(margin=1.25), EuclideanContrastive(), EuclideanContrastive(margin=3.0, over="mean")]
)
def test_module_equals_the_function_and_can_be_rebuilt(module):
    features, labels = batch(9)
    f = amc if isinstance(module, AMC) else lambda x, y, margin: euclidean_contrastive(x, y, margin=margin, over=module.over)
    for twin in (module, eval(repr(module)), pickle.loads(pickle.dumps(module))):
        assert twin(features, labels) == f(features, labels, margin=module.margin)
    assert module.takes == ("features", "pair_labels")


@pytest.mark.parametrize("f", [amc, euclidean_contrastive])
def test_compiles_without_a_graph_break(f):
    features, labels = batch(9, dtype=torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(f, fullgraph=True, backend="eager")
    torch.testing.assert_close(gradient(lambda x: compiled(x, labels), features), gradient(lambda x: f(x, labels), features))


def test_wrong_arguments_are_named():
    features, labels = batch(6)
    for margin in (-0.1, 3.2, math.nan):
        with pytest.raises(ValueError, match="margin"):
            AMC(margin=margin)
        with pytest.raises(ValueError, match="margin"):
            amc(features, labels, margin=margin)
    with pytest.raises(ValueError, match="margin"):
        EuclideanContrastive(margin=-1.0)
    with pytest.raises(ValueError, match="over"):
        EuclideanContrastive(over="max")
    with pytest.raises(ValueError, match="over"):
        euclidean_contrastive(features, labels, over="max")
    for f in (amc, euclidean_contrastive):
        for bad in (features[0], features.long(), features[None]):
            with pytest.raises(ValueError, match="features"):
                f(bad, labels)
        for bad in (labels[:-1], labels.double(), labels[:, None]):
            with pytest.raises(ValueError, match="labels"):
                f(features, bad)
