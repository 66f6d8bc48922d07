"""Hardness of degraded inputs: AVH, norm, confidence and accuracy at each level of contrast, noise or blur.

AVH's Figures 17 and 18: angles increase with noise and decrease with contrast. `degrade(images, level)` is any function of a
batch of floats from 0 to 1, such as `lambda images, level: contrast(images, level=level)` with `mohs.data.degrade`.
`trend` summarizes a curve by Spearman's ρ of level and mean; over few levels it is coarse.
Chen et al., "Angular Visual Hardness" (ICML 2020), Appendix B: contrast .1, .2, .3, .6, 1; noise 0, .1, .2, .3, .4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mohs._core.device import device_of
from mohs._core.validation import check_choice
from mohs.data.examples import Examples, Inputs
from mohs.evaluate.outputs import Outputs, input_batches, outputs_over
from mohs.evaluate.validate_inputs import class_labels
from mohs.hardness.angular import avc, avh
from mohs.hardness.correlation import coefficients
from mohs.hardness.snapshot import norm
from mohs.margin import margin


@dataclass(frozen=True)
class Degraded:
    """Means over the examples at one level; confidence is the label's probability, accuracy a share from 0 to 1."""

    level: float
    avh: float
    avc: float
    norm: float
    confidence: float
    accuracy: float


def degrade_curve(
    model: nn.Module,
    images: Inputs | Tensor | Examples,
    labels: Any,
    degrade: Callable[[Tensor, float], Tensor],
    levels: Sequence[float],
    *,
    layer: str | None = None,
    batch_size: int = 256,
) -> list[Degraded]:
    """One row per level, in the order given; degrade(batch, level) returns a batch of the same shape."""
    if not len(levels):
        raise ValueError("levels is empty: give levels of degradation, such as [0, 0.1, 0.2]")
    rows = []
    for level in levels:
        batches = (_degraded(batch, degrade, level) for _, batch in input_batches(images, batch_size, device_of(model)))
        parts = [outputs_over(model, batch, layer=layer, batch_size=batch_size) for batch in batches]
        rows.append(_row(level, _joined(parts), labels))
    return rows


def trend(curve: Sequence[Degraded], measure: str = "avh") -> float:
    """Spearman's ρ of a measure with the level: 1 increases throughout, −1 decreases; NaN below 3 levels or without change."""
    check_choice("measure", measure, [f.name for f in fields(Degraded) if f.name != "level"])
    if len(curve) < 3:
        return math.nan
    values, level = (np.array([getattr(row, name) for row in curve]) for name in (measure, "level"))
    return coefficients([values], level, "spearman")[0]


def _degraded(batch: Tensor, degrade: Callable[[Tensor, float], Tensor], level: float) -> Tensor:
    worse = degrade(batch, level)
    if worse.shape != batch.shape:
        raise ValueError(f"degrade must keep the shape {tuple(batch.shape)}, got {tuple(worse.shape)} at level {level}")
    return worse


def _joined(parts: Sequence[Outputs]) -> Outputs:
    return Outputs(torch.cat([p.logits for p in parts]), torch.cat([p.features for p in parts]), parts[0].weight)


@torch.no_grad()
def _row(level: float, out: Outputs, labels: Any) -> Degraded:
    y = class_labels(labels, count=len(out.logits), classes=out.logits.shape[1], device=out.logits.device)
    columns = {
        "avh": avh(out.features, out.weight, y),
        "avc": avc(out.features, out.weight),
        "norm": norm(out.features),
        "confidence": margin(out.logits, y).sigmoid(),
        "accuracy": out.logits.argmax(1) == y,
    }
    return Degraded(level, **{name: float(values.double().mean()) for name, values in columns.items()})
