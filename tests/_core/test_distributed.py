"""Two processes: the same table from the same outputs, and the same network as one process makes, batch for batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mohs.train.trained import load_run

SCRIPT = """
import sys, torch
from pathlib import Path
from mohs.data.examples import Data, Examples
from mohs.train.loop import train
from mohs.train.run import Run
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
labels = torch.arange(103) % 3
points = 2 * torch.randn(3, 8, generator=generator)[labels] + torch.randn(103, 8, generator=generator)
data = Data(Examples(points, labels, ["a", "b", "c"], name="blobs"))
run = Run(data="blobs", model="mlp:hidden=16", epochs=3, batch=20, validation=0.0, optimizer="sgd:lr=0.1", augment=[], trace=True)
done = train(run, data, out=Path(sys.argv[1]), device="cpu")
print(done.history[-1]["accuracy"])
"""


def launch(processes: int, folder: Path, *, port: int) -> subprocess.CompletedProcess[str]:
    file = folder.parent / "script.py"
    file.write_text(SCRIPT)
    words = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", f"--master-port={port}", str(file), str(folder)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=env)


@pytest.mark.slow
def test_two_processes_train_the_same_as_one(tmp_path: Path) -> None:
    for processes in (1, 2):
        answer = launch(processes, tmp_path / str(processes), port=29610 + processes)
        assert answer.returncode == 0, answer.stderr
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


@pytest.mark.slow
def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stop = SCRIPT.replace('device="cpu")', 'device="cpu", watch=lambda event: 1 / (event["epoch"] < 1))')
    (tmp_path / "stop.py").write_text(stop)
    subprocess.run([sys.executable, str(tmp_path / "stop.py"), str(folder)], capture_output=True, check=False)
    assert (folder / "checkpoint.safetensors").exists()
    answer = launch(2, folder, port=29615)
    assert answer.returncode != 0
    assert "started with 1 processes and cannot resume with 2" in answer.stderr
