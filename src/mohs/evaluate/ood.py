"""Out-of-distribution detection: five indicators, and how well each separates in-distribution from other data.

    max_softmax   log-odds of the top class: ordered as its probability, without ties at 1 from rounding
    max_logit     max_k z_k          free_energy   log Σ_k e^{z_k}
    max_cosine    max_k cos θ_k      avc           max_k (π − θ_k)/Σ_k (π − θ_k)

Every indicator is **higher for data like the training data**, which is the positive class of all metrics:

    auroc   P(inside > outside) + ½ P(equal)          fpr95   share of outside at or above the highest threshold that
    aupr    average precision, Σ (R_n − R_{n−1}) P_n           keeps at least 95 % of inside

Metrics take any real scores and are exact with ties, in O(n log n).
Hendrycks & Gimpel (ICLR 2017); Liu et al., "Energy-based out-of-distribution detection" (NeurIPS 2020); Encouraging Loss,
Table 4; AVC: Chen et al. (ICML 2020), eq. 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mohs._core.validation import check_between
from mohs.angle import cosines
from mohs.evaluate.outputs import Outputs, outputs_over
from mohs.evaluate.validate_inputs import numbers
from mohs.hardness.angular import avc as angular_confidence
from mohs.hardness.snapshot import energy
from mohs.margin import margin

Array = np.ndarray[Any, Any]


@torch.no_grad()
def max_softmax(out: Outputs) -> Tensor:
    """Log-odds of the most probable class (N,)."""
    return margin(out.logits, out.logits.argmax(1))


def max_logit(out: Outputs) -> Tensor:
    """The largest logit (N,)."""
    return -energy(out.logits, kind="max_logit")


def free_energy(out: Outputs) -> Tensor:
    """Minus the free energy, the log-sum-exp of the logits (N,)."""
    return -energy(out.logits)


@torch.no_grad()
def max_cosine(out: Outputs) -> Tensor:
    """The largest cosine of the features to a class weight (N,)."""
    return cosines(out.features, out.weight).amax(1)


def avc(out: Outputs) -> Tensor:
    """Angular confidence in the nearest class (N,)."""
    return angular_confidence(out.features, out.weight)


INDICATORS: dict[str, Callable[[Outputs], Tensor]] = {
    "max_softmax": max_softmax,
    "max_logit": max_logit,
    "free_energy": free_energy,
    "max_cosine": max_cosine,
    "avc": avc,
}


def ood(
    model: nn.Module,
    inside: Any,
    outside: Any,
    *,
    indicators: Sequence[str] = tuple(INDICATORS),
    layer: str | None = None,
    batch_size: int = 256,
) -> dict[str, dict[str, float]]:
    """{indicator: metrics} for in-distribution inputs (inside) and others (outside); tensors or Examples."""
    unknown = [name for name in indicators if name not in INDICATORS]
    if unknown:
        raise ValueError(f"unknown indicator {unknown[0]!r}; known: {', '.join(INDICATORS)}")
    own, other = (outputs_over(model, data, layer=layer, batch_size=batch_size) for data in (inside, outside))
    return {name: separation(INDICATORS[name](own), INDICATORS[name](other)) for name in indicators}


def separation(inside: Any, outside: Any) -> dict[str, float]:
    """Scores (N,) and (M,) -> auroc, fpr95, aupr (inside the positive class) and aupr_out (outside positive, scores negated)."""
    return {
        "auroc": auroc(inside, outside),
        "fpr95": fpr_at(inside, outside, tpr=0.95),
        "aupr": aupr(inside, outside),
        "aupr_out": aupr(-_array("outside", outside), -_array("inside", inside)),
    }


def auroc(inside: Any, outside: Any) -> float:
    """Area under the ROC curve of scores (N,) against scores (M,)."""
    positive, negative = _array("inside", inside), np.sort(_array("outside", outside))
    below, up_to = (np.searchsorted(negative, positive, side).mean() for side in ("left", "right"))
    return float((below + up_to) / (2 * len(negative)))


def fpr_at(inside: Any, outside: Any, *, tpr: float = 0.95) -> float:
    """False positive rate: share of outside above the highest threshold that keeps at least a share `tpr` of inside."""
    check_between("tpr", tpr, 0, 1, ends="(]")
    positive, negative = np.sort(_array("inside", inside))[::-1], _array("outside", outside)
    kept = np.arange(1, len(positive) + 1) / len(positive)
    return float((negative >= positive[np.searchsorted(kept, tpr)]).mean())


def aupr(inside: Any, outside: Any) -> float:
    """Average precision with inside as the positive class; chance is inside's share of all."""
    positive, negative = np.sort(_array("inside", inside)), np.sort(_array("outside", outside))
    thresholds = np.unique(positive)[::-1]
    true, false = (len(a) - np.searchsorted(a, thresholds, "left") for a in (positive, negative))
    return float((np.diff(true, prepend=0) / len(positive) * true / (true + false)).sum())


def _array(name: str, values: Any) -> Array:
    scores: Array = numbers(name, values, dims=(1,)).double().cpu().numpy()
    return scores
