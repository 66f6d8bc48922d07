"""Fixtures that several packages' tests share."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

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


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same random numbers, whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


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
