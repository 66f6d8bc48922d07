"""Self-paced learning: only examples with a loss below a threshold count, and the threshold follows the batches.

    ℓ = v(ce) ce                           v is not differentiated; the mean is over all examples, Σ v ce / N
    hard     v = [ce < λ]                  w(p) = v (1 − p)
    linear   v = max(0, 1 − ce/λ)
    λ ← decay · λ + (1 − decay) · q        q: the batch's percentile of ce; the first batch sets λ = q

λ moves in training mode only, before it is used, and is saved with the `state_dict`; until the first batch it is +inf
(cross-entropy). Ignored and NaN rows do not enter q; λ is fixed inside a `torch.func` transform. Each process has its own λ.
If all losses are equal, as with a head of zeros, no loss is below λ and nothing is learned: start with a random head or
some epochs of cross-entropy. The moving percentile replaces MentorNet's curriculum (PD).
Kumar, Packer & Koller, "Self-paced learning for latent variable models" (NIPS 2010); linear weights: Jiang et al.,
"Self-paced curriculum learning" (AAAI 2015); percentile and decay: Jiang et al., "MentorNet" (ICML 2018).
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between, check_choice
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options, reduce
from mohs.losses.cross_entropy import cross_entropy
from mohs.margin import INF, NO_LABEL, is_transformed, margin

KINDS = ("hard", "linear")


@torch.no_grad()
def self_paced_weights(ce: Tensor, threshold: Tensor | float, kind: str = "hard") -> Tensor:
    """v(ce), elementwise, without a gradient; threshold is λ (+inf: all 1)."""
    check_choice("kind", kind, KINDS)
    if kind == "hard":
        return (ce < threshold).to(ce.dtype)
    floor = torch.finfo(ce.dtype).tiny  # λ = 0 keeps only losses of 0
    return (1 - ce / torch.as_tensor(threshold, dtype=ce.dtype, device=ce.device).clamp(min=floor)).clamp(min=0)


def self_paced(ce: Tensor, *, threshold: Tensor | float, kind: str = "hard") -> Tensor:
    """v(ce) ce, elementwise."""
    return self_paced_weights(ce, threshold, kind) * ce


@torch.no_grad()
def next_threshold(threshold: Tensor, ce: Tensor, kept: Tensor, *, percentile: float, decay: float) -> Tensor:
    """λ after a batch of losses ce (N, ...), of which those in the mask `kept` count; unchanged if there are none."""
    last = ce.new_full((1,), torch.nan)  # sorts last: the percentile of an empty batch
    ordered = torch.cat([ce.masked_fill(~kept, torch.nan).flatten(), last]).sort().values
    place = (percentile * ((~ordered.isnan()).sum() - 1)).clamp(min=0).view(1)
    low, high = ordered.gather(0, place.floor().long()), ordered.gather(0, place.ceil().long())
    q = torch.lerp(low, high, (place - place.floor()).to(low)).squeeze(0).to(threshold)
    return torch.where(q.isfinite(), torch.where(threshold == INF, q, decay * threshold + (1 - decay) * q), threshold)


def self_paced_loss(
    logits: Tensor, labels: Tensor, *, threshold: Tensor | float, kind: str = "hard", **options: Unpack[Options]
) -> Tensor:
    """logits (N, K, ...), labels (N, ...) -> scalar, or per example for reduction="none"; threshold is λ."""
    ce = cross_entropy(margin(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL)))
    return reduce(self_paced(ce, threshold=threshold, kind=kind), labels, classes=logits.shape[1], **options)


@module_of(self_paced_loss)
class SelfPacedLoss(LossModule):
    """Self-paced learning as a Module; kind "hard" or "linear", 0 < percentile ≤ 1, 0 ≤ decay < 1. `threshold` is λ."""

    formula = "−v log p,  v = [−log p < λ]"
    purpose = "noisy labels: leaves out the hardest part of each batch"
    kind: str = "hard"
    percentile: float = 0.75
    decay: float = 0.5

    def setup(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_between("percentile", self.percentile, 0, 1, ends="(]")
        check_between("decay", self.decay, 0, 1, ends="[)")
        self.register_buffer("threshold", torch.tensor(INF))

    @property
    def curve(self) -> Curve:
        return lambda m: self_paced(cross_entropy(m), threshold=self.get_buffer("threshold"), kind=self.kind)

    @property
    def over_batch(self) -> bool:
        return True  # through the threshold

    def of_labels(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None) -> Tensor:
        m = margin(logits, labels, ignore_index=self.ignore_index)
        if self.training and not is_transformed(logits):
            old, kept = self.get_buffer("threshold"), labels.long() != self.ignore_index
            old.copy_(next_threshold(old, cross_entropy(m), kept, percentile=self.percentile, decay=self.decay))
        return reduce(self.curve(m), labels, classes=logits.shape[1], sample_weight=sample_weight, **self.options())
