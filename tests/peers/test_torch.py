"""PyTorch's own cases of CrossEntropyLoss (its ModuleInfo), with `mohs.CrossEntropyLoss` instead of it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import mohs

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        from torch.testing._internal.common_modules import module_db
except ImportError as error:
    pytest.skip(f"the cases of PyTorch's own tests did not import ({error})", allow_module_level=True)

(INFO,) = (info for info in module_db if info.module_cls is nn.CrossEntropyLoss)


def cases() -> list[Any]:
    torch.manual_seed(0)
    made = []
    for one in INFO.module_inputs_func(INFO, device="cpu", dtype=torch.float64, requires_grad=True, training=False):
        logits, target = one.forward_input.args
        kind = "probabilities" if target.is_floating_point() else "unbatched" if logits.dim() == 1 else "labels"
        settings = one.constructor_input.kwargs
        made.append(pytest.param(settings, logits.detach(), target, id=f"{kind}-{one.desc}"))
    return made


def both(settings: dict[str, Any]) -> tuple[nn.Module, nn.Module]:
    return mohs.CrossEntropyLoss(**settings), nn.CrossEntropyLoss(**settings)


def test_there_are_cases() -> None:
    assert len(cases()) >= 105


@pytest.mark.parametrize(("settings", "logits", "target"), cases())
def test_value_and_gradients(settings: dict[str, Any], logits: torch.Tensor, target: torch.Tensor) -> None:
    found = []
    for loss in both(settings):
        z = logits.clone().requires_grad_()
        value = loss(z, target)
        (gradient,) = torch.autograd.grad(value, z, torch.ones_like(value), create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), z)
        found.append((value.detach(), gradient.detach(), second))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)  # the mean over ignored labels alone is NaN


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # torch calls it for derivatives of its own
@pytest.mark.parametrize(("settings", "logits", "target"), cases())
def test_forward_mode(settings: dict[str, Any], logits: torch.Tensor, target: torch.Tensor) -> None:
    tangent = torch.randn(logits.shape, dtype=logits.dtype, generator=torch.Generator().manual_seed(0))
    ours, theirs = (torch.func.jvp(lambda z, loss=loss: loss(z, target), (logits,), (tangent,)) for loss in both(settings))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)  # likewise


def test_class_weights_by_position() -> None:
    assert mohs.CrossEntropyLoss(torch.ones(3)).weight.tolist() == [1.0, 1.0, 1.0]


def test_a_state_dict_with_class_weights_loads() -> None:
    loss = mohs.CrossEntropyLoss(weight=torch.zeros(3))
    loss.load_state_dict(nn.CrossEntropyLoss(weight=torch.ones(3)).state_dict())
    assert loss.weight.tolist() == [1.0, 1.0, 1.0]
    mohs.CrossEntropyLoss().load_state_dict(nn.CrossEntropyLoss().state_dict())


def test_names_of_the_arguments() -> None:
    logits, labels = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    ours, theirs = (loss(input=logits, target=labels) for loss in both({}))
    torch.testing.assert_close(ours, theirs)
