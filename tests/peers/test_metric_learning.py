"""ArcFace and CosFace of pytorch-metric-learning against our heads with cross-entropy: values and gradients."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch

import mohs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own
    peers = pytest.importorskip(
        "pytorch_metric_learning.losses", reason="pytorch-metric-learning is not installed (the bench extra)"
    )

CLASSES, DIM = 7, 5


@pytest.mark.parametrize("scale", [1.0, 16.0, 64.0])
@pytest.mark.parametrize("margin", [0.1, 0.5, 1.2])
@pytest.mark.parametrize("name", ["ArcFace", "CosFace"])
def test_values_and_gradients(name: str, margin: float, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(64, DIM, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (64,), generator=generator)
    weight = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    features[:CLASSES] = -weight  # opposite to their class: beyond π − m
    labels[:CLASSES] = torch.arange(CLASSES)
    features[:CLASSES] += 0.1 * torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)

    head = getattr(mohs, f"{name}Head")(DIM, CLASSES, margin=margin, scale=scale).double()
    head.weight.data.copy_(weight)
    degrees: Any = math.degrees(margin) if name == "ArcFace" else margin
    peer = getattr(peers, f"{name}Loss")(num_classes=CLASSES, embedding_size=DIM, margin=degrees, scale=scale)
    peer.W.data = weight.t().clone()
    ours, theirs = features.clone().requires_grad_(), features.clone().requires_grad_()
    value = mohs.CrossEntropyLoss()(head(ours, labels), labels)
    other = peer(theirs, labels)
    torch.testing.assert_close(value, other)
    value.backward()
    other.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(head.weight.grad, peer.W.grad.t(), rtol=1e-6, atol=1e-9)


def test_prediction_is_without_the_margin() -> None:
    features = torch.randn(9, DIM, generator=torch.Generator().manual_seed(0))
    head = mohs.ArcFaceHead(DIM, CLASSES, scale=16.0).eval()
    peer = peers.ArcFaceLoss(num_classes=CLASSES, embedding_size=DIM, scale=16.0)
    peer.W.data = head.weight.detach().t().clone()
    torch.testing.assert_close(head(features), peer.get_logits(features), rtol=1e-5, atol=1e-5)
