"""Running models over inputs: what comes back, and that the model is left as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mohs.data.examples import Examples
from mohs.evaluate.outputs import logits_over, outputs_over
from mohs.heads.cosface import CosFaceHead
from mohs.models.network import Network, Scale

State = Callable[[nn.Module], tuple[list[bool], list[bool]]]


def test_model_state_is_restored(mixed_network: nn.Sequential, state: State) -> None:
    net = mixed_network
    before = state(net)
    outputs_over(net, torch.randn(5, 4))
    assert state(net) == before


def test_any_callable_and_any_form_of_output() -> None:
    x = torch.randn(5, 3)
    for model in (lambda x: x, lambda x: (x, 1), lambda x: {"logits": x}):
        torch.testing.assert_close(logits_over(model, x, batch_size=2), x)
    with pytest.raises(ValueError, match=r"the model must return logits of shape \(N, K\), got \(5,\)"):
        logits_over(lambda x: x.sum(1), x)
    with pytest.raises(ValueError, match="without logits"):
        logits_over(lambda x: "cat", x)


def test_features_are_what_enters_the_head() -> None:
    x = torch.randn(7, 4)
    body = nn.Linear(4, 5)
    net = Network(body, nn.Linear(5, 3), Scale(torch.zeros(4), torch.ones(4)))
    for found in (outputs_over(net, x, batch_size=3), outputs_over(nn.Sequential(body, net.head), x, batch_size=3)):
        torch.testing.assert_close(found.features, body(x).detach())
        torch.testing.assert_close(found.logits, net(x).detach())
        assert found.weight.shape == (3, 5)
        assert not found.features.requires_grad
    margin_head = Network(body, CosFaceHead(5, 3), Scale(torch.zeros(4), torch.ones(4)))
    assert outputs_over(margin_head, x).weight.shape == (3, 5)


def test_examples_and_inputs_that_are_read_on_access() -> None:
    class Doubling:
        shape = (6, 3)

        def __len__(self) -> int:
            return 6

        def __getitem__(self, places: torch.Tensor) -> torch.Tensor:
            return 2.0 * places.unsqueeze(1).expand(-1, 3)

    labels = torch.zeros(6, dtype=torch.long)
    for inputs in (Doubling(), torch.arange(0.0, 12, 2).unsqueeze(1).expand(-1, 3)):
        found = logits_over(lambda x: x, Examples(inputs, labels, ["a"]), batch_size=4)
        assert found[:, 0].tolist() == [0, 2, 4, 6, 8, 10]
