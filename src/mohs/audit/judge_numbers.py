"""Judge numeric labels, the targets of a regression, by the residuals of models that did not see them.

features     as given, or those of images, texts and tables
predictions  ridge regression out of fold and a random forest out of bag (with groups: out of fold); whichever of the two, or
             their mean, is nearest to the targets. They are fitted twice, the second time to targets moved toward the
             expected ones where they are probably wrong
judgment     residuals compared with their usual spread (`hardness.targets`)
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs.audit.evidence import on_map
from mohs.audit.judge_several import features_to_judge
from mohs.audit.options import Array, AuditOptions
from mohs.audit.result import AuditResult
from mohs.data.examples import Data
from mohs.data.groups import group_folds
from mohs.hardness.table import add_columns
from mohs.hardness.targets import judge_targets, score_targets
from mohs.hardness.verdict import verdict
from mohs.train.fold_heads import default_folds
from mohs.train.trained import with_origin

TREES = 200
PENALTIES = np.geomspace(1e-2, 1e4, 13)
DIGITS = 4  # significant digits of a suggested number


def judge_numbers(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Judge the targets of features, images, texts or tables."""
    began, train = time.perf_counter(), data.train
    features, about = features_to_judge(data, options)
    x = np.hstack([np.asarray(one, np.float64) for one in features.values()])
    targets = np.asarray(train.classes, dtype=np.float64)[train.labels.numpy()]
    options.step("judge", f"ridge regression and a forest on {about}")
    _, predicted = best_predictions(x, targets, train.groups, options)
    model, predicted = best_predictions(x, believable(predicted, targets), train.groups, options)
    judgment = judge_targets(predicted, targets, precision=options.precision)
    judgment = replace(judgment, suggested=np.where(judgment.flagged, rounded(judgment.suggested), targets))
    options.step("scores", "residuals")
    table = score_targets(predicted, targets)
    table = add_columns(table, {"predicted": rounded(table.column("predicted").to_numpy())})
    options.step("verdict", f"flagging at an expected precision of {options.precision:.0%}")
    table = verdict(table, judgment=judgment, precision=options.precision)
    facts = {
        "features": about,
        "model": model,
        "share of wrong numbers": round(judgment.rate, 4),
        "seconds": round(time.perf_counter() - began, 1),
        "out of sample": "yes: no model saw the numbers it judges",
        "seed": options.seed,
        "expected precision": options.precision,
    }
    return AuditResult.of(train, table=on_map(with_origin(table, train), x), facts=facts)


def believable(predicted: Array, targets: Array) -> Array:
    """The targets (N,), moved toward the expected ones in proportion to the probability that they are wrong."""
    wrong = np.nan_to_num(judge_targets(predicted, targets).p_mislabeled)
    expected = score_targets(predicted, targets).column("predicted").to_numpy()
    moved: Array = targets + wrong * np.nan_to_num(expected - targets)
    return moved


def best_predictions(x: Array, targets: Array, groups: Tensor | None, options: AuditOptions) -> tuple[str, Array]:
    """The model whose predictions have the smallest median error, and those predictions (N,)."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import KFold, PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds: Any = KFold(options.folds, shuffle=True, random_state=options.seed)
    if groups is not None:
        number = options.folds or default_folds(len(x), groups)
        folds = PredefinedSplit(group_folds(torch.zeros_like(groups), groups, folds=number, seed=options.seed).numpy())
    ridge = cross_val_predict(make_pipeline(StandardScaler(), RidgeCV(PENALTIES)), x, targets, cv=folds)
    forest = RandomForestRegressor(TREES, min_samples_leaf=3, oob_score=groups is None, random_state=options.seed)
    if groups is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a row that every tree drew has no out-of-bag prediction, and is not judged
            forest.fit(x, targets)
        bagged = forest.oob_prediction_
    else:
        bagged = cross_val_predict(forest, x, targets, cv=folds)
    made = {"ridge regression": ridge, "a forest": bagged, "ridge regression and a forest": (ridge + bagged) / 2}
    return min(made.items(), key=lambda one: float(np.median(np.abs(targets - one[1]))))


def rounded(values: Array) -> Array:
    """Numbers (N,) with a few significant digits."""
    return np.array([float(f"{one:.{DIGITS}g}") for one in values])
