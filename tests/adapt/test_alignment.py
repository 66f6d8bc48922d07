"""Alignment of domains: the terms, the reversed gradient, and that each brings a shifted domain closer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import mohs
from mohs.adapt.alignment import WEIGHTS, DomainLoss, align, entropy, mmd, ramp
from mohs.data.examples import Examples
from mohs.evaluate.outputs import predict
from mohs.models.network import Network, Scale

DRAW = torch.Generator().manual_seed(0)


def test_mmd_is_zero_for_equal_samples_and_grows_with_the_shift() -> None:
    x = torch.randn(40, 3, generator=DRAW, dtype=torch.double)
    assert mmd(x, x).item() == pytest.approx(0, abs=1e-12)
    apart = [mmd(x, x + shift).item() for shift in (0.1, 0.5, 2.0)]
    assert 0 < apart[0] < apart[1] < apart[2] < 2


def test_mmd_is_the_double_sum() -> None:
    x, y = torch.randn(4, 2, generator=DRAW, dtype=torch.double), torch.randn(3, 2, generator=DRAW, dtype=torch.double)
    both = torch.cat([x, y])
    scale = sum(((a - b) ** 2).sum() for a in both for b in both) / len(both) ** 2

    def kernel(a: torch.Tensor, b: torch.Tensor) -> float:
        return sum(math.exp(-((a - b) ** 2).sum() / (width * scale)) for width in (0.25, 0.5, 1, 2, 4)) / 5

    def mean(one: torch.Tensor, other: torch.Tensor) -> float:
        return sum(kernel(a, b) for a in one for b in other) / (len(one) * len(other))

    assert mmd(x, y).item() == pytest.approx(mean(x, x) + mean(y, y) - 2 * mean(x, y))


def test_entropy() -> None:
    assert entropy(torch.zeros(2, 4)).item() == pytest.approx(math.log(4))
    assert entropy(torch.tensor([[60.0, 0.0]])).item() == pytest.approx(0, abs=1e-6)


def test_features_get_the_reversed_gradient_of_the_domain_classifier() -> None:
    loss = DomainLoss(3, seed=0).double()
    source, target = (torch.randn(5, 3, generator=DRAW, dtype=torch.double, requires_grad=True) for _ in range(2))
    ours = torch.autograd.grad(loss(source, target), [source, *loss.parameters()])
    told = loss.net(torch.cat([source, target])).flatten()
    plain = nn.functional.binary_cross_entropy_with_logits(told, torch.tensor([0.0] * 5 + [1.0] * 5, dtype=torch.double))
    theirs = torch.autograd.grad(plain, [source, *loss.parameters()])
    torch.testing.assert_close(ours[0], -theirs[0])
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(one, other)


def test_the_weight_rises() -> None:
    assert [ramp(t) for t in (0.0, 0.5, 1.0)] == pytest.approx([0.0, 0.98661, 0.99991], abs=1e-5)


def shifted_pair(shift: float = 2.4) -> tuple[Examples, Examples]:
    """Two classes at −2 and 2, and the same in a domain that is moved; a second feature tells the domain."""
    labels, noise = torch.arange(200) % 2, torch.randn(200, 2, generator=torch.Generator().manual_seed(1))
    x = torch.stack([4.0 * labels - 2, torch.zeros(200)], 1) + 0.5 * noise
    return Examples(x, labels, [0, 1], name="source"), Examples(x + torch.tensor([shift, 1.0]), labels, [0, 1], name="target")


def right(net: Network, on: Examples) -> float:
    return (predict(net, on).logits.argmax(1) == on.labels).double().mean().item()


@pytest.mark.parametrize("method", WEIGHTS)
def test_alignment_does_what_it_is_for(method: str) -> None:
    """MMD and DANN bring the target's classes to those of the source; entropy makes predictions of it decided, right or wrong."""
    source, target = shifted_pair()
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
    network = Network(body, nn.Linear(8, 2), Scale([0.0, 0.0], [1.0, 1.0]))
    run = mohs.Run(data="digits", batch=50, optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.9}, augment=[])
    first = align(network, source, target, run, method="entropy", weight=0.0, epochs=20, lr=0.05)  # the source alone
    kept = {name: value.clone() for name, value in first.state_dict().items()}
    second = align(first, source, target, run, method=method, weight={"entropy": 1.0}.get(method), epochs=40, lr=0.1)
    assert all(torch.equal(value, kept[name]) for name, value in first.state_dict().items())  # a copy is trained
    assert right(first, source) > 0.97
    assert right(second, source) > 0.9
    assert right(first, target) < 0.8
    if method == "entropy":
        assert entropy(predict(second, target).logits) < entropy(predict(first, target).logits) / 2
    else:
        assert right(second, target) > right(first, target) + 0.1


def test_an_unknown_method() -> None:
    source, target = shifted_pair()
    network = Network(nn.Identity(), nn.Linear(2, 2), Scale([0.0], [1.0]))
    with pytest.raises(ValueError, match="method must be one of mmd, dann, entropy"):
        align(network, source, target, mohs.Run(), method="mdd", epochs=1, lr=0.1)
