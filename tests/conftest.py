"""Fixtures that several packages' tests share."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SMALL = """
[study]
id = "toy/table1"
paper = "Nobody, Table 1"
what = "does it run?"
seeds = 2

[base]
data = "digits"
noise = {name = "symmetric", rate = 0.2}
validation = 0.0
model = {name = "cnn", width = 4}
epochs = 2
batch = 32
record = false
open = {limit = 12}

[[row]]
label = "CE"
paper = 60.9

[[row]]
label = "GCE"
loss = {name = "gce", q = 0.5}
paper = 83.3
against = "CE"
deviation = "digits | instead of CIFAR-10"
"""


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["mohs.cli", "mohs.emphasis", "mohs.losses", "mohs.train.loop", "mohs.data.readers.digits", "torch._dynamo"]  # of optimizers
)
SAME_ENVIRONMENT = "import os; os.environ.clear(); os.environ.update(environment)\n"


# Files of half a minute or more, the longest first. Ray mostly waits, so the checks beside the tests have room at the start.
LONG = (
    "test_ray.py", "test_docs.py", "test_pipeline.py", "test_kernels.py", "test_distributed.py", "test_sklearn.py",
    "test_audit_files.py", "test_real_data.py", "test_package.py", "test_all.py",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that no process is left alone with one at the end; the plugin for random order comes after this."""
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONG)))


def start_forked(code: str, names: dict[str, object], **environment: object) -> Any:
    """Start a process that runs the code, forked from one that has imported torch and mohs, which takes seconds."""
    given = dict(os.environ) | {name: str(value) for name, value in environment.items()}
    process = FORKS.Process(target=exec, args=(SAME_ENVIRONMENT + code, names | {"environment": given}))
    process.start()
    return process


@pytest.fixture(scope="session")
def run_forked() -> Callable[..., int]:
    """A function that runs code in a process of its own and returns its exit code; keyword arguments are names in the code."""

    def run(code: str, **names: object) -> int:
        process = start_forked(code, names)
        process.join()
        assert process.exitcode is not None
        return process.exitcode

    return run


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., list[int]]:
    """A function like `run_forked` for two processes that find each other as those of torchrun do; returns both exit codes."""

    def run(code: str, **names: object) -> list[int]:
        with socket.create_server(("localhost", 0)) as free:
            port = free.getsockname()[1]
        group = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
        processes = [start_forked(code, names, RANK=rank, LOCAL_RANK=rank, **group) for rank in range(2)]
        for process in processes:
            process.join()
        return [process.exitcode for process in processes]

    return run


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same random numbers, whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def launch() -> Iterator[Callable[..., Any]]:
    """A function that starts Chromium with these flags, once for each set of them; without Chromium the test is skipped."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    if CHROMIUM is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    launched: dict[tuple[str, ...], Any] = {}
    with sync_api.sync_playwright() as playwright:

        def start(*flags: str) -> Any:
            if flags not in launched:
                launched[flags] = playwright.chromium.launch(executable_path=CHROMIUM, args=[*flags, *root])
            return launched[flags]

        yield start
        for browser in launched.values():
            browser.close()


@pytest.fixture(scope="module")
def browser(launch: Callable[..., Any]) -> Any:
    """Chromium, which asks for nothing by itself."""
    return launch("--disable-background-networking")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt to reach another machine fails the test."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="session")
def small_study() -> str:
    """A recipe of two losses on digits that trains in seconds."""
    return SMALL


@pytest.fixture
def mixed_network() -> nn.Sequential:
    """A network whose layers differ in mode (training or evaluation) and in requires_grad."""
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3))
    net[1].eval()
    net[0].weight.requires_grad_(False)
    return net


@pytest.fixture
def state() -> Callable[[nn.Module], tuple[list[bool], list[bool]]]:
    """A function that reads the mode of every module and requires_grad of every parameter."""
    return lambda net: ([m.training for m in net.modules()], [p.requires_grad for p in net.parameters()])
