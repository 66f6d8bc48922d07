"""The losses and regularizers by name. One idea per file; each is a function of logits or features, and a Module."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from mohs._core.specs import create
from mohs.losses._reduction import Options
from mohs.losses.adr import ADR, EntropyPenalty
from mohs.losses.amc import AMC, EuclideanContrastive
from mohs.losses.avh import AVHLoss
from mohs.losses.bootstrap import BootstrapHardLoss, BootstrapSoftLoss
from mohs.losses.center import CenterLoss
from mohs.losses.correction import BackwardLoss, ForwardLoss
from mohs.losses.cross_entropy import CrossEntropyLoss
from mohs.losses.curriculum import SelfPacedLoss
from mohs.losses.d2l import D2L
from mohs.losses.early_learning import EarlyLearning
from mohs.losses.encouraging import EncouragingLoss
from mohs.losses.focal import FocalLoss
from mohs.losses.gce import GeneralizedCrossEntropyLoss
from mohs.losses.gradient_rescaling import GradientRescalingLoss
from mohs.losses.ldam import LDAMLoss
from mohs.losses.logit_adjusted import LogitAdjustedLoss
from mohs.losses.mae import MeanAbsoluteErrorLoss
from mohs.losses.mse import MeanSquaredErrorLoss
from mohs.losses.smoothing import OnlineSmoothingLoss
from mohs.losses.softmax_alternatives import SphericalLoss, TaylorLoss
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
    "avh": AVHLoss,
    "forward": ForwardLoss,
    "backward": BackwardLoss,
    "bootstrap_soft": BootstrapSoftLoss,
    "bootstrap_hard": BootstrapHardLoss,
    "online_smoothing": OnlineSmoothingLoss,
    "ldam": LDAMLoss,
    "logit_adjusted": LogitAdjustedLoss,
    "self_paced": SelfPacedLoss,
    "spherical": SphericalLoss,
    "taylor": TaylorLoss,
}

REGULARIZERS: dict[str, type[nn.Module]] = {
    "adr": ADR,
    "entropy_penalty": EntropyPenalty,
    "amc": AMC,
    "euclidean_contrastive": EuclideanContrastive,
    "center": CenterLoss,
    "early_learning": EarlyLearning,
    "d2l": D2L,
}


def create_loss(name: str, /, **fields: Any) -> nn.Module:
    """Create a loss by name.

    Args:
        name: A key of `LOSSES`, or with hyper-parameters as on the command line: "gce:q=0.5".
        **fields: Hyper-parameters of the loss, and the options that all losses share: `weight`, `ignore_index`,
            `reduction`, `label_smoothing`.

    Returns:
        A Module, called with (logits, labels) as `nn.CrossEntropyLoss` is.

    Example:
        >>> loss = create_loss("gradient_rescaling", beta=8)
        >>> loss(logits, labels).backward()
    """
    return create(LOSSES, "loss", name, **fields)


def create_regularizer(name: str, /, **fields: Any) -> nn.Module:
    """Create a regularizer by name, a key of `REGULARIZERS`: `create_regularizer("adr", tau=3)`."""
    return create(REGULARIZERS, "regularizer", name, **fields)


def own_fields(module: type[nn.Module]) -> dict[str, str]:
    """The hyper-parameters of a loss or regularizer with their defaults ("required" for those without a default)."""
    own = [f for f in dataclasses.fields(module) if f.name not in Options.__annotations__]  # type: ignore[arg-type]
    return {f.name: "required" if f.default is dataclasses.MISSING else str(f.default) for f in own}
