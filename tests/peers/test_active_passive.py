"""The losses of "Normalized loss functions for deep learning with noisy labels" (Ma et al., ICML 2020), by their formulas.

p = softmax(z), q: the one-hot label, with a floor for log 0. Active: CE −Σ q log p and FL −Σ q (1 − p)^γ log p, normalized by
their sum over all possible labels (eq. 4). Passive: MAE Σ|p − q| and RCE −Σ p log q.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import one_hot

import mohs

CLASSES, FLOOR, GAMMA = 6, 1e-4, 0.5
generator = torch.Generator().manual_seed(0)
LOGITS = 4 * torch.randn(80, CLASSES, generator=generator, dtype=torch.float64)
LABELS = torch.randint(CLASSES, (80,), generator=generator)
Formula = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

FORMULAS: dict[str, Formula] = {
    "CE": lambda p, q: -(q * p.log()).sum(1),
    "FL": lambda p, q: -(q * (1 - p) ** GAMMA * p.log()).sum(1),
    "MAE": lambda p, q: (p - q).abs().sum(1),
    "RCE": lambda p, q: -(p * q.clamp(min=FLOOR).log()).sum(1),
    "GCE": lambda p, q: (1 - (q * p).sum(1) ** 0.7) / 0.7,
    "SCE": lambda p, q: 0.1 * -(q * p.log()).sum(1) - (p * q.clamp(min=FLOOR).log()).sum(1),
}
LOSSES = {
    "CE": mohs.CrossEntropyLoss(reduction="none"),
    "FL": mohs.FocalLoss(GAMMA, reduction="none"),
    "MAE": mohs.MeanAbsoluteErrorLoss(reduction="none"),
    "RCE": mohs.SymmetricCrossEntropyLoss(alpha=0.0, beta=1.0, floor=FLOOR, reduction="none"),
    "GCE": mohs.GeneralizedCrossEntropyLoss(q=0.7, reduction="none"),
    "SCE": mohs.SymmetricCrossEntropyLoss(alpha=0.1, beta=1.0, floor=FLOOR, reduction="none"),
}


def normalized(value: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """ℓ(y) over Σ_k ℓ(k), eq. 4, for a loss as a function of the labels."""
    every = torch.stack([value(torch.full_like(LABELS, k)) for k in range(CLASSES)], 1)
    return every.gather(1, LABELS.unsqueeze(1)).squeeze(1) / every.sum(1)


@pytest.mark.parametrize("name", FORMULAS)
def test_each_loss_is_its_formula(name: str) -> None:
    z = LOGITS.clone().requires_grad_()
    ours = LOSSES[name](z, LABELS)
    theirs = FORMULAS[name](torch.softmax(z, 1), one_hot(LABELS, CLASSES).double())
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(v.sum(), z)[0] for v in (ours, theirs)))


@pytest.mark.parametrize("passive", ["MAE", "RCE"])
@pytest.mark.parametrize("active", ["CE", "FL"])
def test_an_active_loss_normalized_plus_a_passive_one(active: str, passive: str) -> None:
    z = LOGITS.clone().requires_grad_()
    p = torch.softmax(z, 1)
    ours = normalized(lambda y: LOSSES[active](z, y)) + LOSSES[passive](z, LABELS)
    theirs = normalized(lambda y: FORMULAS[active](p, one_hot(y, CLASSES).double()))
    theirs = theirs + FORMULAS[passive](p, one_hot(LABELS, CLASSES).double())
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(v.sum(), z)[0] for v in (ours, theirs)))
