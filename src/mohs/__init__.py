"""mohs: how hard each training example is, and classifiers trained with the emphasis those examples deserve.

Names are loaded when first used, so that `import mohs` is quick and imports no torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mohs.emphasis import emphasis, focus, spread
    from mohs.losses import LOSSES, create_loss
    from mohs.losses.cross_entropy import CrossEntropyLoss
    from mohs.losses.encouraging import EncouragingLoss
    from mohs.losses.focal import FocalLoss
    from mohs.losses.gce import GeneralizedCrossEntropyLoss
    from mohs.losses.gradient_rescaling import GradientRescalingLoss
    from mohs.losses.mae import MeanAbsoluteErrorLoss
    from mohs.losses.mse import MeanSquaredErrorLoss
    from mohs.losses.symmetric import SymmetricCrossEntropyLoss
    from mohs.losses.truncated_gce import TruncatedGeneralizedCrossEntropyLoss, keep_mask
    from mohs.margin import margin

__version__ = "0.1.0"

HOME = {
    "LOSSES": "losses",
    "create_loss": "losses",
    "CrossEntropyLoss": "losses.cross_entropy",
    "EncouragingLoss": "losses.encouraging",
    "FocalLoss": "losses.focal",
    "GeneralizedCrossEntropyLoss": "losses.gce",
    "GradientRescalingLoss": "losses.gradient_rescaling",
    "MeanAbsoluteErrorLoss": "losses.mae",
    "MeanSquaredErrorLoss": "losses.mse",
    "SymmetricCrossEntropyLoss": "losses.symmetric",
    "TruncatedGeneralizedCrossEntropyLoss": "losses.truncated_gce",
    "keep_mask": "losses.truncated_gce",
    "emphasis": "emphasis",
    "focus": "emphasis",
    "spread": "emphasis",
    "margin": "margin",
}

__all__ = [
    "LOSSES",
    "CrossEntropyLoss",
    "EncouragingLoss",
    "FocalLoss",
    "GeneralizedCrossEntropyLoss",
    "GradientRescalingLoss",
    "MeanAbsoluteErrorLoss",
    "MeanSquaredErrorLoss",
    "SymmetricCrossEntropyLoss",
    "TruncatedGeneralizedCrossEntropyLoss",
    "create_loss",
    "emphasis",
    "focus",
    "keep_mask",
    "margin",
    "spread",
]


def __getattr__(name: str) -> object:
    if name not in HOME:
        raise AttributeError(f"module 'mohs' has no attribute {name!r}")
    value = getattr(import_module(f"mohs.{HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *HOME]


class _Package(ModuleType):
    """`mohs.margin` is the function although a file bears its name: importing the file must not put the module there."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and HOME.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
