"""Focal loss of torchvision (two classes) and of kornia (several): values and gradients."""

from __future__ import annotations

import warnings

import pytest
import torch

import mohs


def two(alpha: float | None, gamma: float) -> tuple[torch.Tensor, torch.Tensor, mohs.FocalLoss]:
    generator = torch.Generator().manual_seed(0)
    logits = 6 * torch.randn(200, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (200,), generator=generator)
    return logits.requires_grad_(), labels, mohs.FocalLoss(gamma, alpha=alpha, reduction="none")


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
@pytest.mark.parametrize("alpha", [None, 0.25, 0.9])
def test_torchvision(alpha: float | None, gamma: float) -> None:
    ops = pytest.importorskip("torchvision.ops", reason="torchvision is not installed (the vision extra)")
    z, labels, loss = two(alpha, gamma)
    ours = loss(torch.stack([torch.zeros_like(z), z], 1), labels)  # the log-odds of class 1
    theirs = ops.sigmoid_focal_loss(z, labels.double(), alpha=-1 if alpha is None else alpha, gamma=gamma)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(value.sum(), z)[0] for value in (ours, theirs)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("alpha", [None, 0.25])
def test_kornia(alpha: float | None, gamma: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about torch.jit
        losses = pytest.importorskip("kornia.losses", reason="kornia is not installed")
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(30, 5, 4, generator=generator, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(5, (30, 4), generator=generator)
    ours = mohs.FocalLoss(gamma, alpha=alpha)(logits, labels)
    theirs = losses.focal_loss(logits, labels, alpha=alpha, gamma=gamma, reduction="none").sum() / labels.numel()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(value, logits)[0] for value in (ours, theirs)))
