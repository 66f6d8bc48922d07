"""The probability that a label is right, from logits of a model that did not see it, fitted by maximum likelihood.

    p = softmax(z/τ)                          τ: temperature; p then is the probability of each true class
    P(given = g) = Σ_t p_t T[t, g]            T[t, g]: how often an example of class t is labeled g
    q = p_y T[y, y] / P(given = y)            P(the given label is right), by Bayes

τ and T are those under which the given labels are likeliest (T by expectation maximization for each τ tried): mistakes near
the boundary raise τ, labels that sure predictions contradict fill T beside its diagonal. Each row of T is drawn to even
noise at the rate ρ = Σ (1 − q)/N as if by 50 more examples. The labels must have had no part in their own logits, and the model
should be trained with a robust loss: one that believes wrong labels which favor a class pair shows them as ambiguity (τ).
Pairs of classes that the features hardly tell apart are in part taken for noise.
The noise model is that of Patrini et al., "Making deep neural networks robust to label noise" (CVPR 2017), the temperature
that of Guo et al., "On calibration of modern neural networks" (ICML 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST_ROWS, MOST_ENTRIES = 20_000, 4_000_000  # fitted to, evenly drawn: more change no digit that matters
GRID = tuple(-3 + 0.75 * i for i in range(7))  # log τ over the logits' own scale, where the search begins
STRENGTH = 50.0  # examples that even noise counts for in each row of T
ROUNDS, SETTLED, RAREST = 60, 1e-6, 1e-6
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """τ, the share ρ of wrong labels, and T[true, given] (K, K); `right(logits, labels)` is q."""

    temperature: float
    rate: float
    transition: Tensor = field(repr=False)

    @torch.no_grad()
    def right(self, logits: Tensor, labels: Tensor) -> Tensor:
        """logits (N, K), labels (N,) -> P(the given label is right) (N,), in float64; NaN where logits are."""
        log_t = self.transition.log()
        made = []
        for start in range(0, len(labels), MOST_ROWS):
            z, y = logits[start : start + MOST_ROWS], labels[start : start + MOST_ROWS].long()
            joint = torch.log_softmax(z.double() / self.temperature, 1) + log_t.T[y]  # (n, K)
            made.append((joint.gather(1, y.unsqueeze(1)).squeeze(1) - joint.logsumexp(1)).exp())
        return torch.cat(made) if made else torch.empty(0, dtype=torch.float64)


@torch.no_grad()
def fit_noise(logits: Tensor, labels: Tensor) -> NoiseFit:
    """τ, ρ and T for out-of-sample logits (N, K) and the given labels (N,); rows with NaN or ∞ are left out."""
    from scipy.optimize import minimize_scalar

    if logits.dim() != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"logits must be (N, K) and labels (N,), got {tuple(logits.shape)} and {tuple(labels.shape)}")
    sound = logits.isfinite().all(1)
    if not sound.any():
        raise ValueError("logits hold no row without NaN or infinity: there is nothing to fit")
    most = max(1, min(MOST_ROWS, MOST_ENTRIES // logits.shape[1]))
    step = -(-int(sound.sum()) // most)
    z, y = logits[sound][::step].double(), labels[sound][::step].long()
    z = z - z.mean(1, keepdim=True)
    size = float(z.square().mean().sqrt()) or 1.0

    def unlikely(log_tau: float) -> float:
        return -transition(torch.softmax(z / (size * math.exp(log_tau)), 1), y)[0]

    tried = [unlikely(log_tau) for log_tau in GRID]
    best = GRID[tried.index(min(tried))]
    width = GRID[1] - GRID[0]
    found = minimize_scalar(unlikely, bounds=(best - width, best + width), method="bounded", options={"xatol": 0.02})
    tau = size * math.exp(float(found.x))
    _, rate, table = transition(torch.softmax(z / tau, 1), y)
    return NoiseFit(temperature=tau, rate=rate, transition=table)


def transition(probs: Tensor, labels: Tensor) -> tuple[float, float, Tensor]:
    """The mean log-likelihood with its prior, ρ and T[true, given] (K, K) for probs (N, K) by expectation maximization."""
    n, classes = probs.shape
    table, before = even_noise(0.1, classes), -math.inf
    for _ in range(ROUNDS):
        joint = probs * table.T[labels]
        given = joint.sum(1, keepdim=True).clamp(min=1e-300)
        counts = probs.new_zeros(classes, classes).index_add_(0, labels, joint / given).T  # (true, given)
        rate = min(max(1 - float(counts.trace()) / n, RAREST), 1 - 1 / classes)
        even = even_noise(rate, classes)
        value = float(given.log().sum() + STRENGTH * (even * (table / even).log()).sum()) / n
        table = (counts + STRENGTH * even) / (counts.sum(1, keepdim=True) + STRENGTH)
        if value - before < SETTLED:
            break
        before = value
    return value, rate, table


def even_noise(rate: float, classes: int) -> Tensor:
    """T (K, K) of labels of which this share is wrong, all other classes alike."""
    table = torch.full((classes, classes), rate / (classes - 1), dtype=torch.float64)
    return table.fill_diagonal_(1 - rate)
