"""Online label smoothing: soft labels that each class learns from its own correct predictions of the epoch before.

    ℓ = (1 − mix) (−log p_y) + mix (−Σ_k S_{yk} log p_k)
    S_y ← mean of softmax(z) over the examples of class y that the epoch classified correctly; 1/K where there were none

The Module collects them in training mode; call `end_epoch()` after each epoch. In the first one S is 0, so that
ℓ = (1 − mix) cross-entropy, as in the authors' CIFAR code, or uniform (`first="uniform"`), as in their fine-grained code.
mix = 0 is cross-entropy. S and the running sums are saved with the `state_dict`. Ignored and NaN rows are not collected,
nor is anything inside a `torch.func` transform. A class `weight` multiplies the whole loss of its examples. Each process
collects its own, `end_epoch()` adds them up (call it on all); keep the Module in float32.
Zhang et al., "Delving deep into label smoothing" (IEEE TIP 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from mohs._core.distributed import add_over_ranks
from mohs._core.validation import check_between, check_choice
from mohs.losses._drop_in import Options, become_module, rebuildable, reduce, settings
from mohs.losses._numerics.class_table import check_table, is_transformed, rows_of, soft_cross_entropy
from mohs.margin import NO_LABEL, checked_labels, log_probs


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
    """The softmax outputs of correctly classified examples, summed by class (K, K), and how many there were (K,)."""
    index = checked_labels(logits, labels, ignore_index=ignore_index).flatten()
    classes = logits.shape[1]
    probs = log_probs(logits).exp().movedim(1, -1).reshape(-1, classes)
    top, guess = probs.max(1)
    right = (guess == index) & (labels.long().flatten() != ignore_index) & top.isfinite()
    sums = probs.new_zeros(classes, classes).index_add_(0, index, probs.masked_fill(~right.unsqueeze(1), 0.0))
    return sums, index.new_zeros(classes).index_add_(0, index, right.long())


def next_soft_labels(sums: Tensor, counts: Tensor) -> Tensor:
    """S (K, K) from the epoch's sums (K, K) and counts (K,): each class's mean, uniform where it has no example."""
    means = sums / counts.clamp(min=1).unsqueeze(1)
    return torch.where(counts.unsqueeze(1) > 0, means, 1 / len(counts))


@dataclass(eq=False, repr=False, kw_only=True)
class OnlineSmoothingLoss(nn.Module):
    """Online label smoothing as a Module; mix in [0, 1] is the soft labels' share, first their start: "zero" or "uniform"."""

    formula: ClassVar[str] = "−(1 − mix) log p − mix Σ_k S_yk log p_k"
    purpose: ClassVar[str] = "label smoothing that learns which classes are alike"
    num_classes: int
    mix: float = 0.5
    first: str = "zero"
    weight: Tensor | None = field(default_factory=lambda: None)
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        become_module(self)
        check_between("num_classes", self.num_classes, 2)
        check_between("mix", self.mix, 0, 1)
        check_choice("first", self.first, ("zero", "uniform"))
        sums, counts = torch.zeros(self.num_classes, self.num_classes), torch.zeros(self.num_classes, dtype=torch.long)
        self.register_buffer("soft_labels", next_soft_labels(sums, counts) if self.first == "uniform" else sums.clone())
        self.register_buffer("sums", sums)
        self.register_buffer("counts", counts)

    def end_epoch(self) -> None:
        """Make what was collected since the last call the soft labels from here on, and start collecting anew."""
        sums, counts = (add_over_ranks(self.get_buffer(name)) for name in ("sums", "counts"))
        self.get_buffer("soft_labels").copy_(next_soft_labels(sums, counts))
        sums.zero_()
        counts.zero_()

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        options = {name: value for name, value in settings(self).items() if name not in ("num_classes", "first")}
        soft_labels = self.get_buffer("soft_labels")
        value = online_smoothing_loss(logits, labels, soft_labels=soft_labels, sample_weight=sample_weight, **options)
        if self.training and not is_transformed(logits):
            sums, counts = correct_softmax(logits, labels, ignore_index=self.ignore_index)
            self.get_buffer("sums").add_(sums)
            self.get_buffer("counts").add_(counts)
        return value

    __repr__ = rebuildable
