"""A step as a CUDA graph: the same training as step by step, from data on the device or read along, whole or resumed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mohs._core.watch import UNWATCHED
from mohs.data.examples import Data, Examples
from mohs.train.build import build, channels_last
from mohs.train.graph import can_graph, own_stream
from mohs.train.job import Job
from mohs.train.loop import steps, train
from mohs.train.resolve import resolve
from mohs.train.run import Run

RUN = Run(
    data="patches",
    model="resnet20:width=8",
    epochs=3,
    batch=32,
    validation=0.0,
    augment=[{"name": "crop_flip", "padding": 2}],
    optimizer="sgd:lr=0.02",
    precision="no",
    ema=0.9,
)


@pytest.fixture(scope="module")
def patches() -> Data:
    """150 images of 16×16 in three classes, each with a bright band of its own."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(150) % 3
    inputs = torch.randint(0, 120, (150, 3, 16, 16), dtype=torch.uint8, generator=generator)
    for i, label in enumerate(labels.tolist()):
        inputs[i, label, 4 * label : 4 * label + 6] += 100
    return Data(Examples(inputs, labels, ("red", "green", "blue")))


def trained(run: Run, data: Data, *, graph: bool, device: str = "auto") -> Job:
    run, data, _ = resolve(run, data)
    job = build(run, data, graph=graph, device=device)
    with own_stream(job):
        for _ in steps(job, None, UNWATCHED, graph=graph):
            pass
    return job


def way(job: Job) -> Tensor:
    """What training did to all weights, in one row."""
    begun = build(job.run, job.data).training.network.parameters()
    return torch.cat([(a - b).detach().flatten() for a, b in zip(job.training.network.parameters(), begun, strict=True)])


@pytest.mark.parametrize("read_along", [False, True], ids=["on the device", "read along"])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_graph_learns_what_single_steps_learn(patches: Data, read_along: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trained(RUN, patches, graph=False)
    if read_along:
        monkeypatch.setattr(sys.modules["mohs.train.feed"], "fits", lambda inputs, device: False)
    fast = trained(RUN, patches, graph=True)
    assert can_graph(fast)
    assert fast.feed.resident is not read_along
    assert (way(fast) - way(plain)).norm() < 0.1 * way(plain).norm()  # kernels round differently from run to run


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("optimizer", ["sgd:lr=0.02", "adam:lr=0.002"])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_interrupted_run_resumes_on_a_gpu(patches: Data, precision: str, optimizer: str, tmp_path: Path) -> None:
    run = dataclasses.replace(RUN, precision=precision, optimizer=optimizer)

    def stop(event: dict[str, object]) -> None:
        if event["epoch"] == 1 and event.get("step") == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, patches, out=tmp_path / "stopped", watch=stop)
    stopped, whole = train(run, patches, out=tmp_path / "stopped"), train(run, patches, out=tmp_path / "whole")
    assert [line["epoch"] for line in stopped.history] == [0, 1, 2]
    close = 0.1 if precision == "bf16" else 2e-3 if optimizer.startswith("sgd") else 1e-2  # Adam magnifies rounding
    assert stopped.history[-1]["total"] == pytest.approx(whole.history[-1]["total"], rel=close)


def test_optimizer_state_is_restored_in_the_memory_format_of_the_weight(patches: Data) -> None:
    job = trained(dataclasses.replace(RUN, epochs=1), patches, graph=False, device="cpu")
    other = build(job.run, job.data, device="cpu")
    channels_last(other.training)
    other.restore(job.state())
    orders = {tuple(weight.stride()) for weight in other.training.parameters() if weight.dim() == 4}
    assert any(stride[1] == 1 and stride[3] > 1 for stride in orders)  # channels come last in memory
    for weight, kept in other.optimizer.state.items():
        assert kept["momentum_buffer"].stride() == weight.stride()
    for a, b in zip(job.optimizer.state.values(), other.optimizer.state.values(), strict=True):
        assert torch.equal(a["momentum_buffer"], b["momentum_buffer"])


def test_only_weights_of_flat_convolutions_change_their_order() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.Conv3d(4, 4, 3), torch.nn.Linear(4, 4))
    before = [weight.detach().clone() for weight in module.parameters()]
    channels_last(module)
    assert [weight.is_contiguous() for weight in module.parameters() if weight.dim() > 1] == [False, True, True]
    for a, b in zip(module.parameters(), before, strict=True):
        assert torch.equal(a, b)
