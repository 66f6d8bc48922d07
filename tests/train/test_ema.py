"""The moving average of a network, against an obvious loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mohs.models import create_model
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.ema import EMA, floats


def net(seed: int = 0) -> nn.Module:
    return create_model("cnn:width=4", shape=(1, 8, 8), num_classes=3, seed=seed).to(memory_format=torch.channels_last)


def shake(model: nn.Module, seed: int) -> None:
    """Other weights and running statistics, as a step leaves them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model(torch.rand(4, 1, 8, 8, generator=generator))


@pytest.mark.parametrize("warmup", [True, False])
def test_the_average_matches_a_loop(warmup: bool) -> None:
    model = net()
    ema = EMA(model, decay=0.9, warmup=warmup)
    expected = {name: tensor.clone() for name, tensor in floats(model).items()}
    for t in range(1, 101):
        shake(model, t)
        ema.update(model)
        d = min(0.9, (1 + t) / (10 + t)) if warmup else 0.9
        for name, tensor in floats(model).items():
            expected[name] = d * expected[name] + (1 - d) * tensor
    for name, view in zip(ema.names, ema.views, strict=True):
        assert torch.allclose(view, expected[name], atol=1e-5), name
    assert any("running_var" in name for name in ema.names)
    assert not any("num_batches" in name for name in ema.names)


def test_averages_lie_in_one_tensor_in_the_order_of_the_network() -> None:
    model = net()
    ema = EMA(model)
    for view, tensor in zip(ema.views, floats(model).values(), strict=True):
        assert view.stride() == tensor.stride()
        assert torch.equal(view, tensor)
    ema.values.zero_()
    assert all(not view.any() for view in ema.views)


def test_swapped_weights_are_restored_even_after_an_error() -> None:
    model = net()
    ema = EMA(model, decay=0.5, warmup=False)
    shake(model, 1)
    ema.update(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    addresses = [p.data_ptr() for p in model.parameters()]
    with ema.swapped(model) as averaged:
        assert averaged is model
        assert all(torch.equal(a, b) for a, b in zip(floats(model).values(), ema.views, strict=True))
        assert not torch.equal(model.state_dict()["head.weight"], before["head.weight"])
    with pytest.raises(KeyError), ema.swapped(model):
        raise KeyError("evaluation failed")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [p.data_ptr() for p in model.parameters()] == addresses
    ema.copy_to(model)
    assert torch.equal(model.head.weight, dict(zip(ema.names, ema.views, strict=True))["head.weight"])
    assert model.head.weight.requires_grad


def test_an_average_of_one_value_is_that_value() -> None:
    model = net()
    ema = EMA(model)
    for _ in range(50):
        ema.update(model)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(ema.views, floats(model).values(), strict=True))


def test_state_goes_through_a_checkpoint(tmp_path: object) -> None:
    model, path = net(), tmp_path / "ema.safetensors"  # type: ignore[operator]
    ema = EMA(model, decay=0.9)
    for t in range(3):
        shake(model, t)
        ema.update(model)
    save_tree(ema.state_dict(), path)
    other = EMA(net(seed=1), decay=0.9)
    other.load_state_dict(load_tree(path))
    assert torch.equal(other.values, ema.values)
    assert float(other.updates) == 3
    ema.update(model)
    other.update(model)
    assert torch.equal(other.values, ema.values)


def test_half_precision_weights_are_averaged_in_full() -> None:
    model = nn.Linear(3, 2).to(torch.bfloat16)
    ema = EMA(model, decay=0.9, warmup=False)
    ema.update(model)
    assert ema.values.dtype == torch.float32
    with ema.swapped(model):
        assert model.weight.dtype == torch.bfloat16


def test_another_network_is_refused() -> None:
    ema = EMA(nn.Linear(3, 2))
    with pytest.raises(ValueError, match=r"differs from the one that was averaged in 0\.bias, 0\.weight, bias, weight"):
        ema.update(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="the state lacks the average of bias: it is from another network"):
        ema.load_state_dict({"updates": torch.zeros(()), "weight": torch.zeros(2, 3)})
    with pytest.raises(ValueError, match="decay must be at least 0 and under 1, got 1"):
        EMA(nn.Linear(3, 2), decay=1)
