"""The cost of training on one GPU: overhead of the Recorder and of a full objective per step, and seconds per epoch (ResNet-20).

    MOHS_DATA=... python benchmarks/train.py [--epochs 3] [--runs 8] [--out results/benchmarks/train.json]

A step is the CUDA-graph step of the loop, batch size 128, bfloat16. Each variant's time is the median over rounds in which the
variants take turns, so that all see the same clock speeds. An epoch of CIFAR-10 is 391 steps, with augmentation, without
evaluation. The bare loop trains the same network in a dozen lines of PyTorch, without augmentation or recording, in the same
process. A loop that launches kernels one by one is limited by the CPU, so its time varies between machines; bfloat16 launches
more kernels than float32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from mohs.data.examples import Data
from mohs.data.open_data import open_data
from mohs.train.build import build
from mohs.train.compiled import Compiled
from mohs.train.graph import GraphStep, can_graph
from mohs.train.job import Job
from mohs.train.many import train_many
from mohs.train.resolve import resolve
from mohs.train.run import Run
from mohs.train.step import step

from machine import machine

BASE = {"data": "cifar10", "model": "resnet20", "batch": 128, "validation": 0.0, "optimizer": "sgd:lr=0.1", "epochs": 100}
FULL = {
    "loss": "encouraging",
    "regularizers": [{"name": "adr", "weight": 0.05}, {"name": "amc", "weight": {"name": "ramp_up", "epochs": 50, "peak": 0.1}}],
}
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {"record": False},
    "recorder": {"record": True},
    "objective": {"record": False, **FULL},
    "objective and recorder": {"record": True, **FULL},
}
EPOCHS: dict[str, dict[str, object]] = {
    "plain loop": {"graph": False},
    "plain loop, float32": {"graph": False, "precision": "no"},
    "plain loop, compiled": {"graph": False, "compile": True},
    "graph": {"graph": True},
    "graph, compiled": {"graph": True, "compile": True},
    "graph, data read along": {"graph": True, "resident": False},
}

CPU_EPOCHS = {"plain loop": EPOCHS["plain loop"]}  # a trial of this script


def job_of(data: Data, **changes: object) -> Job:
    run, made, _ = resolve(Run(**(BASE | changes)), data)  # type: ignore[arg-type]
    return build(run, made, graph=True)


def stepper(job: Job) -> Callable[[], None]:
    """A function that takes one step of the job, cycling through epochs."""
    take = GraphStep(job) if can_graph(job) else (lambda draw, weights: step(job, draw, weights))
    batch = job.run.batch

    def draws():  # type: ignore[no-untyped-def]
        while True:
            yield from (draw for draw in job.feed.epoch(1) if len(draw.ids) == batch)

    source, weights = draws(), job.training.objective.weights_at(1)
    if isinstance(take, GraphStep):
        take.fill(weights)
    return lambda: take(next(source), weights)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def step_times(data: Data, rounds: int, steps: int) -> dict[str, float]:
    """Milliseconds per step of each variant, the median of rounds in which they take turns."""
    takes = {name: stepper(job_of(data, **changes)) for name, changes in VARIANTS.items()}
    times: dict[str, list[float]] = {name: [] for name in takes}
    for _ in range(rounds):
        for name, take in takes.items():
            take()
            wait()
            began = time.perf_counter()
            for _ in range(steps):
                take()
            wait()
            times[name].append((time.perf_counter() - began) / steps * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def least_seconds(run_epoch: Callable[[int], None], epochs: int) -> float:
    """Seconds per epoch, the minimum of `epochs` after a warm-up epoch."""
    seconds = []
    for epoch in range(epochs + 1):
        wait()
        began = time.perf_counter()
        run_epoch(epoch)
        wait()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def epoch_seconds(data: Data, *, graph: bool, epochs: int, resident: bool = True, **changes: object) -> float:
    """Seconds per epoch of one run; resident: the data are on the device."""
    job = job_of(data, **changes)
    if not resident:
        job.feed.inputs, job.feed.resident = data.train.inputs, False
    if isinstance(job.training.outputs, Compiled):
        job.training.outputs.trees = not graph
    take = GraphStep(job) if graph and can_graph(job) else (lambda draw, weights: step(job, draw, weights))

    def run_epoch(epoch: int) -> None:
        for draw in job.feed.epoch(epoch):
            take(draw, [])

    return least_seconds(run_epoch, epochs)


def bare_seconds(data: Data, *, epochs: int, half: bool) -> float:
    """Seconds per epoch of the same network in plain PyTorch; half: in bfloat16."""
    job = job_of(data, record=False)
    network, inputs, labels = job.training.network, job.feed.inputs, job.feed.labels
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

    def run_epoch(epoch: int) -> None:
        for ids in torch.randperm(len(labels), device=labels.device).split(128):
            with torch.autocast(job.device.type, torch.bfloat16, enabled=half):
                loss = torch.nn.functional.cross_entropy(network(inputs[ids]), labels[ids])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return least_seconds(run_epoch, epochs)


def many_seconds(data: Data, *, runs: int, epochs: int, **changes: object) -> float:
    """Seconds per epoch and model when `runs` train at once, measured from the end of the first epoch to the end of the last."""
    ended: list[float] = []
    plans = [Run(**(BASE | changes | {"epochs": epochs + 1, "seed": seed})) for seed in range(runs)]  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        watch = lambda event: ended.append(time.perf_counter()) if "seconds" in event else None
        train_many(plans, Data(data.train), folder=Path(folder), watch=watch)
    return (ended[-1] - ended[runs - 1]) / epochs / runs


def all_epochs(data: Data, epochs: int, runs: int) -> Iterator[tuple[str, float]]:
    """Seconds per epoch (and model) of every way to train, recorded and not."""
    halves = (("bare loop", True), ("bare loop, float32", False))
    for name, half in halves if torch.cuda.is_available() else halves[1:]:  # on a CPU the loop trains in float32
        yield name, bare_seconds(data, epochs=epochs, half=half)
    for recorded, record in ((", not recorded", False), ("", True)):
        for name, changes in (EPOCHS if torch.cuda.is_available() else CPU_EPOCHS).items():
            yield f"{name}{recorded}", epoch_seconds(data, epochs=epochs, record=record, **changes)  # type: ignore[arg-type]
        yield f"{runs} at once, a model{recorded}", many_seconds(data, runs=runs, epochs=epochs, record=record)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    data = Data(open_data(args.data).train)
    if torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.Stream())
    steps = step_times(data, args.rounds, args.steps)
    over = {name: round(ms / steps["plain"] - 1, 4) for name, ms in steps.items()}
    result = {
        "machine": machine(),
        "step_ms": {name: round(ms, 4) for name, ms in steps.items()},
        "over_plain": over,
        "epoch_seconds": {name: round(seconds, 3) for name, seconds in all_epochs(data, args.epochs, args.runs)},
        "n": {"rounds": args.rounds, "steps": args.steps, "epochs": args.epochs, "runs": args.runs},
    }
    text = json.dumps(result, indent=1)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
