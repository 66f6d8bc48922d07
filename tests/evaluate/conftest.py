"""A small net trained on digits, once for all files here."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mohs.models.network import Network, Scale


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(found.target)


@pytest.fixture(scope="session")
def trained(digits: tuple[Tensor, Tensor]) -> Network:
    """Convolutions on 8×8, trained on the first 1,200; callers must leave it as it is."""
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 32), nn.ReLU(),
    )  # fmt: skip
    net = Network(body, nn.Linear(32, 10), Scale([0.3], [0.4]))
    images, labels = digits[0][:1200], digits[1][:1200]
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(8):
        for rows in torch.randperm(1200).split(100):
            optimizer.zero_grad()
            cross_entropy(net(images[rows]), labels[rows]).backward()
            optimizer.step()
    return net.eval()
