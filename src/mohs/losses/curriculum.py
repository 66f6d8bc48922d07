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

import math
from collections.abc import Callable
from functools import partial
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between, check_choice
from mohs.losses._curve_loss import by_emphasis
from mohs.losses._drop_in import Curve, LossModule
from mohs.losses._reduction import Options, reduce
from mohs.losses.cross_entropy import cross_entropy
from mohs.margin import INF, NO_LABEL, is_transformed, margin, plain_margin, softplus
from mohs.margin._choose import Plain, takes

KINDS = ("hard", "linear")
FEW = 512  # up to this many losses, sorting is as fast as partitioning


def self_paced_weights(ce: Tensor, threshold: Tensor | float, kind: str = "hard") -> Tensor:
    """v(ce), elementwise, without a gradient; threshold is λ (+inf: all 1)."""
    check_choice("kind", kind, KINDS)
    if kind == "hard":
        return (ce < threshold).to(ce.dtype)
    floor = torch.finfo(ce.dtype).tiny  # λ = 0 keeps only losses of 0
    level = torch.as_tensor(threshold, dtype=ce.dtype, device=ce.device).detach()
    return (1 - ce.detach() / level.clamp(min=floor)).clamp(min=0)


def self_paced(ce: Tensor, *, threshold: Tensor | float, kind: str = "hard") -> Tensor:
    """v(ce) ce, elementwise."""
    return self_paced_weights(ce, threshold, kind) * ce


@torch.no_grad()
def next_threshold(threshold: Tensor, ce: Tensor, kept: Tensor, *, percentile: float, decay: float) -> Tensor:
    """λ after a batch of losses ce (N, ...), counting only those in the mask `kept`; unchanged if there are none."""
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
        moves = self.training and not is_transformed(logits)
        threshold: Tensor = self._buffers["threshold"]  # type: ignore[assignment]
        options: Options = {**self.options(), "sample_weight": sample_weight}  # type: ignore[typeddict-item]
        if takes(logits) and not torch.compiler.is_compiling():
            from mohs.losses._kernels.pacing import paced_loss

            plain_at = partial(_plain_at, labels, self.kind, options)
            follows = (self.percentile, self.decay) if moves else None
            value = paced_loss(threshold, self.kind, logits, labels, plain_at, moves=follows, **options)
            if value is not None:
                return value
        level: Tensor | float = threshold  # λ for these logits, also if the gradient is differentiated later

        def pair(m: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal level
            x = -m
            ce = softplus(x)
            if moves:
                level = _follow(threshold, ce, percentile=self.percentile, decay=self.decay)
            hard = self.kind == "hard"
            v = torch.lt(ce, threshold, out=torch.empty_like(ce)) if hard else self_paced_weights(ce, threshold, self.kind)
            return ce.mul_(v), x.sigmoid_().mul_(v)

        def plain(logits: Tensor, margin_of: Callable[..., Tensor] = plain_margin) -> Tensor:
            ce = cross_entropy(margin_of(logits, labels, ignore_index=self.ignore_index))
            if moves and margin_of is margin:  # not for a derivative
                kept = labels.long() != self.ignore_index
                threshold.copy_(next_threshold(threshold, ce, kept, percentile=self.percentile, decay=self.decay))
            return reduce(self_paced(ce, threshold=level, kind=self.kind), labels, classes=logits.shape[1], **options)

        return by_emphasis(pair, logits, labels, plain, over_batch=True, **options)


def _plain_at(labels: Tensor, kind: str, options: Options, threshold: Tensor) -> Plain:
    """logits -> the loss for a given λ, by differentiable operations."""

    def plain(logits: Tensor) -> Tensor:
        ce = cross_entropy(plain_margin(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL)))
        return reduce(self_paced(ce, threshold=threshold, kind=kind), labels, classes=logits.shape[1], **options)

    return plain


def _follow(threshold: Tensor, ce: Tensor, *, percentile: float, decay: float) -> float:
    """`next_threshold` of a batch on CPU without ignored rows, written into the threshold, as a number."""
    place = percentile * (ce.numel() - 1)
    low, high = math.floor(place), math.ceil(place)
    values = ce.numpy().ravel()
    ordered = np.sort(values) if values.size <= FEW else np.partition(values, (low, high, values.size - 1))  # NaN comes last
    if math.isfinite(ordered[-1]):
        old, q = threshold.item(), ordered[low] + (place - low) * (ordered[high] - ordered[low])
        threshold.fill_(float(q if old == INF else decay * old + (1 - decay) * q))  # fill_ takes twice as long with NumPy's
    else:
        every = torch.ones_like(ce, dtype=torch.bool)
        threshold.copy_(next_threshold(threshold, ce, every, percentile=percentile, decay=decay))
    return threshold.item()
