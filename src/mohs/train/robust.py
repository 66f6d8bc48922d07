"""Robust training: a run that trusts its labels by degrees, and replaces those it does not trust by its own predictions.

    belief     after each epoch the averaged network predicts every training example; b ← m b + (1 − m) p is its mean so far
    warm-up    the first `warmup` of the epochs train on the labels as given plus λ log(1 − ⟨p, b⟩), early-learning regularization
               (`losses.early_learning`), which keeps the network from memorizing wrong labels
    select     w_i, the probability that label i is right (`train.selection`)
    targets    t_i = w_i y_i + (1 − w_i) b̂_i,      b̂: sharpened, b̂_k ∝ (b_k √(π_k/mean b_k))^(1/T), with π the shares of the labels
    then       the remaining epochs train on t, updated after each, in a second full course of the learning rate

With two networks each takes its w from the other and b̂ from both, so that neither confirms its own mistakes (as DivideMix,
Li et al. 2020, whose mixture of losses and mixup this keeps, without its separate batches of unlabeled examples). Nothing here is
set by the true noise rate: the mixture finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from mohs._core.validation import check_between, check_choice
from mohs.evaluate.outputs import output_batches
from mohs.losses.early_learning import early_learning
from mohs.models.network import Network, head_weight
from mohs.models.twins import members
from mohs.train.learning_rate import LRSchedule
from mohs.train.selection import SELECTIONS, Evidence, right_labels

TARGETS = ("refined", "bootstrapped", "given")


@dataclass(frozen=True, kw_only=True)
class Robust:
    """Settings of robust training with one network.

    Attributes:
        select: Hardness by which labels are trusted (`SELECTIONS`).
        targets: "refined": label and sharpened belief by trust; "bootstrapped": label and belief as it is; "given": the labels.
        warmup: Share of the epochs that train on the labels as given.
        early: Weight λ of early-learning regularization in the warm-up.
        memory: Share m of the old belief that is kept at each epoch.
        temperature: T of the sharpening.
    """

    formula: ClassVar[str] = "t = w y + (1 − w) b"
    purpose: ClassVar[str] = "many wrong labels: trusts labels by degrees and learns from its own predictions"
    networks: ClassVar[int] = 1
    select: str = "loss"
    targets: str = "refined"
    warmup: float = 0.5
    early: float = 3.0
    memory: float = 0.7
    temperature: float = 0.5

    def __post_init__(self) -> None:
        check_choice("select", self.select, SELECTIONS)
        check_choice("targets", self.targets, TARGETS)
        check_between("warmup", self.warmup, 0, 1)
        check_between("early", self.early, 0)
        check_between("memory", self.memory, 0, 1, ends="[)")
        check_between("temperature", self.temperature, 0, ends="(]")


    def warmup_epochs(self, epochs: int) -> int:
        """The number of epochs that train on the labels as given."""
        return max(1, round(self.warmup * epochs)) if self.targets != "given" else epochs


@dataclass(frozen=True, kw_only=True)
class RobustTwo(Robust):
    """Settings of robust training with two networks; the result is their mean."""

    purpose: ClassVar[str] = "the same with two networks that check each other: better, at twice the time"
    networks: ClassVar[int] = 2


RECIPES: dict[str, type[Robust]] = {"robust": Robust, "robust-two": RobustTwo}


class Refinement:
    """Beliefs and targets of the training examples, updated after every epoch.

    Attributes:
        targets: (N, K), or (N, 2, K) with two networks: soft labels of the next epoch; changed in place.
        belief: (N, M, K), the mean prediction of each of the M networks.
        right: (N, M), each network's probability that the label is right.
    """

    def __init__(self, settings: Robust, labels: Tensor, num_classes: int, soft: Tensor | None = None) -> None:
        count = settings.networks
        self.settings, self.labels = settings, labels
        self.given = one_hot(labels, num_classes).float() if soft is None else soft.float()
        self.targets = self.given.clone() if count == 1 else self.given.unsqueeze(1).repeat(1, count, 1)
        self.shares = self.given.mean(0)
        self.belief = torch.zeros(len(labels), count, num_classes, device=labels.device)
        self.right = torch.ones(len(labels), count, device=labels.device)
        self.updates = 0

    @torch.no_grad()
    def update(self, network: Network, inputs: Any, *, epochs: int, precision: str) -> None:
        """Add this network's predictions to the belief, and after the warm-up set the targets of the next epoch."""
        fresh = 1 - self.settings.memory if self.updates else 1.0
        self.updates += 1
        refines = self.settings.targets != "given" and self.updates >= self.settings.warmup_epochs(epochs)
        for place, member in enumerate(members(network)):
            probs, features = predicted(member, inputs, precision)
            belief = self.belief[:, place].lerp_(probs, fresh)
            if refines:
                seen = Evidence(belief, features, head_weight(member).detach())
                self.right[:, place] = right_labels(self.settings.select, seen, self.labels).to(self.right)
        if refines:
            self.targets.copy_(self.refined())

    def refined(self) -> Tensor:
        """The targets by the current belief and trust, in the shape of `targets`."""
        belief = self.belief.mean(1)
        if self.settings.targets == "refined":
            belief = sharpened(balanced(belief, self.shares), self.settings.temperature)
        others = self.right.flip(1).unsqueeze(2)  # with one network, its own
        return torch.lerp(belief.unsqueeze(1), self.given.unsqueeze(1), others).view_as(self.targets)

    def state_dict(self) -> dict[str, Any]:
        return {"targets": self.targets, "belief": self.belief, "right": self.right, "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("targets", "belief", "right"):
            getattr(self, name).copy_(state[name])
        self.updates = int(state["updates"])


def predicted(network: Network, inputs: Any, precision: str) -> tuple[Tensor, Tensor]:
    """Probabilities (N, K) and features (N, D) of all inputs, on the network's device."""
    parts: Iterator[Any] = output_batches(network, inputs, precision=precision)
    made = [(torch.softmax(logits.float(), 1), features) for _, logits, features in parts]
    return torch.cat([probs for probs, _ in made]), torch.cat([features for _, features in made])


def balanced(probs: Tensor, shares: Tensor) -> Tensor:
    """probs (N, K) with the mean of each class moved half-way (geometrically) to these shares (K,), so that no class dies out."""
    moved = probs * (shares / probs.mean(0).clamp(min=1e-6)).sqrt()
    return moved / moved.sum(1, keepdim=True)


class TowardBelief(nn.Module):
    """Early-learning regularization toward the belief, as a part of the objective."""

    takes = ("logits", "belief")

    def forward(self, logits: Tensor, belief: Tensor) -> Tensor:
        return early_learning(logits, belief)


@dataclass(frozen=True)
class Phase:
    """The weight of a term that ends with the warm-up."""

    weight: float
    end: float

    def __call__(self, epoch: float) -> float:
        return self.weight if epoch < self.end else 0.0


@dataclass(frozen=True)
class TwoCourses:
    """A learning-rate schedule run through twice: until `end`, and from there to the end of the run."""

    schedule: LRSchedule
    end: float

    def __call__(self, epoch: float, epochs: float) -> float:
        return self.schedule(epoch, self.end) if epoch < self.end else self.schedule(epoch - self.end, epochs - self.end)

    def beta1(self, epoch: float, epochs: float) -> float | None:
        return self.schedule.beta1(epoch, epochs)


def sharpened(probs: Tensor, temperature: float) -> Tensor:
    """probs^(1/T), normalized."""
    raised = probs.pow(1 / temperature)
    return raised / raised.sum(-1, keepdim=True).clamp(min=torch.finfo(raised.dtype).tiny)
