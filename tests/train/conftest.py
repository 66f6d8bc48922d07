from __future__ import annotations

import pytest
import torch

from mohs.data.examples import Data, Examples


@pytest.fixture
def blobs() -> Data:
    """Three clouds of points in eight dimensions: 120 to train on, 30 to test."""
    generator = torch.Generator().manual_seed(0)
    centers = 3 * torch.randn(3, 8, generator=generator)
    labels = torch.arange(150) % 3
    points = centers[labels] + torch.randn(150, 8, generator=generator)
    whole = Examples(points, labels, ["a", "b", "c"], name="blobs")
    return Data(whole.take(torch.arange(120)), None, whole.take(torch.arange(120, 150)))
