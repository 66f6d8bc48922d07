"""The pieces together, on real data: a CNN on digits through an ArcFace head, with a loss and two regularizers."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

import mohs


def test_encouraging_loss_with_adr_and_ramped_amc_through_arcface_learns_digits() -> None:
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(digits)
    order = torch.randperm(len(x))
    held, kept = order[:360], order[360:]
    body = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(1024, 64),
    )  # fmt: skip
    head = mohs.ArcFaceHead(64, 10, scale=16, margin=0.1)
    objective = mohs.Objective(mohs.EncouragingLoss(), [(0.05, mohs.ADR(tau=3)), (mohs.ramp_up(epochs=8, peak=0.1), mohs.AMC())])
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=2e-3)
    log = []
    for epoch in range(10):
        for batch in kept[torch.randperm(len(kept))].split(128):
            features = body(x[batch])
            loss = objective(head(features, y[batch]), y[batch], features=features, epoch=epoch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log.append({name: float(value) for name, value in objective.parts.items()})
    head.eval()
    accuracy = (head(body(x[held])).argmax(1) == y[held]).float().mean()
    assert accuracy > 0.95
    assert next(entry["amc_weight"] for entry in log) == 0
    assert log[9]["amc_weight"] == 0.1
    assert all(set(entry) == {"loss", "adr", "adr_weight", "amc", "amc_weight", "total"} for entry in log)
    assert all(torch.tensor(list(entry.values())).isfinite().all() for entry in log)
    for entry in log:
        total = entry["loss"] + entry["adr_weight"] * entry["adr"] + entry["amc_weight"] * entry["amc"]
        assert abs(entry["total"] - total) < 1e-5
    assert log[9]["amc"] < log[0]["amc"]  # the pairs did draw together
