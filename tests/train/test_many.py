"""Many runs: the same as one by one; on a CPU they are one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mohs.data.examples import Data
from mohs.train.loop import train
from mohs.train.many import train_many
from mohs.train.run import Run


def runs() -> list[Run]:
    shared = {"data": "blobs", "model": "mlp:hidden=16", "epochs": 3, "batch": 32, "augment": []}
    return [Run(**shared, seed=s, loss=loss) for s in (0, 1) for loss in ("cross_entropy", "gce")]


def test_many_match_single_runs(blobs: Data, tmp_path: Path) -> None:
    together = train_many(runs(), blobs, folder=tmp_path / "many", device="cpu")
    for run, done in zip(runs(), together, strict=True):
        alone = train(run, blobs, runs=tmp_path / "alone", device="cpu")
        assert done.folder.name == alone.folder.name
        for a, b in zip(done.network.state_dict().values(), alone.network.state_dict().values(), strict=True):
            assert torch.equal(a, b)


def test_data_may_be_chosen_by_run(blobs: Data, tmp_path: Path) -> None:
    asked: list[int] = []
    train_many(runs()[:2], lambda run: asked.append(run.seed) or blobs, folder=tmp_path, device="cpu")
    assert asked == [0, 0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_many_on_a_gpu_match_single_runs_up_to_rounding(blobs: Data, tmp_path: Path) -> None:
    together = train_many(runs(), blobs, folder=tmp_path / "many")
    for run, done in zip(runs(), together, strict=True):
        alone = train(run, blobs, runs=tmp_path / "alone")
        for a, b in zip(done.network.state_dict().values(), alone.network.state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
