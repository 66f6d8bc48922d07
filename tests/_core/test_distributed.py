"""Two processes: the same table from the same outputs, and the same network as one process makes, batch for batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from mohs.train.directory import RunDirectory
from mohs.train.trained import load_run

TRAIN = """
import torch
from mohs.data.examples import Data, Examples
from mohs.train.loop import train
from mohs.train.run import Run
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
labels = torch.arange(103) % 3
points = 2 * torch.randn(3, 8, generator=generator)[labels] + torch.randn(103, 8, generator=generator)
data = Data(Examples(points, labels, ["a", "b", "c"], name="blobs"))
run = Run(data="blobs", model="mlp:hidden=16", epochs=3, batch=20, validation=0.0, optimizer="sgd:lr=0.1", augment=[], trace=True)
train(run, data, out=folder, device="cpu")
"""
STOP = TRAIN.replace('device="cpu")', 'device="cpu", watch=lambda event: exit(9) if event["epoch"] else None)')
REFUSED = (
    TRAIN.replace("train(run", "try:\n    train(run")
    + """except ValueError as error:
    (folder / f"error-{torch.distributed.get_rank()}").write_text(str(error))
"""
)


def test_two_processes_train_the_same_as_one(
    run_forked: Callable[..., int], run_ranks: Callable[..., list[int]], tmp_path: Path
) -> None:
    assert run_forked(TRAIN, folder=tmp_path / "1") == 0
    assert run_ranks(TRAIN, folder=tmp_path / "2") == [0, 0]
    one, two = load_run(tmp_path / "1"), load_run(tmp_path / "2")
    for a, b in zip(one.network.state_dict().values(), two.network.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    for name in ("id", "label", "predicted", "epochs", "forgetting", "first_learned"):
        assert one.table.column(name).to_pylist() == two.table.column(name).to_pylist(), name
    for name in ("aum", "mean_margin", "mean_confidence", "variability", "mean_avh"):
        torch.testing.assert_close(
            torch.tensor(one.table.column(name).to_pylist()),
            torch.tensor(two.table.column(name).to_pylist()),
            atol=1e-5,
            rtol=1e-5,
        )
    assert all(torch.allclose(one.trace[n].float(), two.trace[n].float(), atol=2e-3, equal_nan=True) for n in one.trace)
    about = [RunDirectory(tmp_path / processes).about["processes"] for processes in "12"]
    assert about == [1, 2]


def test_processes_without_a_gpu_are_one_run_without_being_told(run_ranks: Callable[..., list[int]], tmp_path: Path) -> None:
    """Accelerate takes them for separate runs, of which the second would find the folder in use, unless it is given cpu=True."""
    hidden = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
    assert run_ranks(hidden + TRAIN.replace('device="cpu"', 'device="auto"'), folder=tmp_path / "run") == [0, 0]
    assert RunDirectory(tmp_path / "run").about["processes"] == 2


def test_another_number_of_processes_is_refused(
    run_forked: Callable[..., int], run_ranks: Callable[..., list[int]], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert run_forked(STOP, folder=folder) == 9
    assert (folder / "checkpoint.safetensors").exists()
    assert run_ranks(REFUSED, folder=folder) == [0, 0]
    for rank in range(2):
        assert "started with 1 processes and cannot resume with 2" in (folder / f"error-{rank}").read_text()
