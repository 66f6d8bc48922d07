"""Early-learning regularization: keeps the prediction on every example close to early predictions, made before the network
memorizes.

    tᵢ ← β tᵢ + (1 − β) pᵢ                       target of example i: running mean of its predictions, one update per epoch
    R = mean of log(1 − ⟨pᵢ, tᵢ⟩)                weight λ in the objective: 3 for few wrong labels, up to 7 for many
    dR/dz_k = p_k (⟨p, t⟩ − t_k)/(1 − ⟨p, t⟩)     pulls toward the target, and cancels cross-entropy's pull to a wrong label

Networks fit correct labels first. The term keeps the gradient of correctly labeled examples alive and offsets that of wrong
ones, so plain cross-entropy with it hardly memorizes. Probabilities are clamped to [1e-4, 1 − 1e-4] and normalized again, as in
the authors' code. The targets are one row per training example and move with the Module; ranks merge theirs at the end of an
epoch. `targets` (N, K) is also a temporal ensemble of predictions, from which wrong labels are found.
Liu et al., "Early-learning regularization prevents memorization of noisy labels" (NeurIPS 2020), eqs. 6 and 9.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.distributed import add_over_ranks
from mohs._core.validation import check_between, check_whole
from mohs.losses._drop_in import RegularizerModule
from mohs.margin import INTEGERS, full_precision, readable

FLOOR = 1e-4


def early_learning(logits: Tensor, targets: Tensor) -> Tensor:
    """logits (N, K), targets (N, K) -> scalar: the mean of log(1 − ⟨p, t⟩); the targets get no gradient."""
    if logits.dim() != 2 or targets.shape != logits.shape:
        raise ValueError(f"logits and targets must both be (N, K), got {tuple(logits.shape)} and {tuple(targets.shape)}")
    inner = (clamped_probs(logits) * targets.detach()).sum(1)
    return torch.log1p(-inner.clamp(max=1 - FLOOR)).mean()


def clamped_probs(logits: Tensor) -> Tensor:
    """Softmax in float32 at least, clamped away from 0 and 1."""
    return torch.softmax(logits.to(full_precision(logits.dtype)), 1).clamp(FLOOR, 1 - FLOOR)


@module_of(early_learning)
class EarlyLearning(RegularizerModule):
    """Early-learning regularization as a Module, called with the logits and the examples' ids."""

    formula = "log(1 − ⟨p, t⟩)"
    purpose = "with cross-entropy, at weight 3: wrong labels are not memorized"
    takes = ("logits", "ids")
    num_examples: int = field(kw_only=False)
    num_classes: int = field(kw_only=False)
    momentum: float = 0.7

    targets: ClassVar[Tensor]  # buffers
    seen: ClassVar[Tensor]

    def setup(self) -> None:
        check_whole("num_examples", self.num_examples, 1)
        check_whole("num_classes", self.num_classes, 2)
        check_between("momentum", self.momentum, 0, 1)
        self.register_buffer("targets", torch.zeros(self.num_examples, self.num_classes))
        self.register_buffer("seen", torch.zeros(self.num_examples), persistent=False)

    def forward(self, *inputs: Tensor) -> Tensor:
        logits, ids = inputs
        self._check(logits, ids)
        ids = ids.long()
        if self.training:
            with torch.no_grad():
                p = clamped_probs(logits.detach())
                p = p / p.sum(1, keepdim=True)
                self.targets.index_copy_(0, ids, self.momentum * self.targets[ids] + (1 - self.momentum) * p.to(self.targets))
                self.seen.index_fill_(0, ids, 1.0)
        return early_learning(logits, self.targets[ids])

    def _check(self, logits: Tensor, ids: Tensor) -> None:
        """Validate the shapes and, on CPU, the range of the ids."""
        if logits.dim() != 2 or logits.shape[1] != self.num_classes or ids.shape != logits.shape[:1]:
            raise ValueError(
                f"logits must have shape (N, {self.num_classes}) and ids (N,), got {tuple(logits.shape)} and {tuple(ids.shape)}"
            )
        if ids.dtype not in INTEGERS:
            raise ValueError(f"ids must be integers, got {ids.dtype}")
        if readable(ids) and ids.numel() and not (ids.min() >= 0 and ids.max() < self.num_examples):
            raise ValueError(
                f"ids must lie in 0..{self.num_examples - 1}, as mohs.WithIds numbers {self.num_examples} training examples, "
                f"got {int(ids.min())} to {int(ids.max())}"
            )

    def end_epoch(self) -> None:
        """Merge the targets over the ranks: each example was seen by one of them."""
        seen = add_over_ranks(self.seen.clone()).unsqueeze(1)
        total = add_over_ranks(self.targets * self.seen.unsqueeze(1))
        self.targets.copy_(torch.where(seen > 0, total / seen.clamp(min=1), self.targets))
        self.seen.zero_()
