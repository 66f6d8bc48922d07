"""The data of studies: a test set always, fewer examples and held-out classes where asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mohs._core.errors import DataError
from mohs.data.domains import shaped
from mohs.data.examples import Examples
from mohs.train.build import build
from mohs.train.resolve import resolve
from mohs.train.run import Run
from mohs.train.run_data import class_places, held_out, limited, opened, outside, with_test


def test_data_without_a_test_set_get_one_that_the_run_tells_of() -> None:
    run = with_test(Run(data="digits"))
    assert run.open == {"test": 0.2}
    data = opened(run)
    assert data.test is not None
    assert len(data.train) + len(data.test) == 1797
    assert opened(run) is data
    assert with_test(run) == run
    assert opened(Run(data="digits")).test is None


def test_a_limit_keeps_the_first_examples_of_each_class_in_every_split() -> None:
    data = opened(Run(data="digits", open={"limit": 7, "test": 0.2}))
    whole = opened(Run(data="digits", open={"test": 0.2}))
    for part, before in ((data.train, whole.train), (data.test, whole.test)):
        assert torch.bincount(part.labels).tolist() == [7] * 10
        taken: list[int] = []
        for place, label in enumerate(before.labels.tolist()):
            if before.labels[taken].tolist().count(label) < 7:
                taken.append(place)
        assert torch.equal(part.inputs, before.inputs[taken])
    with pytest.raises(ValueError, match="limit must be an integer of at least 1, got 0"):
        limited(whole.train, 0)


def test_only_some_classes_in_the_order_given() -> None:
    data = opened(Run(data="digits", open={"classes": [8, 3, 5], "test": 0.2, "limit": 5}))
    assert data.classes == [8, 3, 5]
    whole = opened(Run(data="digits")).train
    assert data.test is not None
    for part in (data.train, data.test):
        assert torch.bincount(part.labels).tolist() == [5, 5, 5]
        assert [[8, 3, 5][label] for label in part.labels.tolist()] == whole.labels[list(part.keys)].tolist()
    fewer = opened(Run(data="digits", open={"classes": [8, 3, 5], "holdout_classes": [3]}))
    assert fewer.classes == [8, 5]


def test_corrections_take_the_transition_of_the_runs_noise() -> None:
    """Unless one is given: `forward` and `backward` then know the noise that was added."""
    for noise, row in (("symmetric:rate=0.3", [0.7, 0.15, 0.15]), ("pair:rate=0.3", [0.7, 0.3, 0.0])):
        run = Run(data="digits", model="linear", loss="forward", noise=noise, open={"classes": [0, 1, 2]})
        run, data, _ = resolve(run, opened(run), device="cpu")
        loss = build(run, data, device="cpu").training.objective.loss
        assert loss.transition[0].tolist() == pytest.approx(row)
    plain = Run(data="digits", model="linear", loss="forward")
    with pytest.raises(ValueError, match="transition"):
        build(*resolve(plain, opened(plain), device="cpu")[:2], device="cpu")


def test_held_out_classes_occur_only_where_requested() -> None:
    run = Run(data="digits", open={"holdout_classes": [3, 8], "test": 0.2, "limit": 5})
    data = opened(run)
    assert data.classes == [0, 1, 2, 4, 5, 6, 7, 9]
    assert sorted(set(data.train.labels.tolist())) == list(range(8))
    whole = opened(Run(data="digits")).train
    key = int(data.train.keys[0])
    assert data.classes[int(data.train.labels[0])] == int(whole.labels[key])
    unseen = held_out(run, [3, 8])
    assert unseen.classes == [3, 8]
    assert torch.bincount(unseen.labels).tolist() == [5, 5]
    assert set(whole.labels[list(unseen.keys)].tolist()) == {3, 8}
    with pytest.raises(DataError, match="the run was trained on 4"):
        held_out(run, [3, 4])
    with pytest.raises(DataError, match="digits has no class 'x'; its classes: 0, 1"):
        class_places(whole, ["x"])


def test_other_data_are_resized_to_the_same_shape(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "other.npz", x=rng.integers(0, 256, (6, 12, 12, 3), dtype=np.uint8), y=[0, 1] * 3)
    run = Run(data="digits", open={"limit": 2})
    like = opened(run).train
    other = outside(str(tmp_path / "other.npz"), run, like=like)
    assert other.shape == (1, 8, 8)
    assert len(other) == 4
    flat = Examples(torch.full((2, 3, 5, 5), 100, dtype=torch.uint8), torch.tensor([0, 1]), ["a", "b"])
    assert torch.equal(shaped(flat, (1, 8, 8)).inputs, torch.full((2, 1, 8, 8), 100, dtype=torch.uint8))
    with pytest.raises(DataError, match=r"rows has features of shape \(4,\), not \(1, 8, 8\)"):
        shaped(Examples(torch.zeros(2, 4), torch.tensor([0, 1]), ["a", "b"], name="rows"), (1, 8, 8))
