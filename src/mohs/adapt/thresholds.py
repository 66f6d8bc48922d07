"""Thresholds for self-training: the confidence of each class above which pseudo-labels are selected.

    S_k  the examples whose class is k;   n_k = ⌊portion · |S_k|⌋;   λ_k  the n_k-th largest value of class k in S_k

Where n_k = 0 no example is labeled k. All examples that tie with a threshold are selected; probabilities are compared as
logarithms in double precision, so that confident networks do not tie at p = 1.
Zou et al., "Unsupervised domain adaptation via class-balanced self-training" (ECCV 2018), the solver of its eq. 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mohs._core.validation import check_between
from mohs.angle import angles
from mohs.margin import all_margins, softplus

ROUNDING = 1e-9  # .29 · 100 is a little under 29 in floating point


@dataclass(frozen=True, eq=False)
class Predictions:
    """A network's logits (M, K) and features (M, D) of M examples, and its class weights (K, D)."""

    logits: Tensor
    features: Tensor
    weight: Tensor

    @property
    def log_p(self) -> Tensor:
        """log p(k|x) (M, K), in double precision, exact for p close to 1."""
        return -softplus(-all_margins(self.logits.double()))

    @property
    def avc(self) -> Tensor:
        """AVC(k|x) (M, K), in double precision; 1/K if all angles are π."""
        left = math.pi - angles(self.features.double(), self.weight.double())
        total = left.sum(1, keepdim=True)
        return torch.where(total > 0, left / total, 1 / left.shape[1])


@dataclass(frozen=True, eq=False)
class Selected:
    """Selected rows (S,) in order, their labels (S,), and soft labels (S, K) if the method has them."""

    places: Tensor
    labels: Tensor
    soft: Tensor | None = None

    def __len__(self) -> int:
        return len(self.places)


def portion_counts(classes: Tensor, portion: float, number: int) -> Tensor:
    """⌊portion · |S_k|⌋ (K,) for classes (M,) of K = number."""
    check_between("portion", portion, 0, 1)
    return (portion * torch.bincount(classes, minlength=number).double() + ROUNDING).floor().long()


def class_thresholds(values: Tensor, classes: Tensor, portion: float, *, none: float = 1.0) -> Tensor:
    """values (M, K), classes (M,) -> the n_k-th largest values[:, k] of each class's examples (K,); `none` where n_k = 0."""
    counts = portion_counts(classes, portion, values.shape[1])
    found = torch.full((values.shape[1],), none, dtype=values.dtype)
    for k in counts.nonzero().flatten().tolist():
        found[k] = values[classes == k, k].sort(descending=True).values[counts[k] - 1]
    return found


def passing(values: Tensor, labels: Tensor, thresholds: Tensor, counts: Tensor) -> Tensor:
    """Which examples (M,) reach the threshold of their label, in classes with n_k > 0."""
    own = values.gather(1, labels.unsqueeze(1)).squeeze(1)
    return (own >= thresholds[labels]) & (counts[labels] > 0)


def top_portion(values: Tensor, labels: Tensor, classes: Tensor, portion: float) -> Selected:
    """values (M, K): the examples whose value reaches the threshold of their label (M,); S_k by classes (M,)."""
    counts = portion_counts(classes, portion, values.shape[1])
    return kept(passing(values, labels, class_thresholds(values, classes, portion), counts), labels)


def balanced(outputs: Predictions, portion: float) -> tuple[Tensor, Tensor, Tensor]:
    """CBST's scores log p − log λ (M, K), the counts n_k (K,), and the predicted classes (M,)."""
    log_p = outputs.log_p
    classes = log_p.argmax(1)
    return log_p - class_thresholds(log_p, classes, portion, none=0.0), portion_counts(classes, portion, log_p.shape[1]), classes


def kept(keep: Tensor, labels: Tensor, soft: Tensor | None = None) -> Selected:
    """The examples where the mask (M,) is true."""
    places = keep.nonzero().flatten()
    return Selected(places, labels[places], None if soft is None else soft[places].float())
