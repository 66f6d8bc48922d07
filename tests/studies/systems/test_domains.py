"""MLDG: its objective and gradient, and training for a domain that is not seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import mohs
import mohs.data.domains
from mohs.models.network import Network, Scale
from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import run_study
from mohs.studies.systems.domains import DomainGeneralization, batches, mean_loss, mldg, rate

RECIPE = Path(__file__).parents[3] / "recipes/avh/table5-mldg.toml"
DIGITS = "digits+digits:rotate=20+digits:invert"


def test_the_objective_and_its_gradient_are_those_of_the_definition() -> None:
    """For two weights of a linear model: the gradient by finite differences of F(θ) + β G(θ − α ∇F(θ))."""
    draw = torch.Generator().manual_seed(0)
    head = nn.Linear(2, 3, bias=False).double()
    network, loss = Network(nn.Identity(), head, Scale([0.0, 0.0], [1.0, 1.0])), mohs.create_loss("cross_entropy")
    parts = [(torch.randn(6, 2, generator=draw), torch.randint(3, (6,), generator=draw)) for _ in range(3)]
    network.features = lambda x: x.double()  # type: ignore[method-assign]

    def value(weight: torch.Tensor) -> torch.Tensor:
        def cross_entropy(w: torch.Tensor, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
            x, y = (torch.cat([batch[i] for batch in batches]) for i in (0, 1))
            return nn.functional.cross_entropy(x.double() @ w.T, y)

        leaf = weight.clone().requires_grad_()
        first = cross_entropy(leaf, [parts[0], parts[2]])
        (slope,) = torch.autograd.grad(first, leaf)
        return first.detach() + 0.7 * cross_entropy(weight - 0.5 * slope, [parts[1]]).detach()

    ours = mldg(network, loss, parts, 1, inner=0.5, beta=0.7)
    weight = head.weight.detach().clone()
    torch.testing.assert_close(ours.detach(), value(weight))
    (slope,) = torch.autograd.grad(ours, head.weight)
    for i in range(3):
        for j in range(2):
            step = torch.zeros_like(weight)
            step[i, j] = 1e-5
            assert slope[i, j].item() == pytest.approx(((value(weight + step) - value(weight - step)) / 2e-5).item(), abs=1e-6)
    assert torch.equal(head.weight.detach(), weight)


def test_without_g_it_is_the_plain_loss_of_the_other_domains() -> None:
    network = mohs.create_model("linear", shape=(4,), num_classes=3)
    parts = [(torch.randn(5, 4, generator=torch.Generator().manual_seed(i)), torch.tensor([0, 1, 2, 0, 1])) for i in range(3)]
    loss = mohs.create_loss("cross_entropy")
    torch.testing.assert_close(mldg(network, loss, parts, 2, inner=0.1, beta=0.0), mean_loss(network, loss, parts[:2]))


@pytest.mark.parametrize("method", ["plain", "mldg"])
def test_it_learns(method: str) -> None:
    run = DomainGeneralization(
        data=DIGITS, without="digits:rotate=20", method=method, model={"name": "cnn", "width": 8}, epochs=6, lr=0.05, limit=30
    )
    (numbers,) = DomainGeneralization.train([run], device="cpu")
    assert numbers["accuracy"] > 0.5
    assert numbers["test_accuracy"] > 0.25


def test_batches_are_of_every_domain_with_its_labels() -> None:
    domains = list(mohs.data.domains.open_domains(DIGITS).values())
    run = DomainGeneralization(data=DIGITS, batch=9)
    for step, parts in zip(range(90), batches(domains, run, torch.device("cpu")), strict=False):
        for examples, (x, y) in zip(domains, parts, strict=True):
            assert len(x) == 3 or step > 60  # the last batch of an epoch may be smaller
            found = (examples.inputs[:, None] == x).flatten(2).all(2).long().argmax(0)
            assert torch.equal(examples.inputs[found], x)
            assert torch.equal(examples.labels[found], y)


def test_the_learning_rate() -> None:
    assert [rate(done) for done in (0.0, 0.025, 0.05, 0.525, 1.0)] == pytest.approx([0, 0.5, 1, 0.5, 0])


def test_the_recipe_runs(tmp_path: Path) -> None:
    recipe = read_recipe(RECIPE, scale="smoke")
    results = run_study(recipe, runs=tmp_path, device="cpu")
    assert len(results) == 12
    assert all(one["classes"] == 10 and 0 <= one["test_accuracy"] <= 1 for one in results)


def test_one_training_domain_is_too_few_for_mldg() -> None:
    run = DomainGeneralization(
        data="digits+digits:invert", without="digits:invert", method="mldg", model={"name": "linear"}, limit=4
    )
    with pytest.raises(ValueError, match="keeps one of the training domains"):
        DomainGeneralization.train([run], device="cpu")
