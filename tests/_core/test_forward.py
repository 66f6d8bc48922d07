"""Evaluation mode and the forward pass: the model is left as it was; calls run on its device without gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mohs._core.eval_mode import eval_mode
from mohs._core.forward import inference, row_slices, to_device

State = Callable[[nn.Module], tuple[list[bool], list[bool]]]


def test_model_state_is_restored(mixed_network: nn.Sequential, state: State) -> None:
    net = mixed_network
    before = state(net)
    with eval_mode(net, freeze=True):
        modes, gradients = state(net)
        assert not any(modes + gradients)
    assert state(net) == before
    with eval_mode(net):
        assert state(net) == ([False] * len(before[0]), before[1])
    with pytest.raises(RuntimeError), eval_mode(net, freeze=True):
        raise RuntimeError
    assert state(net) == before


def test_devices(mixed_network: nn.Sequential) -> None:
    with eval_mode(mixed_network) as device:
        assert device == torch.device("cpu")
    with eval_mode(nn.ReLU()) as device:
        assert device is None
    with eval_mode(lambda x: x) as device:
        assert device is None
    net = nn.Linear(2, 2)
    with eval_mode(net, device="cpu") as device:
        assert device == net.weight.device == torch.device("cpu")


def test_inference_runs_without_gradients_and_with_autocast(mixed_network: nn.Sequential) -> None:
    net, x = mixed_network, torch.randn(5, 4)
    with inference(net) as run:
        out = run(net, x)
        assert not out.requires_grad
        assert torch.is_grad_enabled()  # for the caller
        assert torch.equal(out, run(net, x))
    with inference(net, precision="bf16") as run:
        assert run(net, x).dtype == torch.bfloat16
    with inference(lambda x, *, y: x + y) as run:
        assert run(lambda x, *, y: x + y, 1, y=2) == 3


def test_moving_and_slicing() -> None:
    there = to_device({"a": [torch.ones(1), "word"], "b": (torch.ones(2),)}, torch.device("meta"))
    assert there["a"][0].is_meta
    assert there["a"][1] == "word"
    assert there["b"][0].is_meta
    assert list(row_slices(5, 2)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert not list(row_slices(0, 2))
