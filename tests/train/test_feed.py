"""The feed: every example once an epoch, the same order wherever a run is resumed and however many processes share it."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs.data.examples import Examples
from mohs.train.augment import create_augment
from mohs.train.feed import Feed

CPU = torch.device("cpu")


def examples(n: int) -> Examples:
    return Examples(torch.arange(n * 2.0).view(n, 2), torch.arange(n) % 3, [0, 1, 2])


@settings(deadline=None, derandomize=True, max_examples=60)
@given(n=st.integers(2, 60), batch=st.integers(1, 20), ranks=st.integers(1, 4), epoch=st.integers(0, 5))
def test_processes_share_each_batch_of_one(n: int, batch: int, ranks: int, epoch: int) -> None:
    data = examples(n)
    feeds = [Feed(data, batch=batch, seed=1, device=CPU, rank=r, ranks=ranks) for r in range(ranks)]
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1 * 1_000_003 + epoch))
    assert len({len(feed) for feed in feeds}) == 1
    for number, draws in enumerate(zip(*(feed.epoch(epoch) for feed in feeds), strict=True)):
        whole = order[number * batch : (number + 1) * batch]
        seen = torch.cat([draw.ids for draw in draws if draw.share > 0])
        assert sorted(seen.tolist()) == sorted(whole.tolist())
        assert sum(draw.share for draw in draws) == pytest.approx(ranks)
        weighed = sum(draw.share * data.inputs[draw.ids].mean(0) for draw in draws) / ranks
        torch.testing.assert_close(weighed, data.inputs[whole].mean(0))


@pytest.mark.parametrize("numbers", [1, 5000, 1 << 22])
@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_processes_share_the_random_numbers_of_each_batch(numbers: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["mohs.train.feed"], "NUMBERS", numbers)
    images = Examples(torch.zeros(61, 3, 8, 8), torch.zeros(61, dtype=torch.long), ["a", "b"])
    augment = create_augment([{"name": "crop_flip", "padding": 2}, {"name": "gaussian_noise"}])
    (one,), shares = (
        [list(Feed(images, batch=20, seed=1, device=CPU, augment=augment, rank=r, ranks=many).epoch(2)) for r in range(many)]
        for many in (1, ranks)
    )
    assert len({len(draws) for draws in (one, *shares)}) == 1
    for r, mine in enumerate(shares):
        for whole, part in zip(one, mine, strict=True):
            assert torch.equal(part.ids, whole.ids[r::ranks])
            for theirs, own in zip(whole.drawn, part.drawn, strict=True):
                assert torch.equal(own, theirs[r::ranks])


def test_all_examples_are_seen_except_a_last_batch_too_small_to_share() -> None:
    assert sum(len(d.ids) for d in Feed(examples(10), batch=4, seed=0, device=CPU).epoch(0)) == 10
    assert sum(len(d.ids) for d in Feed(examples(9), batch=4, seed=0, device=CPU).epoch(0)) == 8
    assert sum(len(d.ids) for d in Feed(examples(3), batch=8, seed=0, device=CPU).epoch(0)) == 3


class Slow:
    """Inputs that must be read."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.shape = tensor, tensor.shape

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, places: torch.Tensor) -> torch.Tensor:
        return self.tensor[places]


def test_inputs_read_ahead_are_those_of_the_batch() -> None:
    data = examples(23)
    slow = Examples(Slow(data.inputs), data.labels, data.classes)
    ready, read = (Feed(d, batch=5, seed=3, device=CPU) for d in (data, slow))
    assert ready.resident
    assert not read.resident
    for a, b in zip(ready.epoch(2), read.epoch(2), strict=True):
        assert torch.equal(a.ids, b.ids)
        assert torch.equal(ready.load(a), read.load(b))


def test_an_error_of_reading_reaches_the_caller() -> None:
    class Broken(Slow):
        def __getitem__(self, places: torch.Tensor) -> torch.Tensor:
            raise OSError("gone")

    data = examples(8)
    feed = Feed(Examples(Broken(data.inputs), data.labels, data.classes), batch=4, seed=0, device=CPU)
    with pytest.raises(OSError, match="gone"):
        list(feed.epoch(0))
