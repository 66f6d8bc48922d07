"""Robust training: a run that learns which labels to trust, and replaces the others by its own predictions.

    warm-up  the first `warmup` of the epochs train on the labels as given, with early-learning regularization of weight `early`
             (`losses.early_learning`), which slows the memorizing of wrong labels, and with consistency of two views
    views    the network sees each image shifted and mirrored, as in any training, and strongly augmented; each embedding
             unchanged, and with some numbers of others. It learns to predict on the second view what it predicts on the
             first (`train.consistency`), whatever the label
    belief   after each epoch the averaged network predicts every training example; if training mirrors images, after every
             second epoch it predicts their mirror images instead; b ← m b + (1 − m) p is the mean so far, scaled by
             class to the shares π of the labels, so that hard classes do not die out: b_k ← b_k π_k / mean b_k
    trust    w_i, the probability that label i is right (`train.label_trust`)
    targets  t_i = w_i y_i + (1 − w_i) b_i over the other classes, sharpened: t ← t^(1/T), normalized
    then     the remaining epochs train on t, updated after each epoch, where it is certain; all examples teach by consistency

On features, `select="folds"` replaces all that: models in folds estimate, out of sample, how likely each label is right, and the
probabilities of the other classes (`train.fold_judge`); all epochs train on t_i = w_i y_i + (1 − w_i) b_i, without sharpening.

With two networks, each takes w from the other and b from both, so that neither confirms its own mistakes, and each sees its own
views, so that they differ by more than their initial weights. The parts are those of ELR (Liu et al. 2020), UDA (Xie et
al. 2020) and DivideMix (Li et al. 2020). No setting depends on the true noise rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mohs._core.distributed import add_over_ranks, ranks
from mohs._core.specs import as_spec
from mohs._core.validation import check_between, check_choice
from mohs.evaluate.outputs import output_batches
from mohs.models.network import Network, head_weight
from mohs.models.twins import members
from mohs.train.label_trust import LEAST, TRUST_RULES, Evidence, right_labels

TARGETS = ("refined", "given")
UNLABELED = ("consistency", "believed")
FOLDS = "folds"  # the rule that is applied before training
TAUGHT = 0.85  # minimum share of the examples whose targets are used, however uncertain


@dataclass(frozen=True, kw_only=True)
class Robust:
    """Settings of robust training with one network.

    Attributes:
        select: How labels are trusted: by a rule in `TRUST_RULES`, or by "folds" before training.
        targets: "refined": label and belief by trust; "given": the labels, so that only early-learning regularization acts.
        warmup: Share of the epochs that train on the labels as given.
        early: Weight of early-learning regularization in the warm-up.
        memory: Share m of the old belief that is kept at each epoch.
        temperature: T of the sharpening; 1: none.
        unlabeled: How examples with an untrusted label are used after the warm-up: "consistency" of two views, or "believed": one
            view with its target, strongly augmented and mixed.
        augment: Augmentation after the warm-up, as `Run.augment`; None chooses by the data and `unlabeled`.
        consistency: Weight of consistency between two views (`train.consistency`); 0: one view.
        view: Augmentation of the second view, as `Run.augment`; None: strong augmentation.
        confidence: Examples whose target is less certain than this (largest probability, before sharpening) are skipped for an
        epoch, but at most 15 % of them.
    """

    formula: ClassVar[str] = "t = w y + (1 − w) b"
    purpose: ClassVar[str] = "many wrong labels: trusts labels by degrees and learns from its own predictions"
    networks: ClassVar[int] = 1
    select: str = "auto"
    targets: str = "refined"
    warmup: float = 0.35
    early: float = 1.0
    memory: float = 0.8
    temperature: float = 0.5
    unlabeled: str = "consistency"
    augment: Sequence[str | Mapping[str, Any]] | None = None
    consistency: float = 1.0
    view: Sequence[str | Mapping[str, Any]] | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        check_choice("select", self.select, (*TRUST_RULES, FOLDS))
        check_choice("targets", self.targets, TARGETS)
        check_choice("unlabeled", self.unlabeled, UNLABELED)
        check_between("warmup", self.warmup, 0, 1)
        check_between("early", self.early, 0)
        check_between("memory", self.memory, 0, 1, ends="[)")
        check_between("temperature", self.temperature, 0, ends="(]")
        check_between("consistency", self.consistency, 0)
        check_between("confidence", self.confidence, 0, 1)

        mixes = any(as_spec(step).get("name") == "mixup" for step in self.augment or ())
        if mixes and self.two_views and self.unlabeled == "consistency":
            raise ValueError(
                "unlabeled=consistency compares two views of one input: leave mixup out of augment, or set unlabeled=believed"
            )

    @property
    def two_views(self) -> bool:
        """Whether the warm-up trains on two views of each example."""
        return self.consistency > 0 and (self.view is None or len(self.view) > 0)

    def warmup_epochs(self, epochs: int) -> int:
        """The number of epochs that train on the labels as given."""
        if self.targets == "given":
            return epochs
        return 0 if self.select == FOLDS else max(1, round(self.warmup * epochs))


@dataclass(frozen=True, kw_only=True)
class RobustTwo(Robust):
    """Settings of robust training with two networks; the result is their mean.

    Attributes:
        own_views: Whether each network sees its own random views of the images of a batch; otherwise both see the same.
    """

    purpose: ClassVar[str] = "the same with two networks that check each other: better, at twice the time"
    networks: ClassVar[int] = 2
    own_views: bool = True


RECIPES: dict[str, type[Robust]] = {"robust": Robust, "robust-two": RobustTwo}


class Refinement:
    """Beliefs and targets of the training examples, updated after every epoch of a run.

    Attributes:
        targets: (N, K), or (N, 2, K) with two networks: soft labels of the next epoch; changed in place.
        belief: (N, M, K), the mean prediction of each of the M networks.
        mirror: Whether every second prediction is that of the mirror images.
        right: (N, M), probability by each network that the label is right.
        warmup: Epochs that train on the labels as given.
        updates: Epochs so far.
    """

    def __init__(
        self,
        settings: Robust,
        labels: Tensor,
        num_classes: int,
        epochs: int,
        soft: Tensor | None = None,
        *,
        mirror: bool = False,
        judged: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        count, self.mirror, self.fixed = settings.networks, mirror, judged is not None
        self.settings, self.labels, self.warmup = settings, labels, settings.warmup_epochs(epochs)
        given = one_hot(labels, num_classes).float() if soft is None else soft.float()
        self.targets = given.clone() if count == 1 else given.unsqueeze(1).repeat(1, count, 1)
        self.shares = given.mean(0)
        self.belief = torch.zeros(len(labels), count, num_classes, device=labels.device)
        self.right = torch.ones(len(labels), count, device=labels.device)
        self.updates = 0
        if judged is not None:
            right, probs = (one.to(labels.device) for one in judged)
            made = refined(probs, right, labels)
            self.right.copy_(right.unsqueeze(1).expand_as(self.right))
            self.belief.copy_(made.unsqueeze(1).expand_as(self.belief))
            self.targets.copy_(self.belief.view_as(self.targets))

    @property
    def refines(self) -> bool:
        """Whether the warm-up is over, so that targets are refined."""
        return self.settings.targets == "refined" and self.updates >= self.warmup

    @torch.no_grad()
    def update(self, network: Network, inputs: Any, *, precision: str) -> tuple[Tensor, Tensor]:
        """Add this network's predictions to the belief, and after the warm-up set the targets of the next epoch.

        Returns:
            Its logits (N, K), as the logarithm of the mean probability, and features (N, D).
        """
        self.updates += 1
        networks, given = members(network), Mirrored(inputs) if self.mirror and self.updates % 2 == 0 else inputs
        outputs = [predicted(member, given, precision) for member in networks]
        if not self.fixed:
            self.believe(networks, outputs)
        mean = torch.stack([probs for probs, _ in outputs]).mean(0)
        return mean.clamp(min=LEAST).log(), torch.cat([features for _, features in outputs], 1)

    def believe(self, networks: Sequence[Network], outputs: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Add each network's probabilities (N, K) and features (N, D) to the belief, and set trust and targets by it."""
        fresh = 1 - self.settings.memory if self.updates > 1 else 1.0
        for place, (member, (probs, features)) in enumerate(zip(networks, outputs, strict=True)):
            belief = self.belief[:, place].lerp_(probs, fresh)
            if self.refines:
                seen = Evidence(balanced(belief, self.shares), features, head_weight(member).detach())
                self.right[:, place] = right_labels(self.settings.select, seen, self.labels).to(self.right)
        if self.refines:
            others = self.right.flip(1)  # with one network, its own
            belief = balanced(self.belief.mean(1), self.shares)
            made = [refined(belief, right, self.labels) for right in others.unbind(1)]
            self.targets.copy_(torch.stack([self.taught(one) for one in made], 1).view_as(self.targets))

    def taught(self, targets: Tensor) -> Tensor:
        """Targets (N, K), sharpened; rows that are not certain enough become 0, so that they have no loss.

        At least a share of TAUGHT is kept: a network that is certain of few would otherwise learn only from easy examples.
        """
        raised = targets.pow(1 / self.settings.temperature)
        certainty = targets.amax(1, keepdim=True)
        enough = certainty.flatten().kthvalue(1 + int((1 - TAUGHT) * (len(targets) - 1))).values
        certain = certainty >= enough.clamp(max=self.settings.confidence)
        return certain * raised / raised.sum(1, keepdim=True)

    def state_dict(self) -> dict[str, Any]:
        return {"targets": self.targets, "belief": self.belief, "right": self.right, "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("targets", "belief", "right"):
            getattr(self, name).copy_(state[name])
        self.updates = int(state["updates"])


def refined(belief: Tensor, right: Tensor, labels: Tensor) -> Tensor:
    """belief (N, K), right (N,), labels (N,) -> targets (N, K): the label has probability `right`, the others share the rest."""
    index = labels.unsqueeze(1)
    others = belief.clamp(min=LEAST).scatter(1, index, 0.0)
    others = others / others.sum(1, keepdim=True)
    return (others * (1 - right).unsqueeze(1)).scatter(1, index, right.to(others).unsqueeze(1))


def balanced(probs: Tensor, shares: Tensor, steps: int = 10) -> Tensor:
    """probs (N, K), scaled by class until the mean of each class is its share (K,)."""
    for _ in range(steps):
        probs = probs * (shares / probs.mean(0).clamp(min=LEAST))
        probs = probs / probs.sum(1, keepdim=True)
    return probs


class Mirrored:
    """The mirror images of inputs (N, C, H, W)."""

    def __init__(self, inputs: Any) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: Any) -> Tensor:
        images: Tensor = self.inputs[rows]
        return images.flip(-1)

    def take(self, rows: Tensor) -> Mirrored:
        return Mirrored(self.inputs[rows] if isinstance(self.inputs, Tensor) else self.inputs.take(rows))


def predicted(network: Network, inputs: Any, precision: str) -> tuple[Tensor, Tensor]:
    """Probabilities (N, K) and features (N, D) of all inputs, on the network's device; each process predicts its part."""
    rank, processes = ranks()
    rows = torch.arange(min(rank, len(inputs) - 1), len(inputs), processes)
    own = inputs if processes == 1 else inputs[rows] if isinstance(inputs, Tensor) else inputs.take(rows)
    made = [(logits, features) for _, logits, features in output_batches(network, own, precision=precision)]
    probs = torch.softmax(torch.cat([logits for logits, _ in made]).float(), 1)
    features = torch.cat([features for _, features in made])
    return (probs, features) if processes == 1 else (joined(probs, rows, len(inputs)), joined(features, rows, len(inputs)))


def joined(part: Tensor, rows: Tensor, total: int) -> Tensor:
    """The rows (n, ...) of all processes as one tensor (total, ...), on every process."""
    whole, seen = part.new_zeros(total, *part.shape[1:]), part.new_zeros(total, 1)
    rows = rows.to(part.device)
    add_over_ranks(whole.index_copy_(0, rows, part))
    return whole / add_over_ranks(seen.index_fill_(0, rows, 1.0))  # with fewer rows than processes, the last has several


@dataclass(frozen=True)
class Phase:
    """The weight of a term until the epoch `end`."""

    weight: float
    end: float

    def __call__(self, epoch: float) -> float:
        return self.weight if epoch < self.end else 0.0
