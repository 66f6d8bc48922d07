"""Measures from gradients: the gradient norms of the objective, and how angles and norms change along an attack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mohs._core.eval_mode import eval_mode
from mohs._core.validation import check_between, check_choice
from mohs.data.examples import Data
from mohs.evaluate.attack import PGD, checked_pixels, input_gradient
from mohs.evaluate.attack_ball import NORMS, direction, within
from mohs.evaluate.outputs import input_batches
from mohs.hardness.angular import avh
from mohs.hardness.snapshot import norm
from mohs.margin import margin
from mohs.models.network import head_weight
from mohs.studies.measures.test_outputs import pixels_of, subset, test_of
from mohs.train.build_objective import build_objective
from mohs.train.trained import Trained

HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Gradient norms at the end of training: gradient_norm, the mean L2 norm with respect to all parameters over batches of the
    training set; gradient_norm_logits, the mean with respect to the logits of each example.

    batch: the run's own by default. The network is in evaluation mode, without augmentation.
    """

    batch: int | None = None
    examples: int | None = None

    def __post_init__(self) -> None:
        if self.batch is not None:
            check_between("batch", self.batch, 1)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        train, network = subset(data.train, self.examples), trained.network.eval()
        device = next(network.parameters()).device
        objective = build_objective(trained.run, network, data.train).to(device)
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(trained.run.seed))
        own, by_logits = [], []
        for places in torch.split(order, self.batch or trained.run.batch):
            labels = train.labels[places].to(device)
            logits, features = network.outputs(train.inputs[places].to(device), labels)
            total = objective(logits, labels, features=features, epoch=trained.run.epochs)
            parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
            grads = torch.autograd.grad(total, [*parameters, logits], allow_unused=True)
            own.append(math.sqrt(sum(float(g.double().square().sum()) for g in grads[:-1] if g is not None)))
            by_logits.append(float(grads[-1].double().norm(dim=1).mean()) * len(places))
        return {"gradient_norm": sum(own) / len(own), "gradient_norm_logits": sum(by_logits) / len(by_logits)}


@dataclass(frozen=True, kw_only=True)
class AttackPath:
    """The path of a PGD attack on cross-entropy: attack_<value>_<step> of avh, norm, confidence and accuracy for the steps `at`;
    attack_change_<value>: relative change from first to last step; attack_half_avh and attack_half_norm: the share of the steps
    after which half of the change is done.

    The attack starts at the image itself. examples: number of test examples, spread over the set.
    """

    eps: float
    norm: str = "linf"
    steps: int = 40
    at: Sequence[int] = (0, 1, 2, 5, 10, 20, 40)
    examples: int | None = None

    def __post_init__(self) -> None:
        check_between("eps", self.eps, 0, ends="(]")
        check_choice("norm", self.norm, NORMS)
        PGD(steps=self.steps)

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = subset(test_of(data), self.examples)
        curves = attacked_course(trained.network, pixels_of(test), test.labels, eps=self.eps, norm=self.norm, steps=self.steps)
        made = {f"attack_{name}_{n}": curve[n] for n in self.at if n <= self.steps for name, curve in curves.items()}
        changes = {name: curve[-1] / curve[0] - 1 if curve[0] else math.nan for name, curve in curves.items()}
        made |= {f"attack_change_{name}": change for name, change in changes.items()}
        return made | {f"attack_half_{name}": half_way(curves[name]) for name in ("avh", "norm")}


def attacked_course(
    model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, norm: str, steps: int, batch_size: int = 256
) -> dict[str, list[float]]:
    """Means of AVH, norm, confidence and accuracy before the attack and after each step: steps + 1 numbers each."""
    size, total = PGD(steps=steps).step_size(eps), torch.zeros(steps + 1, 4, dtype=torch.float64)
    with eval_mode(model, freeze=True) as device:
        for rows, x in input_batches(images, batch_size, device):
            checked_pixels(x)
            y, tried = labels[rows].to(x.device), x
            for step in range(steps + 1):
                total[step] += _sums(model, tried, y)
                gradient, _ = input_gradient(model, tried, y, "cross_entropy")
                tried = within(tried + size * direction(gradient, norm), x, eps, norm)
    means = total / len(labels)
    return dict(zip(("avh", "norm", "confidence", "accuracy"), means.T.tolist(), strict=True))


def half_way(curve: Sequence[float]) -> float:
    """The share of the steps after which the curve first covers half of its change, interpolated linearly."""
    way = curve[-1] - curve[0]
    if not way:
        return math.nan
    made = [(value - curve[0]) / way for value in curve]
    n = next(i for i, share in enumerate(made) if share >= HALF)
    return (n - (made[n] - HALF) / (made[n] - made[n - 1])) / (len(curve) - 1)


@torch.no_grad()
def _sums(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Sums over the batch of AVH, norm, confidence and accuracy (4,)."""
    logits, features = model.outputs(x)  # type: ignore[operator]
    weight = head_weight(model).detach()  # type: ignore[arg-type]
    columns = (avh(features, weight, y), norm(features), margin(logits, y).sigmoid(), logits.argmax(1) == y)
    return torch.stack([values.double().sum() for values in columns]).cpu()
