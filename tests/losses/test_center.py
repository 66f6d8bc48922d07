"""Center loss: its value, its two gradients, and the centers as a parameter."""

from __future__ import annotations

import pickle

import pytest
import torch

from mohs.losses.center import CenterLoss, center_loss


def data(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(7, 3, generator=generator, dtype=dtype)
    return features, torch.tensor([0, 1, 1, 3, 0, 1, 3]), torch.randn(4, 3, generator=generator, dtype=dtype)


def test_value_and_gradients_by_hand():
    features, labels, centers = data()
    features.requires_grad_()
    centers.requires_grad_()
    value = center_loss(features, labels, centers)
    value.backward()
    expected = sum(((x - centers[y]) ** 2).sum() for x, y in zip(features, labels, strict=True)) / 14
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(features.grad, ((features - centers[labels]) / 7).detach())
    for j in range(4):
        pull = sum(((centers[j] - x) for x, y in zip(features, labels, strict=True) if y == j), start=torch.zeros(3))
        torch.testing.assert_close(centers.grad[j], pull.detach().to(centers.dtype) / 7)


def test_the_learning_rate_that_makes_the_authors_update():
    features, labels, start = data()
    weight, alpha = 0.01, 0.5
    for j in (0, 1, 3):
        centers = start.clone().requires_grad_()
        (weight * center_loss(features, labels, centers)).backward()
        members = features[labels == j]
        rate = alpha / weight * len(features) / (1 + len(members))
        expected = start[j] - alpha * (start[j] - members).sum(0) / (1 + len(members))
        torch.testing.assert_close(start[j] - rate * centers.grad[j], expected)


def test_module_is_the_function_with_visible_centers():
    features, labels, _ = data(torch.float32)
    module = CenterLoss(4, 3, seed=5)
    assert [name for name, _ in module.named_parameters()] == ["centers"]
    assert module.takes == ("features", "labels")
    for twin in (module, eval(repr(module)), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin.centers, module.centers)
        assert twin(features, labels) == center_loss(features, labels, module.centers)
    assert not torch.equal(CenterLoss(4, 3).centers, module.centers)


def test_training_the_centers_alone_finds_the_means():
    features, labels, _ = data(torch.float32)
    module = CenterLoss(4, 3)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        module(features, labels).backward()
        optimizer.step()
    for j in (0, 1, 3):
        torch.testing.assert_close(module.centers[j].detach(), features[labels == j].mean(0), rtol=1e-4, atol=1e-4)
    assert torch.equal(module.centers[2], CenterLoss(4, 3).centers[2])  # no examples of the class: unchanged


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_raised(dtype):
    features, labels, centers = data(torch.float32)
    features, centers = features.to(dtype), centers.to(dtype)
    assert center_loss(features, labels, centers) == center_loss(features.float(), labels, centers.float())


def test_an_empty_batch_is_0():
    module = CenterLoss(4, 3)
    value = module(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    value.backward()
    assert value == 0
    assert torch.equal(module.centers.grad, torch.zeros(4, 3))


def test_compiles_without_a_graph_break():
    features, labels, centers = data(torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(center_loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(features, labels, centers), center_loss(features, labels, centers))


def test_wrong_arguments_are_named():
    features, labels, centers = data()
    for bad in (features[0], features.long()):
        with pytest.raises(ValueError, match="features"):
            center_loss(bad, labels, centers)
    for bad in (centers[0], centers[:, :2]):
        with pytest.raises(ValueError, match="centers"):
            center_loss(features, labels, bad)
    for bad in (labels[:-1], labels.double(), labels + 1):
        with pytest.raises(ValueError, match="labels"):
            center_loss(features, bad, centers)
    with pytest.raises(ValueError, match="num_classes"):
        CenterLoss(1, 3)
    with pytest.raises(ValueError, match="in_features"):
        CenterLoss(3, 0)
