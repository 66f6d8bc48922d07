"""Selection for self-training: which unlabeled examples get a pseudo-label, and which one.

    S_k   the examples whose most likely class is k;   n_k = ⌊portion · |S_k|⌋
    λ_k   the n_k-th largest p(k|x) in S_k;   β_k   the n_k-th largest AVC(k|x) in S_k
    cbst        label argmax_c p_c/λ_c = k, kept where p_k ≥ λ_k
    cbst_avh    the same label, kept where AVC_k ≥ β_k
    avh         label argmin_c θ_c = k, S_k by that label, kept where AVC_k ≥ β_k
    confidence  label argmax_c p_c, kept where p is among the ⌊portion · M⌋ largest of all: one threshold for all classes
    random      label argmax_c p_c, n_k of each S_k at random
    mrkld       cbst, trained with a KL(uniform ‖ p) added to the label's loss: soft label 1[k] + a/K
    lrent       soft label ∝ (p_k/λ_k)^{1/a}, kept where a log Σ_k (p_k/λ_k)^{1/a} ≥ 0;   a → 0 is cbst
    crst        both

AVC_k = (π − θ_k)/Σ_c (π − θ_c), θ_k the angle between features and class weights. Where n_k = 0 the threshold is 1 and nothing
is labeled k; all ties are kept (`thresholds.py`). The soft labels of mrkld carry the weight a once; the authors' code applies
it twice. Zou et al., "Unsupervised domain adaptation via class-balanced self-training" (ECCV 2018) and "Confidence regularized
self-training" (ICCV 2019); Chen et al., "Angular visual hardness" (ICML 2020), eqs. 2 to 4, with ≥ for the printed >.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mohs._core.specs import as_spec, create_spec
from mohs._core.validation import check_between
from mohs.adapt.thresholds import Predictions, Selected, balanced, kept, passing, portion_counts, top_portion


class Selection(Protocol):
    """A selection method: a portion from 0 to 1 of the examples, by the network's outputs."""

    formula: ClassVar[str]
    purpose: ClassVar[str]

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected: ...


@dataclass(frozen=True, kw_only=True)
class CBST:
    """Class-balanced by confidence."""

    formula: ClassVar[str] = "argmax p/λ, p ≥ λ"
    purpose: ClassVar[str] = "class-balanced self-training: the most confident portion of each class"

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected:
        scores, counts, _ = balanced(outputs, portion)
        labels = scores.argmax(1)
        return kept(passing(scores, labels, torch.zeros_like(scores[0]), counts), labels)


@dataclass(frozen=True, kw_only=True)
class CBSTWithAVH:
    """CBST's labels, selected by angle."""

    formula: ClassVar[str] = "argmax p/λ, AVC ≥ β"
    purpose: ClassVar[str] = "the AVH paper's: the portion of each class nearest in angle"

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected:
        scores, _, classes = balanced(outputs, portion)
        return top_portion(outputs.avc, scores.argmax(1), classes, portion)


@dataclass(frozen=True, kw_only=True)
class AVHOnly:
    """Label and selection by angle alone."""

    formula: ClassVar[str] = "argmin θ, AVC ≥ β"
    purpose: ClassVar[str] = "a control: angles instead of probabilities throughout"

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected:
        labels = outputs.avc.argmax(1)
        return top_portion(outputs.avc, labels, labels, portion)


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """One threshold for all classes."""

    formula: ClassVar[str] = "argmax p, p ≥ λ"
    purpose: ClassVar[str] = "a control: plain self-training, which favors easy classes"

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected:
        top, labels = outputs.log_p.max(1)
        number = int(portion_counts(torch.zeros_like(labels), portion, 1))
        if not number:
            return kept(torch.zeros_like(labels, dtype=torch.bool), labels)
        return kept(top >= top.sort(descending=True).values[number - 1], labels)


@dataclass(frozen=True, kw_only=True)
class RandomSelection:
    """The same number of each class, at random."""

    formula: ClassVar[str] = "argmax p, n_k of each class at random"
    purpose: ClassVar[str] = "a control: whether it matters which examples are selected"

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected:
        labels = outputs.log_p.argmax(1)
        draws = torch.rand(outputs.logits.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return top_portion(draws, labels, labels, portion)


@dataclass(frozen=True, kw_only=True)
class MRKLD:
    """CBST with a penalty on confident predictions; weight is a."""

    formula: ClassVar[str] = "CBST, − log p_y − (a/K) Σ log p_k"
    purpose: ClassVar[str] = "confidence-regularized self-training (model regularization): less confident in wrong labels"
    weight: float = 0.1

    def __post_init__(self) -> None:
        check_between("weight", self.weight, 0)

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected:
        found = CBST()(outputs, portion)
        whole = one_hot(found.labels, outputs.logits.shape[1]).float()
        return Selected(found.places, found.labels, evened(whole, self.weight))


@dataclass(frozen=True, kw_only=True)
class LRENT:
    """Soft labels; softness is a."""

    formula: ClassVar[str] = "t_k ∝ (p_k/λ_k)^{1/a}"
    purpose: ClassVar[str] = "confidence-regularized self-training (label regularization): soft labels"
    softness: float = 0.25

    def __post_init__(self) -> None:
        check_between("softness", self.softness, 0, ends="(]")

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected:
        scores, counts, _ = balanced(outputs, portion)
        labels, sharp = scores.argmax(1), scores / self.softness
        return kept((torch.logsumexp(sharp, 1) >= 0) & (counts[labels] > 0), labels, torch.softmax(sharp, 1))


@dataclass(frozen=True, kw_only=True)
class CRST:
    """LRENT and MRKLD together; softness is LRENT's a, weight MRKLD's."""

    formula: ClassVar[str] = "t_k ∝ (p_k/λ_k)^{1/a}, + b/K"
    purpose: ClassVar[str] = "confidence-regularized self-training, both kinds: the AVH paper's row CRST"
    softness: float = 0.25
    weight: float = 0.1

    def __post_init__(self) -> None:
        check_between("softness", self.softness, 0, ends="(]")
        check_between("weight", self.weight, 0)

    def __call__(self, outputs: Predictions, portion: float, *, seed: int = 0) -> Selected:
        found = LRENT(softness=self.softness)(outputs, portion)
        return Selected(found.places, found.labels, evened(found.soft, self.weight))


def evened(soft: Tensor | None, weight: float) -> Tensor | None:
    """Soft labels (S, K) plus weight/K for every class, which adds weight · KL(uniform ‖ p) to the loss."""
    return None if soft is None else soft + weight / soft.shape[1]


SELECTIONS: dict[str, type[Selection]] = {
    "cbst": CBST,
    "cbst_avh": CBSTWithAVH,
    "avh": AVHOnly,
    "confidence": Confidence,
    "random": RandomSelection,
    "mrkld": MRKLD,
    "lrent": LRENT,
    "crst": CRST,
}
SOFT = ("mrkld", "lrent", "crst")


def create_selection(spec: str | Mapping[str, Any]) -> Selection:
    """The selection that the spec names: "cbst_avh", "lrent:softness=0.5", {"name": "mrkld", "weight": 0.05}."""
    return create_spec(SELECTIONS, "selection", as_spec(spec))
