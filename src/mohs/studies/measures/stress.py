"""Measures under distribution shift: other data, attacked images, degraded images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs._core.specs import as_spec, create_spec
from mohs._core.validation import check_between, check_choice
from mohs.data.degrade import DEGRADATIONS, create_degradation
from mohs.data.examples import Data
from mohs.evaluate.attack import ATTACKS, Attack, robust_accuracy, standard_attacks
from mohs.evaluate.attack_ball import NORMS
from mohs.evaluate.degrade_curve import degrade_curve, trend
from mohs.evaluate.masking import masking_report
from mohs.evaluate.ood import INDICATORS, ood
from mohs.studies.measures.test_outputs import pixels_of, subset, test_of
from mohs.train.trained import Trained

BATCH = 1024  # images attacked at once
STRENGTH = {"contrast": "level", "noise": "width", "blur": "sigma"}  # the field that holds the level


@dataclass(frozen=True, kw_only=True)
class OutOfDistribution:
    """Out-of-distribution detection: auroc_<indicator>, fpr95_<indicator> of the test set against the test set of `data`.

    Images are resized and converted to color or gray to fit the network.
    """

    data: str
    indicators: Sequence[str] = tuple(INDICATORS)

    def __post_init__(self) -> None:
        for name in self.indicators:
            check_choice("indicators", name, tuple(INDICATORS))

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        from mohs.train.run_data import outside

        test = test_of(data)
        found = ood(trained.network, test, outside(self.data, trained.run, like=test), indicators=self.indicators)
        return {f"{metric}_{name}": found[name][metric] for name in self.indicators for metric in ("auroc", "fpr95")}


@dataclass(frozen=True, kw_only=True)
class UnderAttack:
    """Accuracy under attack at one ε: robust_<attack>, robust_worst (per example, over all attacks), masking_suspected (1 or 0).

    attacks: names or specs ("pgd:loss=margin"), by default FGSM and PGD on cross-entropy, margin and DLR; steps and
    restarts are PGD's. examples: number of test examples, spread over the set. masking=false skips that check.
    """

    eps: float
    norm: str = "linf"
    steps: int = 40
    restarts: int = 1
    attacks: Sequence[str | Mapping[str, Any]] | None = None
    examples: int | None = None
    masking: bool = True

    def __post_init__(self) -> None:
        check_between("eps", self.eps, 0)
        check_choice("norm", self.norm, NORMS)
        self.named(3)

    def named(self, classes: int) -> dict[str, Attack]:
        """The attacks by the names of their numbers."""
        given = standard_attacks(classes) if self.attacks is None else [as_spec(one) for one in self.attacks]
        made = {}
        for one in given:
            spec = one if isinstance(one, dict) else {"name": type(one).__name__.lower(), "loss": one.loss}
            if spec.get("name") == "pgd":
                spec = {"steps": self.steps, "restarts": self.restarts, **spec}
            attack: Attack = create_spec(ATTACKS, "attack", spec)
            made[spec["name"] + ("" if attack.loss == "cross_entropy" else f"_{attack.loss}")] = attack
        return made

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = subset(test_of(data), self.examples)
        images = pixels_of(test)
        options: dict[str, Any] = {"eps": self.eps, "norm": self.norm, "seed": trained.run.seed, "batch_size": BATCH}
        found = robust_accuracy(trained.network, images, test.labels, attacks=self.named(len(data.classes)), **options)
        made = {f"robust_{name}": value for name, value in found.attacks.items()}
        made |= {"robust_clean": found.clean, "robust_worst": found.worst}
        if self.masking and self.eps > 0:
            report = masking_report(trained.network, images, test.labels, steps=self.steps, **options)
            made["masking_suspected"] = float(report.suspected)
        return made


@dataclass(frozen=True, kw_only=True)
class Degrade:
    """Degraded test images: avh_<level>, norm_<level>, confidence_<level>, accuracy_<level>, and trend_avh, trend_norm:
    Spearman's ρ of level and mean. kind: contrast, noise or blur; contrast: applied before noise."""

    kind: str
    levels: Sequence[float]
    contrast: float = 1.0
    examples: int | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, tuple(DEGRADATIONS))
        for level in self.levels:
            self.degradation(level)

    def degradation(self, level: float) -> Any:
        fields = {STRENGTH[self.kind]: level} | ({"contrast": self.contrast} if self.kind == "noise" else {})
        return create_degradation(self.kind, **fields)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = subset(test_of(data), self.examples)
        pixels_of(test.take(torch.arange(1)))  # raises if the inputs are not images
        generator = torch.Generator(next(trained.network.parameters()).device).manual_seed(trained.run.seed)

        def degrade(images: Tensor, level: float) -> Tensor:
            worse: Tensor = self.degradation(level)(images, generator)
            return worse

        curve = degrade_curve(trained.network, test, test.labels, degrade, self.levels)
        named = ("avh", "norm", "confidence", "accuracy")
        made = {f"{name}_{row.level:g}": getattr(row, name) for row in curve for name in named}
        return made | {f"trend_{name}": trend(curve, name) for name in ("avh", "norm")}
