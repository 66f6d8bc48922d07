"""Calibration errors of torchmetrics, multiclass and binary, against ours."""

from __future__ import annotations

import pytest
import torch

import mohs

metrics = pytest.importorskip("torchmetrics.functional.classification", reason="torchmetrics is not installed")


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_multiclass(bins: int, sharpness: float) -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(sharpness * torch.randn(700, 5, generator=generator, dtype=torch.float64), 1)
    labels = torch.randint(5, (700,), generator=generator)
    theirs = metrics.multiclass_calibration_error(probs, labels, num_classes=5, n_bins=bins, norm="l1")
    assert mohs.ece(probs, labels, bins) == pytest.approx(float(theirs), abs=1e-6)


def test_binary() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(500, generator=generator, dtype=torch.float64)
    labels = (torch.rand(500, generator=generator) < probs.float() ** 2).long()
    theirs = metrics.binary_calibration_error(probs, labels, n_bins=15, norm="l1")
    assert mohs.ece(probs, labels, 15) == pytest.approx(float(theirs), abs=1e-6)
