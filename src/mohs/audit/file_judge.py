"""A judge of labels that is fitted to a sample and judges any row by itself, so that rows can be judged as they are read.

    features    heads in folds (`train.fold_heads`) on the sample; row i is judged by the heads without fold i mod F, or
                without its own fold if it is in the sample: no head saw the label that it judges
    logits      as given: they must be out of sample

The noise model weights the heads, and a weighted sum of linear heads is one linear head per fold on [x, k(x)]: the features on
their axes and the kernel of the landmarks. The rule of the judgment (`hardness.judgment.LabelRule`), the ranks in hardness,
the means of the classes, the references for neighbors and the plane of the map come from the sample as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.part_files import Tally
from mohs.audit.evidence import fit_plane, plane_of
from mohs.audit.options import Array
from mohs.hardness.classes import encode
from mohs.hardness.judgment import LabelRule, RowJudgment, fit_rule
from mohs.hardness.label_rows import LEAST_PROBABILITY, log_scores
from mohs.hardness.measure import host, measure, table_of
from mohs.hardness.noise_model import NoiseModel
from mohs.hardness.noise_rate import expected_counts
from mohs.hardness.ranks import Ranks, drawn_rows
from mohs.hardness.score import as_tensor
from mohs.hardness.score_files import References
from mohs.hardness.shards import Source
from mohs.hardness.verdict import Places
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.fold_heads import FoldScores, fold_scores
from mohs.train.head_inputs import Axes, RbfUnits

SAMPLE = 50_000  # rows that the judge is fitted to
REFERENCES = 10_000  # rows of the sample among which neighbors are searched
BINS = 4096  # bins of the histogram of p_mislabeled that decides which rows are flagged


@dataclass(frozen=True, eq=False)
class FoldHead:
    """The weighted sum of all heads as a single head: scores of fold f are axes(x) @ weight[f] + kernel(x) @ kernel_weight[f] +
    bias[f].

    Attributes:
        units: The map of the RBF heads, which holds the axes too.
        weight, kernel_weight, bias: (F, r, K), (F, L, K) and (F, K).
        rows: Rows of the sample in rising order (n,).
        fold: Their folds (n,).
    """

    units: RbfUnits
    weight: Tensor
    kernel_weight: Tensor
    bias: Tensor
    rows: Tensor
    fold: Tensor

    @staticmethod
    def of(made: FoldScores, weights: Array, rows: Array) -> FoldHead:
        """The weighted sum of the heads that made these out-of-fold scores."""
        first = next(iter(made.heads.values()))
        units = next(head.map for head in made.heads.values() if isinstance(head.map, RbfUnits))
        folds, width, classes = first.weight.shape
        total = torch.zeros(folds, width, classes, dtype=torch.float64)
        kernel = torch.zeros(folds, len(units.marks), classes, dtype=torch.float64)
        bias = torch.zeros(folds, classes, dtype=torch.float64)
        for share, head in zip(weights.tolist(), made.heads.values(), strict=True):
            weight, constant = head.weight.double(), head.bias.double()
            if isinstance(head.map, Axes):
                total += share * weight
            else:
                weight = weight / head.map.size.double()
                kernel += share * (head.map.root.double() @ weight)
                constant = constant - head.map.center.double() @ weight
            bias += share * constant
        parts = (total.float(), kernel.float(), bias.float())
        return FoldHead(units, *parts, torch.from_numpy(rows), torch.from_numpy(made.fold))

    def scores(self, features: Tensor, rows: Tensor) -> Tensor:
        """Scores (n, K) of the features (n, D) of these rows (n,) by the heads without their fold."""
        at = torch.searchsorted(self.rows, rows).clamp(max=len(self.rows) - 1)
        fold = torch.where(self.rows[at] == rows, self.fold[at], rows % len(self.bias))
        x = self.units.axes(features)
        kernel = self.units.kernel(x)
        scores = torch.empty(len(x), self.bias.shape[1])
        for f in range(len(self.bias)):
            own = (fold == f).nonzero().squeeze(1)
            scores[own] = x[own] @ self.weight[f] + kernel[own] @ self.kernel_weight[f] + self.bias[f]
        return scores


@dataclass(frozen=True, eq=False)
class Geometry:
    """Statistics of the sample's features: their center, the class means, the references, and the plane of the map."""

    center: Tensor
    means: Tensor
    references: References
    plane: tuple[Tensor, Tensor]

    @staticmethod
    def of(features: Tensor, labels: Array, rows: Array, classes: int, seed: int) -> Geometry:
        """From the features (n, D), class indices (n,) and rows (n,) of the sample."""
        center = features.mean(0)
        hot = torch.nn.functional.one_hot(torch.from_numpy(labels), classes).float()
        means = (hot.T @ (features - center)) / hot.sum(0).clamp(min=1).unsqueeze(1)
        drawn = drawn_rows(len(rows), REFERENCES, seed=seed)
        return Geometry(center, means, References.of(features[drawn], rows[drawn], labels[drawn]), fit_plane(features))


@dataclass(frozen=True, eq=False)
class FileJudge:
    """Judges batches of a source; made by `fit_judge`.

    Attributes:
        rule: The rule, for the weighted score of all heads.
        head: The heads; None if logits are given.
        scale: Factor on given logits, the weight that the noise model gives them.
        probabilities: Whether the given logits are probabilities.
        geometry: Statistics of the sample's features, if it has any.
        places: Ranks in hardness among the sample.
        margins: Ranks by margin among the sample, for the grade.
        examples: Number of rows in the sample.
    """

    rule: LabelRule
    head: FoldHead | None
    scale: float
    probabilities: bool
    geometry: Geometry | None
    places: Places
    margins: Ranks
    examples: int

    def __call__(self, batch: Mapping[str, Any], index: Tensor, first: int) -> tuple[dict[str, Any], Tally]:
        columns, judged, known = self.columns(batch, index, torch.arange(first, first + len(index)))
        return columns, sums_of(judged, index.numpy(), known)

    def columns(self, batch: Mapping[str, Any], index: Tensor, rows: Tensor) -> tuple[dict[str, Any], RowJudgment, Array]:
        """Columns of a batch of these rows, its judgment, and which rows could be judged (n,)."""
        x = as_tensor(batch["features"]).float() if "features" in batch else None
        scores = self._scores(batch, x, rows)
        known = torch.isfinite(scores).all(1) & (torch.isfinite(x).all(1) if x is not None else True)
        judged = self.rule.judge(torch.where(known.unsqueeze(1), scores, 0.0).numpy()[None], index.numpy())
        log_p = torch.from_numpy(np.log(judged.probs.clip(1e-12))).float()
        log_p[~known] = torch.nan
        columns: dict[str, Any] = {}
        if x is None or self.geometry is None:
            columns |= measure(log_p, index)
        else:
            near = self.geometry
            columns |= measure(log_p, index, x - near.center, near.means)
            columns["neighbors"] = near.references.agreement(x, index, rows)
            columns["map_x"], columns["map_y"] = plane_of(x, *near.plane).unbind(1)
        unknown = ~known.numpy()
        columns |= {
            "p_mislabeled": np.where(unknown, np.nan, judged.p_mislabeled),
            "p_suggested": np.where(unknown, np.nan, judged.p_suggested),
            "suggested": judged.suggested,
            "supported": judged.supported,
        }
        return columns, judged, ~unknown

    def _scores(self, batch: Mapping[str, Any], x: Tensor | None, rows: Tensor) -> Tensor:
        if self.head is None:
            given = np.asarray(batch["logits"], np.float32)
            return torch.from_numpy(self.scale * (np.log(given.clip(LEAST_PROBABILITY)) if self.probabilities else given))
        assert x is not None
        return self.head.scores(x, rows)


def sums_of(judged: RowJudgment, labels: Array, known: Array) -> Tally:
    """Sums over the known rows of a batch: what the share of wrong labels and the flags are computed from."""
    wrong, given = judged.p_mislabeled[known], labels[known]
    bins = np.minimum((wrong * BINS).astype(np.int64), BINS - 1)
    numbers = [known.sum(), wrong.sum(), judged.apparent[known].sum(), judged.unsure[known].sum()]
    return {
        "sums": np.array([*numbers, (judged.probs.argmax(1)[known] != given).sum()], np.float64),
        "counts": expected_counts(judged.posterior[known], wrong, given),
        "sizes": np.bincount(given, minlength=judged.probs.shape[1]),
        "flag_counts": np.bincount(bins, minlength=BINS),
        "flag_sums": np.bincount(bins, wrong, minlength=BINS),
    }


def fit_judge(source: Source, classes: Sequence[Any], *, sample: int = SAMPLE, folds: int = 5, seed: int = 0) -> FileJudge:
    """Fit a judge to a sample of the source's rows; the rows of the sample that hold NaN or infinity are left out."""
    rows = drawn_rows(source.rows, sample, seed=seed)
    taken = source.take(rows, "features", "logits", "labels")
    known = np.ones(len(rows), bool)
    for key in ("features", "logits"):
        known &= np.isfinite(taken[key]).all(1) if key in taken else True
    if known.sum() < max(2 * folds, len(classes)):
        raise DataError(
            f"{source.name}: {known.sum()} of {len(rows)} rows drawn hold neither NaN nor infinity: too few to judge by"
        )
    taken, rows = {key: values[known] for key, values in taken.items()}, rows[known]
    labels = encode(taken["labels"], num_classes=len(classes), classes=classes)[0]
    features = as_tensor(taken["features"]).float() if "features" in taken else None
    head, probabilities, ambiguity, model = None, False, 1.0, None
    if "logits" in taken:
        given = np.asarray(taken["logits"], np.float32)
        logs = log_scores(given)
        probabilities, scores = logs is not given, logs[None]
    else:
        assert features is not None
        made = fold_scores(features, torch.from_numpy(labels), num_classes=len(classes), folds=folds, seed=seed, linear=True)
        scores, ambiguity, model = made.scores, made.ambiguity, made.model
    rule = fit_rule(scores, labels, ambiguity=ambiguity, model=model)
    if "logits" not in taken:
        head = FoldHead.of(made, rule.model.weights, rows)
    geometry = None if features is None else Geometry.of(features, labels, rows, len(classes), seed)
    scale = float(rule.model.weights[0])
    rule = replace(rule, model=replace(rule.model, weights=np.ones(1)))  # the score is already weighted
    empty = Ranks(np.empty(0))
    judge = FileJudge(rule, head, scale, probabilities, geometry, Places({}, empty), empty, len(rows))
    columns, _, _ = judge.columns(taken, torch.from_numpy(labels), torch.from_numpy(rows))
    plain = {name: values for name, values in host(columns).items() if name not in ("suggested", "supported")}
    table = table_of({"id": rows, **plain}, classes)
    return replace(judge, places=Places.of(table), margins=Ranks.of(-np.asarray(plain["margin"], np.float64)))


def save_judge(judge: FileJudge, file: Path) -> None:
    """Write the judge, so that an interrupted audit resumes with the same one."""
    rule, head, near = judge.rule, judge.head, judge.geometry
    tree: dict[str, Any] = {
        "scale": judge.scale,
        "probabilities": judge.probabilities,
        "examples": judge.examples,
        "margins": torch.from_numpy(judge.margins.values),
        "places": {name: torch.from_numpy(ranks.values) for name, ranks in judge.places.scores.items()},
        "means": torch.from_numpy(judge.places.means.values),
        "rule": {"trust": rule.trust, "sharpness": rule.sharpness, "kappa": rule.kappa, "rate": rule.model.rate},
        "class_trust": torch.from_numpy(rule.class_trust),
        "transition": torch.from_numpy(rule.model.transition),
    }
    if head is not None:
        tree["head"] = {**vars(head), "units": {**vars(head.units), "axes": vars(head.units.axes)}}
    if near is not None:
        tree["near"] = {"center": near.center, "means": near.means, "plane": near.plane, "references": vars(near.references)}
    save_tree(tree, file)


def load_judge(file: Path) -> FileJudge:
    """The judge that `save_judge` wrote."""
    tree = load_tree(file, lost="the fitted judge is lost")
    model = NoiseModel(np.ones(1), tree["transition"].numpy(), tree["rule"].pop("rate"))
    head = near = None
    if "head" in tree:
        units = tree["head"].pop("units")
        head = FoldHead(units=RbfUnits(**{**units, "axes": Axes(**units["axes"])}), **tree["head"])
    if "near" in tree:
        kept = tree["near"]
        near = Geometry(kept["center"], kept["means"], References(**kept["references"]), tuple(kept["plane"]))
    return FileJudge(
        rule=LabelRule(model=model, class_trust=tree["class_trust"].numpy(), **tree["rule"]),
        head=head,
        scale=tree["scale"],
        probabilities=tree["probabilities"],
        geometry=near,
        places=Places({name: Ranks(values.numpy()) for name, values in tree["places"].items()}, Ranks(tree["means"].numpy())),
        margins=Ranks(tree["margins"].numpy()),
        examples=tree["examples"],
    )
