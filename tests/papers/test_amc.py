"""AMC-Loss (CVPR Workshops 2020): pairing, geometry of the gradient, and the arithmetic of Table 1."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import ttest_ind_from_stats
from torch import Tensor

from mohs.losses._numerics.pairs import pair_angles
from mohs.losses.amc import amc


def gradient(features: Tensor, labels: Tensor, margin: float = 0.5) -> Tensor:
    leaf = features.clone().requires_grad_()
    amc(leaf, labels, margin=margin).backward()
    return leaf.grad


def pair(theta: float, lengths: tuple[float, float] = (1.0, 1.0), dtype: torch.dtype = torch.float64) -> Tensor:
    """Two vectors at an angle of θ."""
    return torch.tensor([[lengths[0], 0.0, 0.0], [lengths[1] * math.cos(theta), lengths[1] * math.sin(theta), 0.0]], dtype=dtype)


@pytest.mark.parametrize("n", [2, 3, 8, 9])
def test_pairs_are_the_two_halves_of_the_batch(n):
    """Every example k < n//2 meets k + n//2 and no other: turning one example changes one pair, an odd one out none."""
    generator = torch.Generator().manual_seed(n)
    features = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    labels = torch.zeros(n, dtype=torch.int64)
    theta = pair_angles(torch.stack([features[: n // 2], features[n // 2 : 2 * (n // 2)]]))
    assert len(theta) == n // 2
    assert amc(features, labels) == pytest.approx((theta**2).sum().item() / (n // 2), rel=1e-12)
    pulled = gradient(features, labels).norm(dim=1) > 0
    assert pulled.tolist() == [True] * (2 * (n // 2)) + [False] * (n % 2)


@pytest.mark.parametrize("same", [True, False])
def test_identical_vectors(same):
    labels = torch.tensor([3, 3 if same else 4])
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([[0.3, -2.0, 0.7]] * 2, dtype=dtype)
        assert amc(x, labels, margin=0.5) == (0 if same else 0.25)
        assert torch.equal(gradient(x, labels), torch.zeros_like(x))


@pytest.mark.parametrize("same", [True, False])
def test_antipodal_vectors(same):
    labels = torch.tensor([3, 3 if same else 4])
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([[0.3, -2.0, 0.7], [-0.6, 4.0, -1.4]], dtype=dtype)
        assert amc(x, labels, margin=0.5) == pytest.approx(math.pi**2 if same else 0, rel=1e-6)
        assert torch.equal(gradient(x, labels), torch.zeros_like(x))


@pytest.mark.parametrize("same", [True, False])
def test_a_zero_vector_is_at_a_right_angle_to_everything(same):
    labels = torch.tensor([1, 1, 1, 1] if same else [1, 1, 2, 2])
    x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])  # pairs: zero with a vector, zero with zero
    expected = (math.pi / 2) ** 2 if same else (math.pi - math.pi / 2) ** 2
    assert amc(x, labels, margin=math.pi) == pytest.approx(expected, rel=1e-6)
    assert torch.equal(gradient(x, labels, margin=math.pi), torch.zeros_like(x))


@pytest.mark.parametrize("theta", [1e-6, 1e-3, 0.1, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("lengths", [(1.0, 1.0), (0.2, 30.0)], ids=str)
def test_the_gradient_is_tangent_with_the_right_length(theta, lengths):
    x = pair(theta, lengths)
    for labels in (torch.tensor([0, 0]), torch.tensor([0, 1])):
        assert amc(x, labels, margin=math.pi) == pytest.approx(amc(pair(theta), labels, margin=math.pi).item(), rel=1e-6)
    grad = gradient(x, torch.tensor([0, 0]))
    for row, g, length in zip(x, grad, lengths, strict=True):
        assert g.norm() == pytest.approx(2 * theta / length, rel=1e-6)
        assert abs(g @ row) < 1e-12
    assert torch.sign(grad[0, 1]) == -1  # descent turns the first towards the second
    margin = min(theta + 0.05, math.pi)
    apart = gradient(x, torch.tensor([0, 1]), margin=margin)
    for row, g, length in zip(x, apart, lengths, strict=True):
        assert g.norm() == pytest.approx(2 * (margin - theta) / length, rel=1e-6)
        assert abs(g @ row) < 1e-9 * g.norm() * length  # θ = 1e-6 leaves ten digits
    assert torch.sign(apart[0, 1]) == 1
    assert torch.equal(gradient(x, torch.tensor([0, 1]), margin=theta / 2), torch.zeros_like(x))


def test_predicted_and_true_labels_differ_only_through_misclassified_examples():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(12, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (12,), generator=generator)
    predicted = labels.clone()
    assert amc(features, predicted) == amc(features, labels)
    predicted[2] = (labels[2] + 1) % 3
    predicted[8] = labels[2]  # its partner: the pair's agreement changes for sure
    labels[8] = labels[2]
    changed = (gradient(features, predicted, 2.0) != gradient(features, labels, 2.0)).any(1)
    assert changed.nonzero().flatten().tolist() == [2, 8]


@pytest.mark.parametrize(
    ("euclid", "angular", "p"),
    [
        ((99.65, 0.01), (99.66, 0.01), 0.1525),  # MNIST
        ((82.60, 0.21), (82.97, 0.20), 0.0214),  # CIFAR-10
        ((95.29, 0.06), (95.52, 0.05), 0.0002),  # SVHN
        ((65.57, 0.20), (66.19, 0.22), 0.0016),  # CIFAR-100, coarse labels
    ],
)
def test_table_1_p_values_are_two_sided_t_tests_of_five_runs(euclid, angular, p):
    assert ttest_ind_from_stats(*euclid, 5, *angular, 5).pvalue == pytest.approx(p, abs=5.1e-5)


def test_arccos_and_the_half_angle_form_agree_above_a_hundredth():
    angles = [0.0101, 0.05, 0.5, 1.5, 2.5, math.pi - 0.0101]
    pairs = torch.stack([pair(theta, dtype=torch.float32) for theta in angles], 1)
    cosine = (pairs[0] * pairs[1]).sum(-1)
    torch.testing.assert_close(cosine.clamp(-1 + 1e-7, 1 - 1e-7).arccos(), pair_angles(pairs), rtol=0, atol=2e-5)
    tiny = pair(1e-4, dtype=torch.float32).unsqueeze(1)  # below it arccos has lost the angle, the other form has not
    assert abs((tiny[0] * tiny[1]).sum().clamp(max=1 - 1e-7).arccos().item() - 1e-4) > 1e-4
    assert pair_angles(tiny).item() == pytest.approx(1e-4, rel=1e-3)
