from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples, LeftOut
from mohs.data.split import held_out, only, split, split_called


def examples(labels: list[int], **more: object) -> Examples:
    y = torch.tensor(labels)
    return Examples(torch.arange(len(labels)).float()[:, None], y, list(range(int(y.max()) + 1)), **more)  # type: ignore[arg-type]


def test_every_class_contributes_its_share_and_parts_are_disjoint() -> None:
    labels = [0] * 50 + [1] * 30 + [2] * 20
    rest, held = split(examples(labels), 0.2, 3)
    assert torch.bincount(held.labels).tolist() == [10, 6, 4]
    assert sorted([*rest.keys, *held.keys]) == list(range(100))  # type: ignore[misc]
    assert torch.equal(held.inputs[:, 0], torch.tensor(held.keys).float())  # type: ignore[index, call-overload]


def test_tiny_classes_stay_whole_and_remainders_are_shared() -> None:
    rest, held = split(examples([0] * 97 + [1, 2, 3]), 0.1, 0)
    assert torch.bincount(held.labels, minlength=4).tolist() == [10, 0, 0, 0]
    assert torch.bincount(rest.labels, minlength=4).tolist() == [87, 1, 1, 1]
    many = held_out(torch.arange(100).repeat(4), share=0.1, seed=0)  # 0.4 of each class
    assert len(many) == 40
    assert int(torch.bincount(torch.arange(100).repeat(4)[many]).max()) == 1


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=80), st.floats(0.05, 0.95), st.integers(0, 5))
def test_no_class_is_emptied_and_splits_are_seeded(labels: list[int], share: float, seed: int) -> None:
    y = torch.tensor(labels)
    held = held_out(y, share=share, seed=seed)
    assert torch.equal(held, held_out(y, share=share, seed=seed))
    left, all_of = torch.bincount(y, minlength=6) - torch.bincount(y[held], minlength=6), torch.bincount(y, minlength=6)
    assert bool(((left > 0) | (all_of == 0)).all())
    assert len(held) <= round(share * len(y)) or len(held) <= int((share * all_of).floor().sum())


def test_seeds_differ_and_skipped_examples_are_counted_once() -> None:
    labels = [0, 1] * 50
    first, second = (split(examples(labels, left_out=[LeftOut("a", "b")]), 0.3, seed) for seed in (0, 1))
    assert first[1].keys != second[1].keys
    assert (len(first[0].left_out), len(first[1].left_out)) == (1, 0)


def test_what_cannot_be_split_is_said() -> None:
    with pytest.raises(ValueError, match="share must be over 0 and under 1, got 1"):
        split(examples([0, 1]), 1, 0)
    with pytest.raises(DataError, match=r"data: a share of 0\.1 of 3 examples in 2 classes is empty: raise the share"):
        split(examples([0, 1, 1]), 0.1, 0)
    with pytest.raises(DataError, match=r"data: the 2 labels are of 2 classes, such as '0', each of which has one example"):
        split(examples([0, 1]), 0.5, 0)


def test_names_of_splits() -> None:
    assert [split_called(name) for name in ("Train", "valid", "validation", "TEST", "extra")] == [
        "train",
        "val",
        "val",
        "test",
        None,
    ]
    data = Data(examples([0, 1]), test=examples([1, 0, 1]))
    assert len(only(data, "test").train) == 3
    assert only(data, None) is data
    with pytest.raises(DataError, match="data has no val split; it has train, test"):
        only(data, "val")
    with pytest.raises(ValueError, match="split must be one of train, val, test, got 'valid'"):
        only(data, "valid")
