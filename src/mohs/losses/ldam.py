"""Label-distribution-aware margin loss: cross-entropy with larger margins for rarer classes.

    ℓ = softplus(s Δ_y − m)                                   cross-entropy on logits whose label's is z_y − s Δ_y
    Δ_j = max_margin · n_j^{−1/4} / max_k n_k^{−1/4}          n_j examples of class j: the rarest gets max_margin
    ∂ℓ/∂z = q − e_y                                           q: softmax of those logits

The logits must come from a normalized head and include its scale s (z = s cos θ), so the margin Δ, which is in units of
the cosine, is multiplied by s here; the authors' code multiplies the cosines in the loss instead, with the same result.
`scale` must be the head's; for a plain linear head scale=1 puts the margin in units of the logits.
max_margin = 0 is cross-entropy. Every class needs an example. Often combined with `deferred_weights`.
Cao et al., "Learning imbalanced datasets with label-distribution-aware margin loss" (NeurIPS 2019).
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._class_table import hold_table
from mohs.losses._drop_in import LossModule
from mohs.losses._reduction import Options, reduce
from mohs.losses.class_weights import check_counts, checked_counts
from mohs.losses.cross_entropy import cross_entropy
from mohs.margin import NO_LABEL, checked_labels, margin


def ldam_margins(counts: Tensor, *, max_margin: float = 0.5) -> Tensor:
    """counts (K,) of at least 1 -> Δ (K,)."""
    return max_margin * (counts.min() / counts) ** 0.25


def ldam_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    counts: Tensor,
    max_margin: float = 0.5,
    scale: float = 30.0,
    **options: Unpack[Options],
) -> Tensor:
    """logits (N, K, ...), labels (N, ...), counts (K,) -> scalar, or per example for reduction="none"."""
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
    counts = checked_counts(counts, logits.shape[1])
    m = margin(logits, index)
    m = m - scale * ldam_margins(counts.to(m), max_margin=max_margin)[index]
    return reduce(cross_entropy(m), labels, classes=logits.shape[1], **options)


@module_of(ldam_loss)
class LDAMLoss(LossModule):
    """LDAM as a Module; counts (K,) of the training labels, max_margin ≥ 0 in cosines, scale > 0 the scale of the head."""

    formula = "−log softmax(z − s Δ_y e_y)_y"
    purpose = "imbalanced classes: larger margins for the rare, on a normalized head"
    counts: Tensor
    max_margin: float = 0.5
    scale: float = 30.0

    def setup(self) -> None:
        check_counts(hold_table(self, "counts"))
        check_between("max_margin", self.max_margin, 0)
        if not self.scale > 0:
            raise ValueError(f"scale must be over 0, got {self.scale}; use the head's scale, or 1 for a plain linear head")
