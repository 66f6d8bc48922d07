"""Angular Visual Hardness (ICML 2020): Figure 20, and the AVH loss of eq. 5 with the −log it lacks."""

from __future__ import annotations

import math

import pytest
import torch

from mohs.angle import angles
from mohs.losses.avh import avh_logits, avh_loss

NEAR, FAR = math.pi / 4 - 0.05, math.pi / 4 + 0.05


def avh(features: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """θ_y / Σ_k θ_k for every class."""
    theta = angles(features, weight)
    return theta / theta.sum(1, keepdim=True)


def simplex(classes: int) -> torch.Tensor:
    """Class weights as far apart as they can be: every two at arccos(−1/(K − 1))."""
    corners = torch.eye(classes, dtype=torch.float64) - 1 / classes
    return corners / corners.norm(dim=1, keepdim=True)


@pytest.mark.parametrize(("own", "other"), [(NEAR, FAR), (FAR, NEAR)])
def test_figure_20_confidence_moves_with_the_norm_and_avh_does_not(own: float, other: float) -> None:
    norms = torch.linspace(1, 100, 50, dtype=torch.float64)
    features = norms[:, None] * torch.tensor([1.0, 0.0], dtype=torch.float64)
    weight = torch.tensor([[math.cos(own), math.sin(own)], [math.cos(other), -math.sin(other)]], dtype=torch.float64)
    confidence = (features @ weight.T).softmax(1)[:, 0]
    torch.testing.assert_close(confidence, torch.sigmoid(norms * (math.cos(own) - math.cos(other))))
    steps = confidence.diff()
    assert (steps > 0).all() if own < other else (steps < 0).all()
    assert confidence[-1] > 0.999 if own < other else confidence[-1] < 0.001
    torch.testing.assert_close(avh(features, weight)[:, 0], torch.full_like(norms, own / (own + other)), atol=1e-12, rtol=0)


def test_angles_and_their_loss_ignore_lengths() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (8, 4))
    labels = torch.randint(4, (8,), generator=generator)
    longer, wider = (10 ** (6 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 3) for n in (8, 4))
    torch.testing.assert_close(avh(longer * x, wider * w), avh(x, w), rtol=1e-9, atol=0)
    torch.testing.assert_close(avh_loss(longer * x, wider * w, labels, scale=8.0), avh_loss(x, w, labels, scale=8.0))


def test_equation_5_with_its_logarithm() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (8, 4))
    labels = torch.randint(4, (8,), generator=generator)
    total = 0.0
    for row, label in zip(x, labels.tolist(), strict=True):
        theta = [math.acos(float(row @ v / (row.norm() * v.norm()))) for v in w]
        powers = [math.exp(3.0 * (math.pi - t)) for t in theta]
        total -= math.log(powers[label] / sum(powers))
    assert float(avh_loss(x, w, labels, scale=3.0, reduction="sum")) == pytest.approx(total)


def test_equation_5_as_printed_is_the_sum_of_the_labels_probabilities() -> None:
    """Minimizing it lowers them: descent widens the angle to the label's class."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (8, 4))
    labels = torch.randint(4, (8,), generator=generator)[:, None]
    theta = torch.acos(torch.nn.functional.cosine_similarity(x[:, None], w[None], dim=2))
    chosen = theta.gather(1, labels).clone().requires_grad_()
    powers = (3.0 * (math.pi - theta.scatter(1, labels, chosen))).exp()
    printed = (powers.gather(1, labels) / powers.sum(1, keepdim=True)).sum()
    torch.testing.assert_close(printed, avh_logits(x, w, scale=3.0).softmax(1).gather(1, labels).sum())
    assert (torch.autograd.grad(printed, chosen)[0] < 0).all()


def test_gradient_by_angle() -> None:
    theta = torch.tensor([[0.3, 1.2, 2.0], [1.5, 0.1, 3.0]], dtype=torch.float64, requires_grad=True)
    labels, scale = torch.tensor([0, 2]), 6.0
    weight = torch.eye(2, dtype=torch.float64)[:1]  # class k's angle to itself turned by θ_k, one feature at a time

    def loss(theta: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for row, label in zip(theta, labels, strict=True):
            turned = torch.stack([row.cos(), row.sin()], 1)
            total = total + avh_loss(weight, turned, label[None], scale=scale)
        return total

    expected = scale * (torch.nn.functional.one_hot(labels, 3) - (-scale * theta).softmax(1))
    torch.testing.assert_close(torch.autograd.grad(loss(theta), theta)[0], expected.detach())


@pytest.mark.parametrize(
    ("classes", "scale", "floor", "digits"),
    [
        (10, 1, 0.98, 2),
        (10, 2, 0.27, 2),
        (10, 4, 0.011, 3),
        (10, 5, 0.002, 3),
        (100, 2, 1.65, 2),
        (100, 4, 0.16, 2),
        (100, 8, 0.0003, 4),
    ],
)
def test_lower_bound_of_the_loss_at_maximally_separated_weights(classes: int, scale: int, floor: float, digits: int) -> None:
    weight = simplex(classes)
    loss = float(avh_loss(weight, weight, torch.arange(classes), scale=scale))
    formula = math.log1p((classes - 1) * math.exp(-scale * math.acos(-1 / (classes - 1))))
    assert loss == pytest.approx(formula, rel=1e-5)
    assert round(loss, digits) == floor


def test_prediction_is_the_smallest_angle() -> None:
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(50, 5, generator=generator), torch.randn(4, 5, generator=generator)
    assert torch.equal(avh_logits(x, w, scale=10.0).argmax(1), angles(x, w).argmin(1))
