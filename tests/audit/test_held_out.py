"""The cap on how many labels may be called wrong, by what the first look held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mohs.audit.held_out import capped, look_at_held_out
from mohs.audit.judge_images import HELD_OUT, held_share
from mohs.data.examples import Data, Examples
from mohs.train.loop import train
from mohs.train.run import Run


def test_a_cap_moves_all_alike_and_no_further_than_needed() -> None:
    right = np.array([0.01, 0.2, np.nan, 0.6, 0.99, 0.0, 1.0])
    known = ~np.isnan(right)
    moved = capped(right, 0.3)
    assert (1 - moved[known]).mean() == pytest.approx(0.3, abs=1e-6)
    assert np.array_equal(np.argsort(moved[known], kind="stable"), np.argsort(right[known], kind="stable"))
    assert np.isnan(moved[2])
    inner = [0, 1, 3, 4]
    shifts = np.log(moved[inner] / (1 - moved[inner])) - np.log(right[inner] / (1 - right[inner]))
    np.testing.assert_allclose(shifts, shifts[0], rtol=1e-6)


@pytest.mark.parametrize("cap", [0.5, 1.0])
def test_what_is_under_the_cap_stays(cap: float) -> None:
    right = np.array([0.1, 0.9, 0.8, 1.0])
    assert np.array_equal(capped(right, cap), right)


def test_nothing_known_and_a_cap_of_nothing() -> None:
    assert np.isnan(capped(np.full(3, np.nan), 0.1)).all()
    assert (capped(np.array([0.0, 0.2]), 0.0) > 0.99).all()


def test_a_network_that_learned_nothing_is_not_believed(few_images: Examples, tmp_path: Path) -> None:
    blind = train(Run(model="cnn", epochs=1, validation=HELD_OUT, optimizer="sgd:lr=1e-9"), Data(few_images), out=tmp_path)
    held = look_at_held_out(blind, Data(few_images), device="cpu")
    assert held is not None
    assert held.accuracy < 0.5
    assert len(held.labels) == 24
    assert held.probs.shape == (24, 10)
    assert held.cap == 1.0  # 24 are too few for one


def test_too_few_to_hold_any_out() -> None:
    two = Examples(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]), ["a", "b"])
    assert held_share(two, seed=0) == 0.0
    pairs = Examples(torch.zeros(40, 1, 8, 8, dtype=torch.uint8), torch.arange(40) // 2, list(range(20)))
    assert held_share(pairs, seed=0) == HELD_OUT
