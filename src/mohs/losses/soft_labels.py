"""Probability targets: a probability q_k for every class instead of one class, for any loss that is a curve of the margin.

    ℓ = Σ_k w_k q_k ℓ(m_k)                       m_k: margin of class k, as if it were the label; w: class weights
    label smoothing a replaces q by (1 − a) q + a/K
    mean = Σᵢ ℓᵢ / N, as in `F.cross_entropy`, or Σᵢ sᵢ ℓᵢ / Σᵢ sᵢ with sample weights s

For cross-entropy this is −Σ q log p, and for one-hot targets it is the loss of the label. The targets of Mixup and CutMix are
such shares. The rows of q need not sum to 1: a one-hot label plus a/K for every class is the label's loss plus a times
the divergence of p from uniform (CRST's MRKLD). A class with q_k = 0 does not count, even if its logit is −inf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from mohs.losses._numerics.emphases import known_curve
from mohs.losses._numerics.row_blocks import by_row_blocks
from mohs.losses._reduction import check_reduction, check_weight, spread_sample_weight
from mohs.margin import INF, NO_LABEL, all_margins, check_logits, checked_labels, full_precision, log_probs, readable

Curve = Callable[[Tensor], Tensor]


def soft_label_loss(
    curve: Curve,
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """logits and target (N, K, ...) -> scalar, or (N, ...) for reduction="none"."""
    check_logits(logits)
    check_reduction(reduction)
    if target.shape != logits.shape:
        raise ValueError(
            f"probability targets must have the shape of the logits, {tuple(logits.shape)}, got {tuple(target.shape)}"
        )
    if ignore_index >= 0:
        raise ValueError(f"ignore_index={ignore_index} does not work with probability targets: leave it at {NO_LABEL}")
    classes = logits.shape[1]
    q = target.to(full_precision(logits.dtype))
    if label_smoothing:
        q = (1 - label_smoothing) * q + label_smoothing / classes
    if weight is not None:
        check_weight(weight, classes)
        q = q * weight.to(q).view(-1, *[1] * (q.dim() - 2))
    values = by_row_blocks(partial(_shared, curve), logits, q)  # (N, ...)
    if sample_weight is not None:
        sample_weight = spread_sample_weight(sample_weight, values).to(values)
        values = values * sample_weight
    if reduction == "mean":
        return values.mean() if sample_weight is None else values.sum() / sample_weight.sum()
    return values.sum() if reduction == "sum" else values


def smoothed_terms(
    curve: Curve, logits: Tensor, labels: Tensor, *, weight: Tensor | None, ignore_index: int, margin_of: Callable[..., Tensor]
) -> tuple[Tensor, Tensor]:
    """The two terms of label smoothing, (N, ...) each: ℓ(m_y) of the label, and Σ_k w_k ℓ(m_k) of every class."""
    w = None
    if weight is not None:
        check_weight(weight, logits.shape[1])
        w = weight.to(full_precision(logits.dtype)).view(-1, *[1] * (logits.dim() - 2))
    if known_curve(curve)[0] == "cross_entropy":
        index = checked_labels(logits, labels, ignore_index=ignore_index).unsqueeze(1)
        log_p = log_probs(logits)
        return -log_p.gather(1, index).squeeze(1), -(log_p if w is None else w * log_p).sum(1)
    own = curve(margin_of(logits, labels, ignore_index=ignore_index))
    if w is None:
        return own, by_row_blocks(lambda z: class_losses(curve, z).sum(1), logits)
    return own, by_row_blocks(partial(_shared, curve), logits, w.expand_as(logits))


def class_losses(curve: Curve, logits: Tensor) -> Tensor:
    """ℓ of every class as if it were the label, (N, K, ...); for cross-entropy without margins."""
    return -log_probs(logits) if known_curve(curve)[0] == "cross_entropy" else curve(all_margins(logits))


def _shared(curve: Curve, logits: Tensor, q: Tensor) -> Tensor:
    """Σ_k q_k ℓ(m_k)."""
    losses = class_losses(curve, logits)
    if losses.numel() and not (readable(losses) and losses.detach().amax().item() < INF):
        losses = losses.masked_fill((q == 0) & (losses == INF), 0.0)
    return (q * losses).sum(1)
