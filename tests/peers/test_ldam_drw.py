"""LDAM with deferred re-weighting, by the formulas of the paper and the settings of its published experiments.

Cao et al., "Learning imbalanced datasets with label-distribution-aware margin loss" (NeurIPS 2019): Δ_j ∝ n_j^(−1/4), up to 0.5;
cosines less Δ at the label, times 30, into a cross-entropy with class weights; weights ∝ (1 − β)/(1 − β^n), sum K, β = 0 before
epoch 160 and 0.9999 from then on.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

import mohs

COUNTS = [5000, 1200, 300, 70, 12]
CLASSES, DIM = len(COUNTS), 8


@pytest.mark.parametrize("epoch", [0, 159, 160, 199])
def test_values_and_gradients(epoch: int) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(50, DIM, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(CLASSES, (50,), generator=generator)
    head = mohs.NormFaceHead(DIM, CLASSES, scale=30.0).double()
    weights = mohs.deferred_weights(torch.tensor(COUNTS), epoch=epoch, start=160, beta=0.9999)
    loss = mohs.LDAMLoss(counts=COUNTS, max_margin=0.5, scale=30.0, weight=weights).double()
    ours = loss(head(features), labels)

    beta = 0.0 if epoch < 160 else 0.9999
    each = [(1 - beta) / (1 - beta**n) for n in COUNTS]
    by_class = [w / sum(each) * CLASSES for w in each]
    largest = max(n**-0.25 for n in COUNTS)
    cosines = normalize(features, dim=1) @ normalize(head.weight, dim=1).t()
    total = torch.zeros((), dtype=torch.float64)
    for row, label in zip(cosines, labels.tolist(), strict=True):
        z = [30 * (c - (0.5 * COUNTS[k] ** -0.25 / largest if k == label else 0)) for k, c in enumerate(row)]
        total = total - by_class[label] * torch.log_softmax(torch.stack(z), 0)[label]
    theirs = total / sum(by_class[label] for label in labels.tolist())
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    ours_by, theirs_by = (torch.autograd.grad(v, (features, head.weight), retain_graph=True) for v in (ours, theirs))
    for a, b in zip(ours_by, theirs_by, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert math.isfinite(ours.item())
