"""D2L: the dimension of features of known dimension, cross-entropy of the mixed label, and α after the turning point."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

import mohs
from mohs.losses.d2l import batch_lid, d2l, turned


@pytest.mark.parametrize("dimension", [2, 6])
def test_lid_is_the_dimension_of_a_ball(dimension: int) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2000, dimension, generator=draw)
    x = x / x.norm(dim=1, keepdim=True) * torch.rand(2000, 1, generator=draw) ** (1 / dimension)
    embedded = torch.cat([x, torch.zeros(2000, 9)], 1)
    assert batch_lid(embedded, neighbors=20).median().item() == pytest.approx(dimension, rel=0.15)


def test_lid_is_the_formula() -> None:
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.double)
    r = [1.0, 3.0, 7.0]  # of the first to the others
    assert batch_lid(x, neighbors=3)[0].item() == pytest.approx(-1 / (sum(math.log(one / r[-1]) for one in r) / 3))
    assert batch_lid(torch.zeros(5, 2)).isfinite().all()  # copies of one example
    with pytest.raises(ValueError, match="at least 3 examples"):
        batch_lid(x[:2])


def test_with_cross_entropy_it_is_cross_entropy_of_the_mixed_label() -> None:
    draw = torch.Generator().manual_seed(0)
    z, y = torch.randn(7, 4, generator=draw, dtype=torch.double, requires_grad=True), torch.tensor([0, 1, 2, 3, 0, 1, 2])
    alpha = 0.3
    ours = F.cross_entropy(z, y) + d2l(z, y, alpha)
    mixed = alpha * F.one_hot(y, 4) + (1 - alpha) * F.one_hot(z.argmax(1), 4)
    theirs = F.cross_entropy(z, mixed.double())
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(value, z)[0] for value in (ours, theirs)))


def test_labels_count_fully_until_the_dimension_rises() -> None:
    module = mohs.create_regularizer("d2l", epochs=8, window=3)
    z, y = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(12, dtype=torch.long)
    alphas, flat = [], torch.cat([torch.rand(12, 2, generator=torch.Generator().manual_seed(1)), torch.zeros(12, 6)], 1)
    for epoch in range(6):
        features = flat * 2**epoch if epoch < 4 else torch.randn(12, 8, generator=torch.Generator().manual_seed(2))
        value = module(z, y, features)
        assert (value == 0).item() == (epoch < 5)  # α changes at the end of epoch 4
        module.end_epoch()
        alphas.append(module.alpha.item())
    lids = module.lids[:6].tolist()
    assert alphas[:4] == [1.0] * 4
    assert alphas[4:] == pytest.approx([math.exp(-n / 8 * lids[n - 1] / min(lids[:n])) for n in (5, 6)])
    again = mohs.create_regularizer("d2l", epochs=8, window=3)
    again.load_state_dict(module.state_dict())
    assert again.alpha == module.alpha
    module.eval()
    before = module.batches.clone()
    module(z, y, flat)
    assert torch.equal(module.batches, before)


def test_the_turning_point() -> None:
    assert not turned([5, 4, 3, 2, 1], 3)
    assert not turned([5, 4, 3], 3)
    assert turned([5, 4, 3, 9], 3)
    assert turned([5, 4, 3, 9, 1], 3)  # once it has turned, it stays so


def test_a_run_trains_with_it() -> None:
    run = mohs.Run(
        data="digits", model="linear", epochs=3, regularizers=["d2l:weight=1,window=2"], open={"limit": 20}, record=False
    )
    from mohs.train.build import build
    from mohs.train.resolve import resolve
    from mohs.train.run_data import opened

    run, data, _ = resolve(run, opened(run), device="cpu")
    (module,) = build(run, data, device="cpu").training.objective.regularizers
    assert module.epochs == 3
