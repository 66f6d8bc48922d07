"""Loss correction: cross-entropy for noisy labels with a known transition matrix, T[i, j] = P(given j | true i).

    forward    ℓ = −log Σ_k T_{k y} p_k                       ∂ℓ/∂z_j = p_j (1 − T_{j y} / Σ_k T_{k y} p_k)
    backward   ℓ = −Σ_k a_k log p_k,  a = row y of T⁻¹        ∂ℓ/∂z_j = p_j − a_j    (a sums to 1)

T = I is cross-entropy. Forward's minimizer is the clean posterior; backward is cross-entropy on clean labels in
expectation, but has entries a_k < 0, hence no lower bound, and needs T to be invertible. A label that T never
gives has forward loss +inf. Forward is computed in log space; the Module inverts T once, the function at each call unless
`inverse` is given. T must be estimated beforehand; `symmetric_transition` and `pair_transition` are the usual choices.
Patrini et al., "Making deep neural networks robust to label noise: a loss correction approach" (CVPR 2017),
theorems 1 (backward) and 2 (forward).
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs.losses._class_table import check_table, hold_table, number_table, rows_of, soft_cross_entropy
from mohs.losses._drop_in import LossModule
from mohs.losses._reduction import Options, reduce
from mohs.losses.transition import check_transition, inverse_transition
from mohs.margin import INF, NO_LABEL, checked_labels, log_probs, readable


def forward_loss(logits: Tensor, labels: Tensor, *, transition: Tensor, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...), transition (K, K) -> scalar, or per example for reduction="none"."""
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
    transition = _validated(transition, classes=logits.shape[1])
    log_p = log_probs(logits)
    from_class = rows_of(transition.to(log_p).t(), index)  # T_{k y} over the true classes k (N, K, ...)
    ignored = (labels == options.get("ignore_index", NO_LABEL)).unsqueeze(1)
    terms = (log_p + from_class.log()).masked_fill(ignored, 0.0)  # an ignored row may have no class with p > 0 and T > 0
    return reduce(-torch.logsumexp(terms, 1), labels, classes=logits.shape[1], **options)


def backward_loss(
    logits: Tensor, labels: Tensor, *, transition: Tensor, inverse: Tensor | None = None, **options: Unpack[Options]
) -> Tensor:
    """logits (N, K, ...), labels (N, ...), transition (K, K) -> scalar, or per example for reduction="none"."""
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
    transition = _validated(transition, classes=logits.shape[1])
    inverse = inverse_transition(transition) if inverse is None else inverse
    log_p = log_probs(logits)
    known = log_p.masked_fill(log_p == -INF, 0.0)  # masked classes do not count
    values = soft_cross_entropy(known, rows_of(inverse.to(log_p), index))
    return reduce(values, labels, classes=logits.shape[1], **options)


def _validated(transition: Tensor, *, classes: int) -> Tensor:
    transition = number_table("transition", transition)
    check_table("transition", transition, (classes, classes))
    if readable(transition):
        check_transition(transition)
    return transition


@module_of(forward_loss)
class ForwardLoss(LossModule):
    """Forward correction as a Module; transition (K, K): T[i, j] = P(given j | true i)."""

    formula = "−log Σ_k T_ky p_k"
    purpose = "noisy labels whose transition matrix is known: the stable correction"
    transition: Tensor

    def setup(self) -> None:
        check_transition(hold_table(self, "transition"))


@module_of(backward_loss)
class BackwardLoss(LossModule):
    """Backward correction as a Module; transition (K, K) as for `ForwardLoss`, and invertible."""

    formula = "−Σ_k (T⁻¹)_yk log p_k"
    purpose = "noisy labels whose transition matrix is known: the unbiased correction"
    transition: Tensor

    def setup(self) -> None:
        check_transition(transition := hold_table(self, "transition"))
        self.register_buffer("inverse", inverse_transition(transition), persistent=False)

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"inverse": self.get_buffer("inverse")}
