"""Measurements of logits and features: one number per example, without gradient.

    confidence p = σ(m)     margin m     loss −log p     gap z_y − max_{k≠y} z_k     el2n ‖softmax(z) − e_y‖₂
    entropy −Σ p log p      energy −log Σ e^z (free) or −max z                       norm ‖x‖₂

Signs are the natural ones; SCORES flips them so that higher means harder.
Energy: Liu et al. (NeurIPS 2020); EL2N: Paul, Ganguli & Dziugaite (NeurIPS 2021); gap: Pleiss et al. (NeurIPS 2020).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.validation import check_choice
from mohs.angle import check_vectors
from mohs.losses._numerics.label_error import softmax_square
from mohs.margin import check_logits, checked_labels, full_precision, log_probs, margin, softplus


@torch.no_grad()
def measure_logits(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """All measurements of logits (N, K) and labels (N,), by column name."""
    m = margin(logits, labels)
    return {
        "predicted": logits.argmax(1),
        "confidence": torch.sigmoid(m),
        "top_confidence": log_probs(logits).amax(1).exp(),
        "margin": m,
        "loss": softplus(-m),
        "el2n": el2n(logits, labels),
        "entropy": entropy(logits),
        "energy": energy(logits),
    }


@torch.no_grad()
def gap(logits: Tensor, labels: Tensor) -> Tensor:
    """The label's logit minus the largest other (N,): averaged by AUM, and shown in Encouraging Loss's Figure 6."""
    index = checked_labels(logits, labels).unsqueeze(1)
    z = logits.to(full_precision(logits.dtype))
    return (z.gather(1, index) - z.scatter(1, index, -torch.inf).amax(1, keepdim=True)).squeeze(1)


@torch.no_grad()
def el2n(logits: Tensor, labels: Tensor) -> Tensor:
    """Length of softmax(z) − e_y (N,), from 0 to √2."""
    return softmax_square(logits, checked_labels(logits, labels).unsqueeze(1)).sqrt()


@torch.no_grad()
def entropy(logits: Tensor) -> Tensor:
    """Entropy of the prediction (N,), in nats."""
    check_logits(logits, classes=2)
    log_p = log_probs(logits)
    return -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(1)  # a masked class adds 0 · −∞ = 0


@torch.no_grad()
def energy(logits: Tensor, *, kind: str = "free") -> Tensor:
    """Minus the log-sum-exp of the logits ("free") or minus the largest ("max_logit"), (N,): higher = less like the data."""
    check_choice("kind", kind, ("free", "max_logit"))
    check_logits(logits, classes=2)
    z = logits.to(full_precision(logits.dtype))
    return -(z.logsumexp(1) if kind == "free" else z.amax(1))


@torch.no_grad()
def norm(features: Tensor) -> Tensor:
    """Length of each feature vector (N,)."""
    check_vectors("features", features)
    lengths: Tensor = torch.linalg.vector_norm(features.to(full_precision(features.dtype)), dim=-1)
    return lengths


@torch.no_grad()
def norm_in_class(norms: Tensor, labels: Tensor) -> Tensor:
    """Norms (N,) scaled from 0 to 1 within each label's class, as AVH's Hypothesis 4 tests them; 0 in a class whose norms are all
    equal.

    A norm that is NaN or infinite gives NaN in its own row and does not affect its class.
    """
    norms = norms.where(norms.isfinite(), torch.nan)
    known = norms.isfinite()
    _, group = torch.unique(labels, return_inverse=True)
    groups = int(group.max()) + 1 if group.numel() else 0
    low = norms.new_full((groups,), torch.inf).scatter_reduce(0, group[known], norms[known], "amin")
    high = norms.new_full((groups,), -torch.inf).scatter_reduce(0, group[known], norms[known], "amax")
    span = (high - low).masked_fill(high == low, 1.0)
    return (norms - low[group]) / span[group]
