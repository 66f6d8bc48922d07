"""Adaptation without pseudo-labels: train on the source while the target's features or predictions are aligned with it.

    L = cross-entropy(source) + w λ(t) A                      λ(t) = 2/(1 + e^(−10 t)) − 1, t: share of the training done
    mmd       A = squared maximum mean discrepancy of the features of source and target, mean of five Gaussian kernels
    dann      A = cross-entropy of a classifier of the domains, whose gradient is reversed for the features
    entropy   A = mean entropy of the predictions of the target

Each step takes a batch of the source and one of the target, through the network together, so that batch normalization sees both,
which by itself adapts its statistics to the target.
The target's labels are not used. Baselines for self-training (`self_training.py`), with the same network, data, number of epochs
and augmentation.
Long et al. (ICML 2015), the kernels here on the last features alone; Ganin et al. (JMLR 2016), eqs. 9 and 14; Grandvalet & Bengio
(NIPS 2004).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mohs._core.device import device_of
from mohs._core.specs import as_spec
from mohs._core.validation import check_between, check_choice
from mohs.data.examples import Examples
from mohs.models.network import Network
from mohs.train.augment import create_augment
from mohs.train.feed import Feed
from mohs.train.run import Run

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the mean squared distance
HIDDEN = 100  # of the domain classifier
SECOND = 7919  # added to the seed of the target's batches


def mmd(source: Tensor, target: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of two samples (n, D) and (m, D); 0 if they are equal."""
    both = torch.cat([source, target])
    distance = (both[:, None] - both).square().sum(2)
    scale = distance.detach().mean().clamp(min=torch.finfo(distance.dtype).tiny)
    kernel = torch.stack([torch.exp(-distance / (width * scale)) for width in BANDWIDTHS]).mean(0)
    n = len(source)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the predictions (n, K)."""
    log_p = F.log_softmax(logits, 1)
    return -(log_p.exp() * log_p).sum(1).mean()


class Reversed(torch.autograd.Function):
    """The identity with a reversed gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return -grads[0]


class DomainLoss(nn.Module):
    """Cross-entropy of a classifier of two domains on features (n, D), which receive the reversed gradient."""

    def __init__(self, features: int, *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        told = self.net(Reversed.apply(torch.cat([source, target]))).flatten()
        truth = torch.cat([source.new_zeros(len(source)), target.new_ones(len(target))])
        return F.binary_cross_entropy_with_logits(told, truth)


Term = Callable[[Tensor, Tensor, Tensor], Tensor]  # features of source and target, logits of the target
WEIGHTS = {"mmd": 1.0, "dann": 1.0, "entropy": 0.1}  # w of each method


def align(
    network: Network,
    source: Examples,
    target: Examples,
    run: Run,
    *,
    method: str,
    epochs: int,
    lr: float,
    weight: float | None = None,
) -> Network:
    """A copy of a network, trained further with the source's labels and the target's inputs.

    Args:
        network: The network to start from, on its device.
        source: Labeled examples.
        target: Examples whose labels are not used.
        run: Settings of the training so far: batch size, momentum, weight decay, augmentation and seed are used.
        method: "mmd", "dann" or "entropy".
        epochs: Number of epochs over the source.
        lr: Highest learning rate; it falls to 0 with the cosine.
        weight: w; default: that of `WEIGHTS`.
    """
    check_choice("method", method, tuple(WEIGHTS))
    check_between("epochs", epochs, 1)
    weight = WEIGHTS[method] if weight is None else weight
    network, device = copy.deepcopy(network), device_of(network) or torch.device("cpu")
    augment = create_augment(run.augment) if run.augment else None
    feeds = [
        Feed(part, batch=min(run.batch, len(part)), seed=run.seed + shift, device=device, augment=augment)
        for part, shift in ((source, 0), (target, SECOND))
    ]
    term, trained = term_of(method, network, feeds, seed=run.seed)
    settings = as_spec(run.optimizer)
    decay = {name: settings[name] for name in ("weight_decay",) if name in settings}
    optimizer = torch.optim.SGD([*network.parameters(), *trained], lr=lr, momentum=settings.get("momentum", 0.9), **decay)
    steps = epochs * len(feeds[0])
    network.train()
    for at, draw, beside in zip(range(steps), feeds[0].endless(), feeds[1].endless(), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 + math.cos(math.pi * at / steps)) / 2
        own, other = feeds[0].load(draw), feeds[1].load(beside)
        logits, features = network.outputs(torch.cat([own, other]))
        n = len(own)
        loss = F.cross_entropy(logits[:n], feeds[0].labels[draw.ids])
        loss = loss + weight * ramp(at / steps) * term(features[:n], features[n:], logits[n:])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return network.eval()


def term_of(method: str, network: Network, feeds: list[Feed], *, seed: int) -> tuple[Term, list[nn.Parameter]]:
    """A of the method, and its own parameters."""
    if method == "mmd":
        return lambda source, target, logits: mmd(source, target), []
    if method == "entropy":
        return lambda source, target, logits: entropy(logits), []
    weight: Any = network.head.weight
    domains = DomainLoss(weight.shape[1], seed=seed).to(feeds[0].device)
    return lambda source, target, logits: domains(source, target), list(domains.parameters())


def ramp(done: float) -> float:
    """λ(t): 0 at the start, near 1 from half of the training on."""
    return 2 / (1 + math.exp(-10 * done)) - 1
