"""Calibration: reliability by bins of confidence, ECE, Brier score, and temperature scaling.

    ECE  = Σ_b share_b |accuracy_b − confidence_b|
    Brier = mean Σ_k (p_k − [k = y])²
    T    = argmin −mean log softmax(z/T)_y                   convex in 1/T: the root of its slope, by bisection

probs (N, K): confidence is the largest probability, correct is where it is the label's. probs (N,): the probability of an
event; confidence is that probability, correct is where the event happened (labels 0 or 1), and Brier is mean (p − y)².
Bins are (low, high]; "width": equal widths (10 in Encouraging Loss, 15 in most others); "mass": equal numbers of examples,
with equal confidences in one bin. ECE is biased upwards for few examples and depends on the bins: use the same for all models.
Guo et al., "On calibration of modern neural networks" (ICML 2017), eqs. 3 and 9; Brier (1950).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs._core.validation import check_choice
from mohs.evaluate.validate_inputs import class_labels, numbers, probabilities

BINNINGS = ("width", "mass")
TEMPERATURES = (0.01, 100.0)  # if every example is correct, there is no minimum: the lowest is returned
HALVINGS = 60


@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability diagram: per bin (B,), float64 on the CPU.

    Attributes:
        low, high: Edges of the bins.
        confidence: Mean confidence; NaN if empty.
        accuracy: Accuracy; NaN if empty.
        share: Share of the examples.
    """

    low: Tensor
    high: Tensor
    confidence: Tensor
    accuracy: Tensor
    share: Tensor

    @property
    def gaps(self) -> Tensor:
        """Accuracy minus confidence (B,), 0 for empty bins; negative: overconfident."""
        return (self.accuracy - self.confidence).nan_to_num(0.0)


@torch.no_grad()
def reliability(probs: Any, labels: Any, bins: int = 15, *, binning: str = "width") -> Reliability:
    """Confidence and accuracy by bins of confidence.

    Args:
        probs: Probabilities (N, K) of the classes, or (N,) of one event.
        labels: (N,), class indices, or 0 and 1 for an event.
        bins: Number of bins.
        binning: "width" (bins of equal width) or "mass" (bins with equal numbers of examples).
    """
    if not isinstance(bins, int) or bins < 1:
        raise ValueError(f"bins must be an integer of at least 1, got {bins!r}")
    check_choice("binning", binning, BINNINGS)
    given, right = _confidence(probs, labels)
    confidence = given.double()
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64).to(given.dtype).double()  # a float32 0.3 belongs to (.2, .3]
    if binning == "mass":
        places = torch.arange(1, bins) * len(confidence) // bins
        ordered = confidence.sort().values
        edges[1:-1] = ordered[(places - 1).clamp(min=0)]
    at = torch.bucketize(confidence, edges[1:-1])  # (N,): the bin (low, high] of each
    count = torch.bincount(at, minlength=bins).double()
    mean = torch.bincount(at, confidence, minlength=bins) / count  # 0/0 = NaN
    accuracy = torch.bincount(at, right, minlength=bins) / count
    return Reliability(edges[:-1], edges[1:], mean, accuracy, count / len(confidence))


def ece(probs: Any, labels: Any, bins: int = 15, *, binning: str = "width") -> float:
    """Expected calibration error, from 0 to 1: the mean distance of accuracy from confidence; arguments as for `reliability`.

    Example:
        >>> mohs.ece(logits.softmax(1), labels)  # doctest: +SKIP
    """
    found = reliability(probs, labels, bins, binning=binning)
    return float((found.share * found.gaps.abs()).sum())


@torch.no_grad()
def brier(probs: Any, labels: Any) -> float:
    """Brier score: 0 is perfect; for (N, K) up to 2, for an event up to 1."""
    p, y = _checked(probs, labels)
    if p.dim() == 1:
        return float((p.double() - y).square().mean())
    return float((p.double() - torch.nn.functional.one_hot(y, p.shape[1])).square().sum(1).mean())


@torch.no_grad()
def fit_temperature(logits: Any, labels: Any) -> float:
    """The temperature by which to divide logits so that their NLL is smallest.

    Args:
        logits: Held-out logits (N, K).
        labels: (N,), class indices.

    Returns:
        T, from 0.01 to 100.
    """
    z = numbers("logits", logits, dims=(2,)).double()
    y = class_labels(labels, count=len(z), classes=z.shape[1], device=z.device).unsqueeze(1)
    z = z - z.gather(1, y)  # with the label's at 0, the slope is the mean of the others under softmax
    low, high = (z.new_tensor(1 / t).log() for t in reversed(TEMPERATURES))
    for _ in range(HALVINGS):  # on the device, without host synchronization
        middle = (low + high) / 2
        rising = ((z * middle.exp()).softmax(1) * z).sum(1).mean() > 0  # NLL increases with 1/T: the minimum is below
        low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
    return float((-(low + high) / 2).exp())


def _checked(probs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    p = probabilities(probs)
    return p, class_labels(labels, count=len(p), classes=2 if p.dim() == 1 else p.shape[1], device=p.device)


def _confidence(probs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Confidence, and 1 where it was right (N,), on the CPU."""
    p, y = _checked(probs, labels)
    if p.dim() == 1:
        return p.cpu(), y.cpu().double()
    confidence, predicted = p.max(1)
    return confidence.cpu(), (predicted == y).cpu().double()
