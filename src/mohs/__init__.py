"""mohs: how hard each training example is, which labels are wrong, and classifiers trained accordingly.

Names are imported when first used: `import mohs` takes milliseconds and does not import torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mohs._core.errors import DataError, RunError
    from mohs.adapt.selection import SELECTIONS
    from mohs.adapt.self_training import Adapted, adapt
    from mohs.angle import angle
    from mohs.audit.changes import AuditDiff
    from mohs.audit.decisions import apply_decisions, read_decisions, write_labels
    from mohs.audit.diff_audits import diff_audits
    from mohs.audit.options import AuditOptions
    from mohs.audit.result import AuditResult, load_audit
    from mohs.audit.retrain import Retrained, retrain
    from mohs.data.examples import Data, Examples
    from mohs.data.noise import NOISES, add_noise
    from mohs.data.open_data import open_data
    from mohs.data.with_ids import WithIds
    from mohs.embed.choose_embedder import EMBEDDERS
    from mohs.embed.embed_data import Embedded, embed
    from mohs.emphasis import emphasis, focus, spread
    from mohs.evaluate.attack import robust_accuracy
    from mohs.evaluate.calibration import ece, fit_temperature, reliability
    from mohs.evaluate.masking import masking_report
    from mohs.hardness.angular import avc, avh
    from mohs.hardness.annotators import Consensus, Votes, consensus
    from mohs.hardness.human import predict_agreement
    from mohs.hardness.judgment import judge_labels
    from mohs.hardness.noise_rate import estimate_noise, suggest_emphasis
    from mohs.hardness.parts import by_example
    from mohs.hardness.recorder import Recorder
    from mohs.hardness.score import score, score_features, score_logits
    from mohs.hardness.scores import SCORES
    from mohs.hardness.targets import judge_targets, score_targets
    from mohs.hardness.verdict import verdict
    from mohs.heads import HEADS, create_head
    from mohs.heads.arcface import ArcFaceHead
    from mohs.heads.avh import AVHHead
    from mohs.heads.cosface import CosFaceHead
    from mohs.heads.find_head import find_head
    from mohs.heads.fused import FusedHead, RowStatistics, linear_loss
    from mohs.heads.lsoftmax import LSoftmaxHead
    from mohs.heads.normface import NormFaceHead
    from mohs.heads.sphereface import SphereFaceHead
    from mohs.integrations.sklearn import MohsClassifier
    from mohs.issues.catalog import ISSUES
    from mohs.issues.find_issues import find_issues
    from mohs.issues.issues_table import Issues
    from mohs.losses import LOSSES, REGULARIZERS, create_loss, create_regularizer
    from mohs.losses.adr import ADR, EntropyPenalty
    from mohs.losses.amc import AMC, EuclideanContrastive
    from mohs.losses.avh import AVHLoss, avh_loss
    from mohs.losses.bootstrap import BootstrapHardLoss, BootstrapSoftLoss
    from mohs.losses.center import CenterLoss
    from mohs.losses.class_weights import class_counts, class_weights, deferred_weights
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
    from mohs.losses.objective import Objective, create_objective
    from mohs.losses.smoothing import OnlineSmoothingLoss
    from mohs.losses.softmax_alternatives import SphericalLoss, TaylorLoss
    from mohs.losses.symmetric import SymmetricCrossEntropyLoss
    from mohs.losses.transition import pair_transition, symmetric_transition
    from mohs.losses.truncated_gce import TruncatedGeneralizedCrossEntropyLoss
    from mohs.losses.weight_schedule import SCHEDULES, ramp_up, ramp_up_down
    from mohs.margin import margin
    from mohs.models import MODELS, create_model, scale_of
    from mohs.report.page import write_report
    from mohs.studies.claims_page import write_claims_page
    from mohs.studies.compare import compare_runs, compare_settings
    from mohs.studies.recipe import read_recipe
    from mohs.studies.run_study import run_study
    from mohs.studies.study_page import write_study_page
    from mohs.train.folds import out_of_fold
    from mohs.train.loop import train
    from mohs.train.many import train_many
    from mohs.train.optimizers import OPTIMIZERS
    from mohs.train.run import Run
    from mohs.train.trained import Trained, load_run
    from mohs.workflow import audit

__version__ = "0.2.0"

NAMES = {  # module: the public names it defines
    "_core.errors": "DataError RunError",
    "adapt.selection": "SELECTIONS",
    "adapt.self_training": "Adapted adapt",
    "angle": "angle",
    "audit.changes": "AuditDiff",
    "audit.decisions": "apply_decisions read_decisions write_labels",
    "audit.diff_audits": "diff_audits",
    "audit.options": "AuditOptions",
    "audit.result": "AuditResult load_audit",
    "audit.retrain": "Retrained retrain",
    "data.examples": "Data Examples",
    "data.noise": "NOISES add_noise",
    "data.open_data": "open_data",
    "data.with_ids": "WithIds",
    "embed.choose_embedder": "EMBEDDERS",
    "embed.embed_data": "Embedded embed",
    "emphasis": "emphasis focus spread",
    "evaluate.attack": "robust_accuracy",
    "evaluate.calibration": "ece fit_temperature reliability",
    "evaluate.masking": "masking_report",
    "hardness.angular": "avc avh",
    "hardness.annotators": "Consensus Votes consensus",
    "hardness.human": "predict_agreement",
    "hardness.judgment": "judge_labels",
    "hardness.noise_rate": "estimate_noise suggest_emphasis",
    "hardness.parts": "by_example",
    "hardness.recorder": "Recorder",
    "hardness.score": "score score_features score_logits",
    "hardness.scores": "SCORES",
    "hardness.targets": "judge_targets score_targets",
    "hardness.verdict": "verdict",
    "heads": "HEADS create_head",
    "heads.arcface": "ArcFaceHead",
    "heads.avh": "AVHHead",
    "heads.cosface": "CosFaceHead",
    "heads.find_head": "find_head",
    "heads.fused": "FusedHead RowStatistics linear_loss",
    "heads.lsoftmax": "LSoftmaxHead",
    "heads.normface": "NormFaceHead",
    "heads.sphereface": "SphereFaceHead",
    "integrations.sklearn": "MohsClassifier",
    "issues.catalog": "ISSUES",
    "issues.find_issues": "find_issues",
    "issues.issues_table": "Issues",
    "losses": "LOSSES REGULARIZERS create_loss create_regularizer",
    "losses.adr": "ADR EntropyPenalty",
    "losses.amc": "AMC EuclideanContrastive",
    "losses.avh": "AVHLoss avh_loss",
    "losses.bootstrap": "BootstrapHardLoss BootstrapSoftLoss",
    "losses.center": "CenterLoss",
    "losses.class_weights": "class_counts class_weights deferred_weights",
    "losses.correction": "BackwardLoss ForwardLoss",
    "losses.cross_entropy": "CrossEntropyLoss",
    "losses.curriculum": "SelfPacedLoss",
    "losses.d2l": "D2L",
    "losses.early_learning": "EarlyLearning",
    "losses.encouraging": "EncouragingLoss",
    "losses.focal": "FocalLoss",
    "losses.gce": "GeneralizedCrossEntropyLoss",
    "losses.gradient_rescaling": "GradientRescalingLoss",
    "losses.ldam": "LDAMLoss",
    "losses.logit_adjusted": "LogitAdjustedLoss",
    "losses.mae": "MeanAbsoluteErrorLoss",
    "losses.mse": "MeanSquaredErrorLoss",
    "losses.objective": "Objective create_objective",
    "losses.smoothing": "OnlineSmoothingLoss",
    "losses.softmax_alternatives": "SphericalLoss TaylorLoss",
    "losses.symmetric": "SymmetricCrossEntropyLoss",
    "losses.transition": "pair_transition symmetric_transition",
    "losses.truncated_gce": "TruncatedGeneralizedCrossEntropyLoss",
    "losses.weight_schedule": "SCHEDULES ramp_up ramp_up_down",
    "margin": "margin",
    "models": "MODELS create_model scale_of",
    "report.page": "write_report",
    "studies.claims_page": "write_claims_page",
    "studies.compare": "compare_runs compare_settings",
    "studies.recipe": "read_recipe",
    "studies.run_study": "run_study",
    "studies.study_page": "write_study_page",
    "train.folds": "out_of_fold",
    "train.loop": "train",
    "train.many": "train_many",
    "train.optimizers": "OPTIMIZERS",
    "train.run": "Run",
    "train.trained": "Trained load_run",
    "workflow": "audit",
}
HOME = {name: module for module, names in NAMES.items() for name in names.split()}

# fmt: off
__all__ = [
    "ADR",
    "AMC",
    "D2L",
    "EMBEDDERS",
    "HEADS",
    "ISSUES",
    "LOSSES",
    "MODELS",
    "NOISES",
    "OPTIMIZERS",
    "REGULARIZERS",
    "SCHEDULES",
    "SCORES",
    "SELECTIONS",
    "AVHHead",
    "AVHLoss",
    "Adapted",
    "ArcFaceHead",
    "AuditDiff",
    "AuditOptions",
    "AuditResult",
    "BackwardLoss",
    "BootstrapHardLoss",
    "BootstrapSoftLoss",
    "CenterLoss",
    "Consensus",
    "CosFaceHead",
    "CrossEntropyLoss",
    "Data",
    "DataError",
    "EarlyLearning",
    "Embedded",
    "EncouragingLoss",
    "EntropyPenalty",
    "EuclideanContrastive",
    "Examples",
    "FocalLoss",
    "ForwardLoss",
    "FusedHead",
    "GeneralizedCrossEntropyLoss",
    "GradientRescalingLoss",
    "Issues",
    "LDAMLoss",
    "LSoftmaxHead",
    "LogitAdjustedLoss",
    "MeanAbsoluteErrorLoss",
    "MeanSquaredErrorLoss",
    "MohsClassifier",
    "NormFaceHead",
    "Objective",
    "OnlineSmoothingLoss",
    "Recorder",
    "Retrained",
    "RowStatistics",
    "Run",
    "RunError",
    "SelfPacedLoss",
    "SphereFaceHead",
    "SphericalLoss",
    "SymmetricCrossEntropyLoss",
    "TaylorLoss",
    "Trained",
    "TruncatedGeneralizedCrossEntropyLoss",
    "Votes",
    "WithIds",
    "adapt",
    "add_noise",
    "angle",
    "apply_decisions",
    "audit",
    "avc",
    "avh",
    "avh_loss",
    "by_example",
    "class_counts",
    "class_weights",
    "compare_runs",
    "compare_settings",
    "consensus",
    "create_head",
    "create_loss",
    "create_model",
    "create_objective",
    "create_regularizer",
    "deferred_weights",
    "diff_audits",
    "ece",
    "embed",
    "emphasis",
    "estimate_noise",
    "find_head",
    "find_issues",
    "fit_temperature",
    "focus",
    "judge_labels",
    "judge_targets",
    "linear_loss",
    "load_audit",
    "load_run",
    "margin",
    "masking_report",
    "open_data",
    "out_of_fold",
    "pair_transition",
    "predict_agreement",
    "ramp_up",
    "ramp_up_down",
    "read_decisions",
    "read_recipe",
    "reliability",
    "retrain",
    "robust_accuracy",
    "run_study",
    "scale_of",
    "score",
    "score_features",
    "score_logits",
    "score_targets",
    "spread",
    "suggest_emphasis",
    "symmetric_transition",
    "train",
    "train_many",
    "verdict",
    "write_claims_page",
    "write_labels",
    "write_report",
    "write_study_page",
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
    """A public function keeps its name although a submodule has it too: `mohs.audit` and `mohs.margin` are always functions.

    Importing the submodule (`from mohs.audit.result import ...`) would otherwise put the module in the function's place.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and name in HOME:
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
