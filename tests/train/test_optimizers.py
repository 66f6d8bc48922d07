"""Optimizers: against PyTorch's plain ones, with rates that change, and weights that do not decay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mohs._core.specs import as_spec, create_spec
from mohs.models import create_model
from mohs.train.learning_rate import gaussian_ramp
from mohs.train.optimizers import OPTIMIZERS, set_rate

PLAIN: dict[str, Any] = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=5e-4, foreach=False),
    "adam": lambda p, lr: torch.optim.Adam(p, lr=lr, foreach=False),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr=lr, weight_decay=0.05, foreach=False),
}
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def net(device: str = "cpu") -> nn.Module:
    return create_model("mlp:hidden=8", shape=(5,), num_classes=3, seed=1).to(device)


def loss_of(model: nn.Module) -> torch.Tensor:
    x = torch.randn(16, 5, generator=torch.Generator().manual_seed(0)).to(next(model.parameters()).device)
    return nn.functional.cross_entropy(model(x), torch.arange(16, device=x.device) % 3)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rates: list[float], betas: list[float | None]) -> None:
    for rate, beta1 in zip(rates, betas, strict=True):
        set_rate(optimizer, rate, beta1)
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_matches_pytorch(name: str) -> None:
    rates = [1.0, 0.5, 0.1, 0.0]
    ours, plain = net(), net()
    train(ours, OPTIMIZERS[name](lr=0.05).build(ours.parameters(), "cpu"), rates, [None] * 4)
    plainly = PLAIN[name](plain.parameters(), 0.05)
    for rate in rates:
        plainly.param_groups[0]["lr"] = 0.05 * rate
        plainly.zero_grad()
        loss_of(plain).backward()
        plainly.step()
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_nesterov_and_no_momentum() -> None:
    for fields in ({"nesterov": True}, {"momentum": 0.0}):
        ours, plain = net(), net()
        train(ours, OPTIMIZERS["sgd"](lr=0.1, **fields).build(ours.parameters(), "cpu"), [1, 1], [None] * 2)
        options = {"momentum": 0.9, **fields}
        train(plain, torch.optim.SGD(plain.parameters(), lr=0.1, weight_decay=5e-4, **options), [1, 1], [None] * 2)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours.parameters(), plain.parameters(), strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_biases_and_norms_may_be_excluded_from_decay(name: str) -> None:
    model = create_model("cnn:width=4", shape=(1, 8, 8), num_classes=3)
    optimizer = OPTIMIZERS[name](weight_decay=0.1, decay_all=False).build(model.parameters(), "cpu")
    decaying, kept = optimizer.param_groups
    assert (decaying["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert all(p.dim() > 1 for p in decaying["params"])
    assert all(p.dim() == 1 for p in kept["params"])
    assert len(decaying["params"]) + len(kept["params"]) == len(list(model.parameters()))
    (every,) = OPTIMIZERS[name](weight_decay=0.1).build(model.parameters(), "cpu").param_groups
    assert every["weight_decay"] == 0.1
    assert len(every["params"]) == len(list(model.parameters()))


def test_frozen_parameters_are_left_out() -> None:
    model = net()
    for parameter in model.body.parameters():
        parameter.requires_grad_(False)
    (group,) = OPTIMIZERS["sgd"]().build(model.parameters(), "cpu").param_groups
    assert len(group["params"]) == 2
    with pytest.raises(ValueError, match="there are no parameters to train: no parameter requires a gradient"):
        OPTIMIZERS["sgd"]().build([], "cpu")


def test_set_rate_updates_tensors_in_place_for_any_optimizer() -> None:
    model = net()
    rate = torch.tensor(0.2)
    stranger = torch.optim.SGD(model.parameters(), lr=rate)
    set_rate(stranger, 0.5)
    assert stranger.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(0.1)
    set_rate(stranger, 0.25, beta1=0.7)
    assert float(rate) == pytest.approx(0.05)
    assert "betas" not in stranger.param_groups[0]
    again = OPTIMIZERS["adam"](lr=0.2).build(model.parameters(), "cpu")
    set_rate(again, 0.5, beta1=0.6)
    again.load_state_dict(again.state_dict())
    set_rate(again, 1.0)
    assert again.param_groups[0]["lr"] == pytest.approx(0.2)
    assert again.param_groups[0]["betas"] == (0.6, 0.999)


def test_a_scheduled_beta1_that_a_graph_would_not_see_is_refused() -> None:
    model = net()
    optimizer = OPTIMIZERS["adam"]().build(model.parameters(), "cpu")
    group = optimizer.param_groups[0]
    group["capturable"] = True
    set_rate(optimizer, 1.0, beta1=0.9)
    with pytest.raises(ValueError, match="a captured step would not see β₁ change: build the optimizer with moving_beta1=True"):
        set_rate(optimizer, 1.0, beta1=0.8)
    held = torch.tensor(0.9)
    group["betas"] = (held, 0.999)
    set_rate(optimizer, 1.0, beta1=0.5)
    assert float(held) == 0.5


def test_a_tensor_beta1_gives_the_same_steps_as_a_number() -> None:
    """What a GPU does with moving_beta1=True, in the same plain form, on a CPU."""
    ramp = gaussian_ramp()
    rates = [ramp(t, 6) for t in range(6)]
    betas = [ramp.beta1(t, 6) for t in range(6)]
    number, tensor = net(), net()
    train(number, OPTIMIZERS["adam"](lr=0.01).build(number.parameters(), "cpu"), rates, betas)
    optimizer = torch.optim.Adam(tensor.parameters(), lr=0.01, foreach=False, fused=False)
    optimizer.param_groups[0]["betas"] = (torch.tensor(0.9), 0.999)
    train(tensor, optimizer, rates, betas)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(number.parameters(), tensor.parameters(), strict=True))


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("moving", [False, True])
def test_a_captured_step_follows_the_learning_rate(name: str, moving: bool) -> None:
    rates = [1.0, 0.5, 0.1, 0.0]
    betas: list[float | None] = [0.9, 0.8, 0.7, 0.6] if moving else [None] * 4
    plain, ours = net(), net("cuda")
    start = [p.detach().clone() for p in ours.parameters()]
    train(plain, OPTIMIZERS[name](lr=0.05).build(plain.parameters(), "cpu"), rates, betas)
    optimizer = OPTIMIZERS[name](lr=0.05).build(ours.parameters(), "cuda", moving_beta1=moving)
    x = torch.randn(16, 5, generator=torch.Generator().manual_seed(0)).cuda()
    y = torch.arange(16, device="cuda") % 3

    def work() -> None:
        optimizer.zero_grad(set_to_none=False)
        nn.functional.cross_entropy(ours(x), y).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    with torch.no_grad():
        for parameter, old in zip(ours.parameters(), start, strict=True):
            parameter.copy_(old)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
    for rate, beta1 in zip(rates, betas, strict=True):
        set_rate(optimizer, rate, beta1)
        graph.replay()
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a.cpu(), b, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lion", "unknown optimizer 'lion'; known: sgd, adam, adamw"),
        ("sgd:beta1=3", "sgd has no field 'beta1'; its fields: lr, momentum, nesterov, weight_decay, decay_all"),
        ("sgd:lr=0", "lr must be over 0, got 0"),
        ("sgd:lr=fast", "sgd: lr must be a finite number, got 'fast'"),
        ("sgd:momentum=1", "momentum must be at least 0 and under 1, got 1"),
        ("sgd:momentum=0,nesterov=True", "nesterov=True needs a momentum over 0"),
        ("adam:weight_decay=-1", "weight_decay must be at least 0, got -1"),
        ("adamw:beta1=1", "beta1 must be at least 0 and under 1, got 1"),
        ("adam:beta2=-1", "beta2 must be at least 0 and under 1, got -1"),
    ],
)
def test_bad_optimizers_are_named(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_spec(OPTIMIZERS, "optimizer", as_spec(spec))
