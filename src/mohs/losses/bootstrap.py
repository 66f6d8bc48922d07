"""Bootstrapping: noisy labels mixed with the model's own predictions.

    soft   ℓ = −Σ_k (b [k = y] + (1 − b) p_k) log p_k = −b log p_y + (1 − b) H(p)
           ∂ℓ/∂z_j = b (p_j − [j = y]) − (1 − b) p_j (log p_j + H)      the first term alone if the target is held constant
    hard   ℓ = −b log p_y − (1 − b) log max_k p_k                       ∂ℓ/∂z = p − b e_y − (1 − b) e_top

b = 1 is cross-entropy. As published, soft's target is differentiated, which makes it a penalty on entropy; with
`detach=True` its value is the same and its gradient b times cross-entropy's. Not curves of the margin.
Reed et al., "Training deep neural networks on noisy labels with bootstrapping" (ICLR 2015 workshop).
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between
from mohs.losses._drop_in import LossModule
from mohs.losses._reduction import Options, reduce
from mohs.margin import NO_LABEL, checked_labels, log_probs


def bootstrap_soft_loss(
    logits: Tensor, labels: Tensor, *, trust: float = 0.95, detach: bool = False, **options: Unpack[Options]
) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"; trust is b."""
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL)).unsqueeze(1)
    log_p = log_probs(logits)
    target = (log_p.detach() if detach else log_p).exp()
    entropy = -(target * log_p.masked_fill(target == 0, 0.0)).sum(1)  # 0 log 0 = 0 for a masked class
    values = (1 - trust) * entropy - trust * log_p.gather(1, index).squeeze(1)
    return reduce(values, labels, classes=logits.shape[1], **options)


def bootstrap_hard_loss(logits: Tensor, labels: Tensor, *, trust: float = 0.8, **options: Unpack[Options]) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"; trust is b."""
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL)).unsqueeze(1)
    log_p = log_probs(logits)
    top = log_p.detach().argmax(1, keepdim=True)
    values = -(1 - trust) * log_p.gather(1, top) - trust * log_p.gather(1, index)
    return reduce(values.squeeze(1), labels, classes=logits.shape[1], **options)


@module_of(bootstrap_soft_loss)
class BootstrapSoftLoss(LossModule):
    """Soft bootstrapping as a Module; trust in [0, 1] is the share of the given label; detach: hold the target constant."""

    formula = "−b log p + (1 − b) H"
    purpose = "noisy labels: mixed with the predicted distribution"
    trust: float = 0.95
    detach: bool = False

    def setup(self) -> None:
        check_between("trust", self.trust, 0, 1)


@module_of(bootstrap_hard_loss)
class BootstrapHardLoss(LossModule):
    """Hard bootstrapping as a Module; trust in [0, 1] is the share of the given label, 1 − trust that of the predicted class."""

    formula = "−b log p − (1 − b) log max p_k"
    purpose = "noisy labels: mixed with the predicted class"
    trust: float = 0.8

    def setup(self) -> None:
        check_between("trust", self.trust, 0, 1)
