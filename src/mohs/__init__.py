"""mohs: how hard each training example is, and classifiers trained with the emphasis those examples deserve.

Names are loaded when first used, so that `import mohs` is quick and imports no torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mohs.angle import angle, angles
    from mohs.data.with_ids import WithIds
    from mohs.emphasis import emphasis, focus, spread
    from mohs.errors import DataError
    from mohs.hardness.angular import avc, avh
    from mohs.hardness.noise_rate import estimate_noise, suggest_emphasis
    from mohs.hardness.scores import SCORES
    from mohs.hardness.verdict import verdict
    from mohs.heads import HEADS, create_head
    from mohs.heads.arcface import ArcFaceHead
    from mohs.heads.avh import AVHHead
    from mohs.heads.cosface import CosFaceHead
    from mohs.heads.find_head import FoundHead, find_head
    from mohs.heads.lsoftmax import LSoftmaxHead
    from mohs.heads.normface import NormFaceHead
    from mohs.heads.sphereface import SphereFaceHead
    from mohs.losses import LOSSES, REGULARISERS, create_loss, create_regulariser
    from mohs.losses.adr import ADR, EntropyPenalty
    from mohs.losses.amc import AMC, EuclideanContrastive
    from mohs.losses.avh import AVHLoss, avh_loss
    from mohs.losses.bootstrap import BootstrapHardLoss, BootstrapSoftLoss
    from mohs.losses.center import CenterLoss
    from mohs.losses.correction import BackwardLoss, ForwardLoss
    from mohs.losses.cross_entropy import CrossEntropyLoss
    from mohs.losses.curriculum import SelfPacedLoss
    from mohs.losses.encouraging import EncouragingLoss
    from mohs.losses.focal import FocalLoss
    from mohs.losses.gce import GeneralizedCrossEntropyLoss
    from mohs.losses.gradient_rescaling import GradientRescalingLoss
    from mohs.losses.imbalance import class_counts, class_weights, deferred_weights
    from mohs.losses.ldam import LDAMLoss
    from mohs.losses.logit_adjusted import LogitAdjustedLoss
    from mohs.losses.mae import MeanAbsoluteErrorLoss
    from mohs.losses.mse import MeanSquaredErrorLoss
    from mohs.losses.objective import Objective, create_objective
    from mohs.losses.schedule import SCHEDULES, deferred, ramp_up, ramp_up_down
    from mohs.losses.smoothing import OnlineSmoothingLoss
    from mohs.losses.softmax_alternatives import SphericalLoss, TaylorLoss
    from mohs.losses.symmetric import SymmetricCrossEntropyLoss
    from mohs.losses.transition import pair_transition, symmetric_transition
    from mohs.losses.truncated_gce import TruncatedGeneralizedCrossEntropyLoss, keep_mask
    from mohs.margin import margin
    from mohs.recorder import Recorder
    from mohs.score import score, score_features, score_logits

__version__ = "0.1.0"

HOME = {
    "angle": "angle",
    "angles": "angle",
    "WithIds": "data.with_ids",
    "emphasis": "emphasis",
    "focus": "emphasis",
    "spread": "emphasis",
    "DataError": "errors",
    "avc": "hardness.angular",
    "avh": "hardness.angular",
    "estimate_noise": "hardness.noise_rate",
    "suggest_emphasis": "hardness.noise_rate",
    "SCORES": "hardness.scores",
    "verdict": "hardness.verdict",
    "HEADS": "heads",
    "create_head": "heads",
    "ArcFaceHead": "heads.arcface",
    "AVHHead": "heads.avh",
    "CosFaceHead": "heads.cosface",
    "FoundHead": "heads.find_head",
    "find_head": "heads.find_head",
    "LSoftmaxHead": "heads.lsoftmax",
    "NormFaceHead": "heads.normface",
    "SphereFaceHead": "heads.sphereface",
    "LOSSES": "losses",
    "REGULARISERS": "losses",
    "create_loss": "losses",
    "create_regulariser": "losses",
    "ADR": "losses.adr",
    "EntropyPenalty": "losses.adr",
    "AMC": "losses.amc",
    "EuclideanContrastive": "losses.amc",
    "AVHLoss": "losses.avh",
    "avh_loss": "losses.avh",
    "BootstrapHardLoss": "losses.bootstrap",
    "BootstrapSoftLoss": "losses.bootstrap",
    "CenterLoss": "losses.center",
    "BackwardLoss": "losses.correction",
    "ForwardLoss": "losses.correction",
    "CrossEntropyLoss": "losses.cross_entropy",
    "SelfPacedLoss": "losses.curriculum",
    "EncouragingLoss": "losses.encouraging",
    "FocalLoss": "losses.focal",
    "GeneralizedCrossEntropyLoss": "losses.gce",
    "GradientRescalingLoss": "losses.gradient_rescaling",
    "class_counts": "losses.imbalance",
    "class_weights": "losses.imbalance",
    "deferred_weights": "losses.imbalance",
    "LDAMLoss": "losses.ldam",
    "LogitAdjustedLoss": "losses.logit_adjusted",
    "MeanAbsoluteErrorLoss": "losses.mae",
    "MeanSquaredErrorLoss": "losses.mse",
    "Objective": "losses.objective",
    "create_objective": "losses.objective",
    "SCHEDULES": "losses.schedule",
    "deferred": "losses.schedule",
    "ramp_up": "losses.schedule",
    "ramp_up_down": "losses.schedule",
    "OnlineSmoothingLoss": "losses.smoothing",
    "SphericalLoss": "losses.softmax_alternatives",
    "TaylorLoss": "losses.softmax_alternatives",
    "SymmetricCrossEntropyLoss": "losses.symmetric",
    "pair_transition": "losses.transition",
    "symmetric_transition": "losses.transition",
    "TruncatedGeneralizedCrossEntropyLoss": "losses.truncated_gce",
    "keep_mask": "losses.truncated_gce",
    "margin": "margin",
    "Recorder": "recorder",
    "score": "score",
    "score_features": "score",
    "score_logits": "score",
}

__all__ = [
    "ADR",
    "AMC",
    "HEADS",
    "LOSSES",
    "REGULARISERS",
    "SCHEDULES",
    "SCORES",
    "AVHHead",
    "AVHLoss",
    "ArcFaceHead",
    "BackwardLoss",
    "BootstrapHardLoss",
    "BootstrapSoftLoss",
    "CenterLoss",
    "CosFaceHead",
    "CrossEntropyLoss",
    "DataError",
    "EncouragingLoss",
    "EntropyPenalty",
    "EuclideanContrastive",
    "FocalLoss",
    "ForwardLoss",
    "FoundHead",
    "GeneralizedCrossEntropyLoss",
    "GradientRescalingLoss",
    "LDAMLoss",
    "LSoftmaxHead",
    "LogitAdjustedLoss",
    "MeanAbsoluteErrorLoss",
    "MeanSquaredErrorLoss",
    "NormFaceHead",
    "Objective",
    "OnlineSmoothingLoss",
    "Recorder",
    "SelfPacedLoss",
    "SphereFaceHead",
    "SphericalLoss",
    "SymmetricCrossEntropyLoss",
    "TaylorLoss",
    "TruncatedGeneralizedCrossEntropyLoss",
    "WithIds",
    "angle",
    "angles",
    "avc",
    "avh",
    "avh_loss",
    "class_counts",
    "class_weights",
    "create_head",
    "create_loss",
    "create_objective",
    "create_regulariser",
    "deferred",
    "deferred_weights",
    "emphasis",
    "estimate_noise",
    "find_head",
    "focus",
    "keep_mask",
    "margin",
    "pair_transition",
    "ramp_up",
    "ramp_up_down",
    "score",
    "score_features",
    "score_logits",
    "spread",
    "suggest_emphasis",
    "symmetric_transition",
    "verdict",
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
