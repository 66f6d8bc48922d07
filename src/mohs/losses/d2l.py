"""Dimensionality-driven learning (D2L): once the features expand to fit wrong labels, part of each label becomes the prediction.

    LID(x) = −(1/k Σ_{i≤k} log(r_i/r_k))⁻¹        r_1 ≤ … ≤ r_k: distances to the k nearest other examples of the batch
    R = (1 − α) mean of (log p_y − log p_ŷ)       ŷ: predicted class; with cross-entropy: its value for the label α y + (1 − α) ŷ
    α = 1 until the turning point, then exp(−(t/T) · LID_t / min LID)      LID_t: mean of epoch t of T

The local intrinsic dimension of the features first falls and, while wrong labels are memorized, rises again. The turning point is
the first epoch whose LID exceeds the mean of the `window` epochs before it by twice their standard deviation. The authors also
return to the weights of the epoch before and lower the learning rate; this is not implemented. Each process has its own LID.
Ma et al., "Dimensionality-driven learning with noisy labels" (ICML 2018), eqs. 2 and 4, algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_whole
from mohs.losses._drop_in import RegularizerModule
from mohs.losses.cross_entropy import cross_entropy
from mohs.margin import full_precision, is_transformed, margin

RISE = 2.0  # standard deviations


@torch.no_grad()
def batch_lid(features: Tensor, *, neighbors: int = 20) -> Tensor:
    """The local intrinsic dimension of each of the features (N, D), from its nearest others in the batch: (N,)."""
    if features.dim() != 2:
        raise ValueError(f"features must have shape (N, D), got {tuple(features.shape)}")
    x = features.to(full_precision(features.dtype))
    k = min(neighbors, len(x) - 1)
    if k < 2:
        raise ValueError(f"LID needs batches of at least 3 examples, got {len(x)}")
    near = torch.cdist(x, x).topk(k + 1, largest=False).values[:, 1:].clamp(min=torch.finfo(x.dtype).tiny)
    return -1 / (near / near[:, -1:]).log().mean(1).clamp(max=-torch.finfo(x.dtype).eps)


def d2l(logits: Tensor, labels: Tensor, alpha: Tensor | float) -> Tensor:
    """logits (N, K), labels (N,) -> scalar: (1 − α) times the mean of log p_y − log p_ŷ."""
    own = cross_entropy(margin(logits, labels)) - cross_entropy(margin(logits, logits.detach().argmax(1)))
    return -(1 - alpha) * own.mean()


@module_of(d2l)
class D2L(RegularizerModule):
    """D2L as a Module, with cross-entropy at weight 1. `alpha` is α; `lids` (epochs,) are the LIDs so far, NaN after them."""

    formula = "(1 − α)(log p_y − log p_ŷ)"
    purpose = "with cross-entropy, at weight 1: labels give way to predictions when the features start to fit noise"
    takes = ("logits", "labels", "features")
    epochs: int = field(kw_only=False)
    window: int = 12
    neighbors: int = 20

    alpha: ClassVar[Tensor]  # buffers
    lids: ClassVar[Tensor]
    total: ClassVar[Tensor]
    batches: ClassVar[Tensor]

    def setup(self) -> None:
        check_whole("epochs", self.epochs, 1)
        check_whole("window", self.window, 2)
        check_whole("neighbors", self.neighbors, 2)
        self.register_buffer("alpha", torch.ones(()))
        self.register_buffer("lids", torch.full((self.epochs,), torch.nan))
        self.register_buffer("total", torch.zeros(()), persistent=False)
        self.register_buffer("batches", torch.zeros(()), persistent=False)

    def arguments(self) -> dict[str, Any]:
        return {"alpha": self.alpha}

    def forward(self, *inputs: Tensor) -> Tensor:
        logits, labels, features = inputs
        if self.training and len(features) > 2 and not is_transformed(logits):
            self.total.add_(batch_lid(features.detach(), neighbors=self.neighbors).mean())
            self.batches.add_(1)
        return self.function(logits, labels, **self.arguments())

    def end_epoch(self) -> None:
        """Store the epoch's LID and, after the turning point, update α."""
        known = [value for value in self.lids.tolist() if not math.isnan(value)]
        if not self.batches or len(known) == self.epochs:
            return
        known.append(float(self.total / self.batches))
        self.lids[len(known) - 1] = known[-1]
        if turned(known, self.window):
            self.alpha.fill_(math.exp(-len(known) / self.epochs * known[-1] / min(known)))
        self.total.zero_()
        self.batches.zero_()


def turned(lids: list[float], window: int) -> bool:
    """Whether the LIDs of these epochs have passed the turning point."""
    for at in range(window, len(lids)):
        before = torch.tensor(lids[at - window : at], dtype=torch.float64)
        if lids[at] > before.mean() + RISE * before.std(correction=0):
            return True
    return False
