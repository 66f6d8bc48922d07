"""The losses by name. One idea a file; each is a curve on the margin, a function on logits, and a Module."""

from __future__ import annotations

import dataclasses

from torch import nn

from mohs.losses.cross_entropy import CrossEntropyLoss
from mohs.losses.drop_in import Options
from mohs.losses.encouraging import EncouragingLoss
from mohs.losses.focal import FocalLoss
from mohs.losses.gce import GeneralizedCrossEntropyLoss
from mohs.losses.gradient_rescaling import GradientRescalingLoss
from mohs.losses.mae import MeanAbsoluteErrorLoss
from mohs.losses.mse import MeanSquaredErrorLoss
from mohs.losses.symmetric import SymmetricCrossEntropyLoss
from mohs.losses.truncated_gce import TruncatedGeneralizedCrossEntropyLoss

LOSSES: dict[str, type[nn.Module]] = {
    "cross_entropy": CrossEntropyLoss,
    "mae": MeanAbsoluteErrorLoss,
    "gce": GeneralizedCrossEntropyLoss,
    "truncated_gce": TruncatedGeneralizedCrossEntropyLoss,
    "focal": FocalLoss,
    "symmetric": SymmetricCrossEntropyLoss,
    "mse": MeanSquaredErrorLoss,
    "encouraging": EncouragingLoss,
    "gradient_rescaling": GradientRescalingLoss,
}


def create_loss(name: str, **fields: object) -> nn.Module:
    """The loss of that name with these fields: `create_loss("gradient_rescaling", beta=8)`."""
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; known: {', '.join(LOSSES)}")
    known = [f.name for f in dataclasses.fields(LOSSES[name])]  # type: ignore[arg-type]
    unknown = [field for field in fields if field not in known]
    if unknown:
        raise ValueError(f"{name} has no field {unknown[0]!r}; its fields: {', '.join(known)}")
    return LOSSES[name](**fields)


def own_fields(name: str) -> dict[str, object]:
    """The settings that are this loss's own, with their defaults (not those that every loss shares)."""
    return {f.name: f.default for f in dataclasses.fields(LOSSES[name]) if f.name not in Options.__annotations__}  # type: ignore[arg-type]
