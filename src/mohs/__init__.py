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
    from mohs.apply import apply_decisions
    from mohs.audit import Audit, audit
    from mohs.compare import compare_runs, compare_settings
    from mohs.data.examples import Data, Examples
    from mohs.data.noise import add_noise
    from mohs.data.open_data import open_data
    from mohs.data.with_ids import WithIds
    from mohs.emphasis import emphasis, focus, spread
    from mohs.errors import DataError, RunError
    from mohs.evaluate.attack import robust_accuracy
    from mohs.evaluate.calibration import ece, fit_temperature, reliability
    from mohs.evaluate.masking import masking_report
    from mohs.hardness.angular import avc, avh
    from mohs.hardness.noise_rate import estimate_noise, suggest_emphasis
    from mohs.hardness.out_of_sample import fit_noise
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
    from mohs.integrations.sklearn import MohsClassifier
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
    from mohs.models import MODELS, create_model, scale_of
    from mohs.recorder import Recorder
    from mohs.report.findings import Findings, load_findings
    from mohs.report.page import write_report
    from mohs.retrain import Retrained, retrain
    from mohs.score import score, score_features, score_logits
    from mohs.study.recipe import read_recipe
    from mohs.study.run import run_study
    from mohs.train.folds import out_of_fold
    from mohs.train.many import train_many
    from mohs.train.run import Run
    from mohs.train.select import SELECTIONS
    from mohs.train.selftrain import Adapted, adapt
    from mohs.train.trained import load_run

__version__ = "0.1.0"

NAMES = {  # file: what it offers
    "angle": "angle angles",
    "apply": "apply_decisions",
    "audit": "Audit audit",
    "compare": "compare_runs compare_settings",
    "data.examples": "Data Examples",
    "data.noise": "add_noise",
    "data.open_data": "open_data",
    "data.with_ids": "WithIds",
    "emphasis": "emphasis focus spread",
    "errors": "DataError RunError",
    "evaluate.attack": "robust_accuracy",
    "evaluate.calibration": "ece fit_temperature reliability",
    "evaluate.masking": "masking_report",
    "hardness.angular": "avc avh",
    "hardness.noise_rate": "estimate_noise suggest_emphasis",
    "hardness.out_of_sample": "fit_noise",
    "hardness.scores": "SCORES",
    "hardness.verdict": "verdict",
    "heads": "HEADS create_head",
    "heads.arcface": "ArcFaceHead",
    "heads.avh": "AVHHead",
    "heads.cosface": "CosFaceHead",
    "heads.find_head": "FoundHead find_head",
    "heads.lsoftmax": "LSoftmaxHead",
    "heads.normface": "NormFaceHead",
    "heads.sphereface": "SphereFaceHead",
    "integrations.sklearn": "MohsClassifier",
    "losses": "LOSSES REGULARISERS create_loss create_regulariser",
    "losses.adr": "ADR EntropyPenalty",
    "losses.amc": "AMC EuclideanContrastive",
    "losses.avh": "AVHLoss avh_loss",
    "losses.bootstrap": "BootstrapHardLoss BootstrapSoftLoss",
    "losses.center": "CenterLoss",
    "losses.correction": "BackwardLoss ForwardLoss",
    "losses.cross_entropy": "CrossEntropyLoss",
    "losses.curriculum": "SelfPacedLoss",
    "losses.encouraging": "EncouragingLoss",
    "losses.focal": "FocalLoss",
    "losses.gce": "GeneralizedCrossEntropyLoss",
    "losses.gradient_rescaling": "GradientRescalingLoss",
    "losses.imbalance": "class_counts class_weights deferred_weights",
    "losses.ldam": "LDAMLoss",
    "losses.logit_adjusted": "LogitAdjustedLoss",
    "losses.mae": "MeanAbsoluteErrorLoss",
    "losses.mse": "MeanSquaredErrorLoss",
    "losses.objective": "Objective create_objective",
    "losses.schedule": "SCHEDULES deferred ramp_up ramp_up_down",
    "losses.smoothing": "OnlineSmoothingLoss",
    "losses.softmax_alternatives": "SphericalLoss TaylorLoss",
    "losses.symmetric": "SymmetricCrossEntropyLoss",
    "losses.transition": "pair_transition symmetric_transition",
    "losses.truncated_gce": "TruncatedGeneralizedCrossEntropyLoss keep_mask",
    "margin": "margin",
    "models": "MODELS create_model scale_of",
    "recorder": "Recorder",
    "report.findings": "Findings load_findings",
    "report.page": "write_report",
    "retrain": "Retrained retrain",
    "score": "score score_features score_logits",
    "study.recipe": "read_recipe",
    "study.run": "run_study",
    "train.folds": "out_of_fold",
    "train.many": "train_many",
    "train.run": "Run",
    "train.select": "SELECTIONS",
    "train.selftrain": "Adapted adapt",
    "train.trained": "load_run",
}
HOME = {name: file for file, names in NAMES.items() for name in names.split()}

# fmt: off
__all__ = [
    "ADR", "AMC", "HEADS", "LOSSES", "MODELS", "REGULARISERS", "SCHEDULES", "SCORES", "SELECTIONS", "AVHHead", "AVHLoss",
    "Adapted", "ArcFaceHead", "Audit", "BackwardLoss", "BootstrapHardLoss", "BootstrapSoftLoss", "CenterLoss", "CosFaceHead",
    "CrossEntropyLoss", "Data", "DataError", "EncouragingLoss", "EntropyPenalty", "EuclideanContrastive", "Examples",
    "Findings", "FocalLoss", "ForwardLoss", "FoundHead", "GeneralizedCrossEntropyLoss", "GradientRescalingLoss", "LDAMLoss",
    "LSoftmaxHead", "LogitAdjustedLoss", "MeanAbsoluteErrorLoss", "MeanSquaredErrorLoss", "MohsClassifier", "NormFaceHead",
    "Objective", "OnlineSmoothingLoss", "Recorder", "Retrained", "Run", "RunError", "SelfPacedLoss", "SphereFaceHead",
    "SphericalLoss", "SymmetricCrossEntropyLoss", "TaylorLoss", "TruncatedGeneralizedCrossEntropyLoss", "WithIds", "adapt",
    "add_noise", "angle", "angles", "apply_decisions", "audit", "avc", "avh", "avh_loss", "class_counts", "class_weights",
    "compare_runs", "compare_settings", "create_head", "create_loss", "create_model", "create_objective", "create_regulariser",
    "deferred", "deferred_weights", "ece", "emphasis", "estimate_noise", "find_head", "fit_noise", "fit_temperature", "focus",
    "keep_mask", "load_findings", "load_run", "margin", "masking_report", "open_data", "out_of_fold", "pair_transition",
    "ramp_up", "ramp_up_down", "read_recipe", "reliability", "retrain", "robust_accuracy", "run_study", "scale_of", "score",
    "score_features", "score_logits", "spread", "suggest_emphasis", "symmetric_transition", "train_many", "verdict",
    "write_report",
]
# fmt: on


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
