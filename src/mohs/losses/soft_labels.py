"""Soft labels: a probability for each class instead of one class, for any loss that is a curve of the margin.

    L = (1/N) Σᵢ Σ_k t_ik ℓ(m_ik)                m_ik: margin of class k, as if it were the label; t_ik ≥ 0

For cross-entropy this is −Σ t log p, and for one-hot labels it is the plain loss. The rows of t need not sum to 1: a one-hot
label plus a/K for every class is the label's loss plus a times the divergence of p from uniform (CRST's MRKLD).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mohs.margin import all_margins


def soft_label_loss(loss: Callable[..., Any], logits: Tensor, soft: Tensor) -> Tensor:
    """logits (N, K), soft (N, K) -> the mean over examples; loss: a Module with a curve."""
    check_soft(loss)
    if soft.shape != logits.shape:
        raise ValueError(f"soft labels must have the shape of the logits, {tuple(logits.shape)}, got {tuple(soft.shape)}")
    values: Tensor = loss.curve(all_margins(logits))  # type: ignore[attr-defined]
    return (soft.to(values) * values).sum(1).mean()


def check_soft(loss: Callable[..., Any]) -> None:
    """Validate that the loss supports soft labels."""
    name = type(loss).__name__
    if not hasattr(loss, "curve"):
        raise ValueError(
            f"{name} does not support soft labels: it is not a curve of the margin; use cross_entropy or hard labels"
        )
    defaults = {"weight": None, "label_smoothing": 0.0, "reduction": "mean"}
    changed = [option for option, plain in defaults.items() if getattr(loss, option, plain) not in (plain,)]
    if changed:
        raise ValueError(f"{name} with {changed[0]} does not support soft labels; leave {changed[0]} at its default")
