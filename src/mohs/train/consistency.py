"""Consistency of two views: the network's prediction on an image is the target for a strongly augmented view of it.

    q ∝ (p(x) π / m)^(1/T),      R = mean of −⟨q, log p(x′)⟩                x: first view; x′: second, strongly augmented view

q gets no gradient. π are the class shares of the labels and m is the running mean of p by class: distribution alignment, which
keeps hard classes from dying out. Labels are not used, so wrong ones do no harm here, and a network that must find the same class
in very different views has less capacity to memorize them.
Xie et al., "Unsupervised data augmentation" (NeurIPS 2020); Berthelot et al., "ReMixMatch" (ICLR 2020) for the alignment.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mohs._core.distributed import add_over_ranks, ranks

LEAST = 1e-6


class Consistency(nn.Module):
    """`Consistency(shares)`: called with the predictions of first views (N, K) and the logits of second views (N, K)."""

    takes = ("guess", "second")
    shares: Tensor
    mean: Tensor

    def __init__(self, shares: Tensor, *, temperature: float = 1.0, momentum: float = 0.99) -> None:
        super().__init__()
        self.temperature, self.momentum = temperature, momentum
        self.register_buffer("shares", shares.clone())
        self.register_buffer("mean", shares.clone())

    def forward(self, guess: Tensor, second: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.lerp_(guess.mean(0), 1 - self.momentum)
            aligned = (guess * (self.shares / self.mean.clamp(min=LEAST))).pow(1 / self.temperature)
            aligned = aligned / aligned.sum(1, keepdim=True)
        return -(aligned * torch.log_softmax(second.float(), 1)).sum(1).mean()

    def end_epoch(self) -> None:
        """Average the running mean over processes, each of which saw its part of the batches."""
        self.mean.copy_(add_over_ranks(self.mean.clone()) / ranks()[1])
