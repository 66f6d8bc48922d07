"""Compiled networks: the same training within rounding, for the batches they were made for; an error that says what to do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from mohs._core.errors import RunError
from mohs._core.watch import UNWATCHED
from mohs.data.examples import Data
from mohs.models import create_model
from mohs.train.build import build
from mohs.train.compiled import Compiled
from mohs.train.graph import own_stream
from mohs.train.loop import steps, train
from mohs.train.resolve import resolve
from mohs.train.run import Run

RUN = Run(data="blobs", model="mlp:hidden=16", head="cosface:margin=0.1", epochs=2, batch=32, augment=[], compile=True)


def test_a_compiled_run_matches_an_eager_one(blobs: Data, tmp_path: Path) -> None:
    plain = train(dataclasses.replace(RUN, compile=False), blobs, runs=tmp_path, device="cpu")
    fast = train(RUN, blobs, runs=tmp_path, device="cpu")
    assert fast.folder != plain.folder
    for name, value in fast.network.state_dict().items():
        torch.testing.assert_close(value, plain.network.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_only_batches_of_the_first_shape_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    network = create_model("linear", shape=(3,), num_classes=2)
    compiled, shapes = Compiled(network), []
    monkeypatch.setattr(
        torch, "compile", lambda outputs, **how: lambda x, labels: shapes.append(len(x)) or network.outputs(x, labels)
    )
    for n in (4, 4, 3, 4):
        assert compiled(torch.randn(n, 3), torch.zeros(n, dtype=torch.long))[0].shape == (n, 2)
    assert shapes == [4, 4, 4]


def test_networks_that_cannot_be_compiled_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: object, inputs: object) -> None:
        raise OSError("no compiler here")

    network = create_model("linear", shape=(3,), num_classes=2)
    compiled = Compiled(network)
    plain = torch.compile
    monkeypatch.setattr(torch, "compile", lambda outputs, **how: plain(outputs, backend=broken))
    with pytest.raises(RunError, match=r"could not be compiled.*no compiler here.*without compile"):
        compiled(torch.randn(4, 3), torch.zeros(4, dtype=torch.long))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("graph", [True, False])
def test_a_compiled_step_on_a_gpu_matches_an_eager_one(blobs: Data, graph: bool) -> None:
    losses = []
    for compiled in (False, True):
        run, data, _ = resolve(dataclasses.replace(RUN, compile=compiled, precision="no", epochs=3), blobs)
        job = build(run, data, graph=graph)
        if isinstance(job.training.outputs, Compiled):
            job.training.outputs.trees = not graph
        with own_stream(job):
            for _ in steps(job, None, UNWATCHED, graph=graph):
                pass
        losses.append([line["total"] for line in job.history])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
