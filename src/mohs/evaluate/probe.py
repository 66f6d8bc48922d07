"""Linear probe: a new linear head trained on frozen features and evaluated on held-out examples.

    sampling "as_is"     every example once per epoch: a linear probe
    sampling "balanced"  a random class, then a random example of it: cRT, the second stage for long tails

Cross-entropy by SGD (momentum 0.9, cosine schedule to 0) on features standardized by the training set's mean and SD, which
are then folded into the head: weight and bias apply to raw features. The fit runs on the features' device without host
synchronization. A class without training examples is never sampled.
Kang et al., "Decoupling representation and classifier for long-tailed recognition" (ICLR 2020), section 4.1;
Encouraging Loss, section 5.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mohs._core.validation import check_between, check_choice
from mohs.angle import products
from mohs.evaluate.class_accuracy import balanced_accuracy
from mohs.evaluate.validate_inputs import class_labels, numbers

SAMPLINGS = ("as_is", "balanced")
MOMENTUM = 0.9


@dataclass(frozen=True, eq=False)
class Probe:
    """The head (for raw features) and its accuracies from 0 to 1 on training and held-out examples."""

    weight: Tensor
    bias: Tensor
    train_accuracy: float
    accuracy: float
    balanced_accuracy: float

    def logits(self, features: Tensor) -> Tensor:
        """features (N, D) -> logits (N, K)."""
        return products(features, self.weight) + self.bias


def probe(
    features: Any,
    labels: Any,
    held_out: Any,
    held_out_labels: Any,
    *,
    classes: int | None = None,
    sampling: str = "as_is",
    epochs: int = 30,
    lr: float = 0.1,
    weight_decay: float = 5e-4,
    batch_size: int = 256,
    seed: int = 0,
) -> Probe:
    """Train on features (N, D) and labels (N,), evaluate on held_out (M, D) and held_out_labels (M,)."""
    check_choice("sampling", sampling, SAMPLINGS)
    check_between("epochs", epochs, 1)
    check_between("lr", lr, 0, ends="(]")
    check_between("weight_decay", weight_decay, 0)
    check_between("batch_size", batch_size, 1)
    x, test = numbers("features", features, dims=(2,)), numbers("held_out", held_out, dims=(2,))
    if x.shape[1] != test.shape[1]:
        raise ValueError(f"features have {x.shape[1]} dimensions and held_out {test.shape[1]}: both must come from one model")
    number = _classes(labels, held_out_labels) if classes is None else classes
    y = class_labels(labels, count=len(x), classes=number, device=x.device)
    z = class_labels(held_out_labels, count=len(test), classes=number, name="held_out_labels", device=test.device)
    mean, sd = x.mean(0), x.std(0, correction=0)
    sd = sd.masked_fill(sd < 1e-6 * sd.max().clamp_min(1e-30), 1.0)  # constant features become 0
    order = _order(y, number, sampling, epochs, torch.Generator().manual_seed(seed))
    weight, bias = _fitted((x - mean) / sd, y, number, order, lr, weight_decay, batch_size)
    weight, bias = weight / sd, bias - weight @ (mean / sd)
    guess, seen = ((products(part, weight) + bias).argmax(1) for part in (test.to(x.device), x))
    right = (guess == z.to(guess.device)).double().mean()
    return Probe(weight, bias, float((seen == y).double().mean()), float(right), balanced_accuracy(guess, z, classes=number))


def _classes(*labels: Any) -> int:
    return max(2, 1 + max(int(torch.as_tensor(part).max()) for part in labels if len(part)))


def _order(y: Tensor, classes: int, sampling: str, epochs: int, generator: torch.Generator) -> Tensor:
    """The order of the examples (epochs, N)."""
    if sampling == "as_is":
        return torch.stack([torch.randperm(len(y), generator=generator) for _ in range(epochs)]).to(y.device)
    host = y.cpu()
    present = torch.bincount(host, minlength=classes)
    weights = (present > 0).double()[host] / present[host]
    return torch.multinomial(weights, epochs * len(y), replacement=True, generator=generator).view(epochs, -1).to(y.device)


def _fitted(
    x: Tensor, y: Tensor, classes: int, order: Tensor, lr: float, weight_decay: float, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Weight (K, D) and bias (K,) after SGD over the examples in this order, from zero."""
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, device=x.device, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, device=x.device, requires_grad=True)
    per_epoch = math.ceil(len(x) / batch_size)
    total = len(order) * per_epoch
    groups = [{"params": [weight], "weight_decay": weight_decay}, {"params": [bias], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=lr, momentum=MOMENTUM, nesterov=True)
    with torch.enable_grad():
        for number, rows in enumerate(part for epoch in order for part in epoch.split(batch_size)):
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 + math.cos(math.pi * number / total)) / 2
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(products(x[rows], weight) + bias, y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return weight.detach(), bias.detach()
