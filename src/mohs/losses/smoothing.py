"""Online label smoothing: soft labels per class, learned from the correct predictions of the previous epoch.

    ℓ = (1 − mix) (−log p_y) + mix (−Σ_k S_{yk} log p_k)
    S_y ← mean of softmax(z) over the epoch's correctly classified examples of class y; 1/K if there are none

The Module collects them in training mode; call `end_epoch()` after each epoch. In the first epoch S is 0, so that
ℓ = (1 − mix) cross-entropy, as in the authors' CIFAR code, or uniform (`first="uniform"`), as in their fine-grained code.
mix = 0 is cross-entropy. S and the running sums are saved with the `state_dict`. Ignored and NaN rows are not collected,
and nothing is collected inside a `torch.func` transform. A class `weight` multiplies the whole loss of its examples. Each
process collects its own sums, and `end_epoch()` adds them over processes (call it on all); keep the Module in float32.
Zhang et al., "Delving deep into label smoothing" (IEEE TIP 2021).
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.distributed import add_over_ranks
from mohs._core.validation import check_between, check_choice, check_whole
from mohs.losses._class_table import check_table, rows_of, soft_cross_entropy
from mohs.losses._drop_in import LossModule
from mohs.losses._reduction import Options, reduce
from mohs.margin import NO_LABEL, checked_labels, is_transformed, log_probs


def online_smoothing_loss(
    logits: Tensor, labels: Tensor, *, soft_labels: Tensor, mix: float = 0.5, **options: Unpack[Options]
) -> Tensor:
    """logits (N, K, ...), labels (N, ...), soft_labels S (K, K) -> scalar, or per example for reduction="none"."""
    index = checked_labels(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
    classes = logits.shape[1]
    check_table("soft_labels (num_classes × num_classes)", soft_labels, (classes, classes))
    log_p = log_probs(logits)
    soft = soft_cross_entropy(log_p, rows_of(soft_labels.to(log_p), index))
    hard = -log_p.gather(1, index.unsqueeze(1)).squeeze(1)
    return reduce((1 - mix) * hard + mix * soft, labels, classes=classes, **options)


@torch.no_grad()
def correct_softmax(logits: Tensor, labels: Tensor, *, ignore_index: int = NO_LABEL) -> tuple[Tensor, Tensor]:
    """The softmax outputs of correctly classified examples, summed by class (K, K), and their counts (K,)."""
    index = checked_labels(logits, labels, ignore_index=ignore_index).flatten()
    classes = logits.shape[1]
    probs = log_probs(logits).exp().movedim(1, -1).reshape(-1, classes)
    top, predicted = probs.max(1)
    correct = (predicted == index) & (labels.long().flatten() != ignore_index) & top.isfinite()
    sums = probs.new_zeros(classes, classes).index_add_(0, index, probs.masked_fill(~correct.unsqueeze(1), 0.0))
    return sums, index.new_zeros(classes).index_add_(0, index, correct.long())


def next_soft_labels(sums: Tensor, counts: Tensor) -> Tensor:
    """S (K, K) from the epoch's sums (K, K) and counts (K,): each class's mean, uniform for a class without examples."""
    means = sums / counts.clamp(min=1).unsqueeze(1)
    return torch.where(counts.unsqueeze(1) > 0, means, 1 / len(counts))


@module_of(online_smoothing_loss)
class OnlineSmoothingLoss(LossModule):
    """Online label smoothing as a Module; mix in [0, 1]: share of the soft labels; first: their start, "zero" or "uniform"."""

    formula = "−(1 − mix) log p − mix Σ_k S_yk log p_k"
    purpose = "label smoothing that learns which classes are similar"
    num_classes: int
    mix: float = 0.5
    first: str = "zero"

    def setup(self) -> None:
        check_whole("num_classes", self.num_classes, 2)
        check_between("mix", self.mix, 0, 1)
        check_choice("first", self.first, ("zero", "uniform"))
        sums, counts = torch.zeros(self.num_classes, self.num_classes), torch.zeros(self.num_classes, dtype=torch.long)
        self.register_buffer("soft_labels", next_soft_labels(sums, counts) if self.first == "uniform" else sums.clone())
        self.register_buffer("sums", sums)
        self.register_buffer("counts", counts)

    def end_epoch(self) -> None:
        """Turn the sums collected since the last call into the new soft labels, and reset the sums."""
        sums, counts = (add_over_ranks(self.get_buffer(name)) for name in ("sums", "counts"))
        self.get_buffer("soft_labels").copy_(next_soft_labels(sums, counts))
        sums.zero_()
        counts.zero_()

    def arguments(self) -> dict[str, Any]:
        return self.options() | {"mix": self.mix, "soft_labels": self.get_buffer("soft_labels")}

    def of_labels(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None) -> Tensor:
        value = super().of_labels(logits, labels, sample_weight)
        if self.training and not is_transformed(logits):
            sums, counts = correct_softmax(logits, labels, ignore_index=self.ignore_index)
            self.get_buffer("sums").add_(sums)
            self.get_buffer("counts").add_(counts)
        return value
