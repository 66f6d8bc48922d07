"""Domain generalization: training on several domains for an unseen one, plainly or by meta-learning (MLDG).

    plain    F(θ): mean cross-entropy over the domains, a batch of each in every step
    mldg     F(θ) + β G(θ − α ∇F(θ)):  at each step one domain, drawn at random, is held out for G, and the others form F

G asks that a step on some domains also lowers the loss on another; its gradient goes through ∇F (second derivatives).
Li et al., "Learning to generalize: meta-learning for domain generalization" (AAAI 2018), algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from mohs._core.device import choose_device
from mohs._core.validation import check_between, check_choice
from mohs.data.domains import leave_one_out, open_domains
from mohs.data.examples import Examples
from mohs.evaluate.outputs import predict
from mohs.models import create_model, scale_of
from mohs.models.network import Network
from mohs.studies.systems.system import Numbers, System
from mohs.train.augment import create_augment
from mohs.train.feed import Feed
from mohs.train.run_data import limited

METHODS = ("plain", "mldg")
WARMUP = 0.05  # warm-up, as a share of the training


@dataclass(frozen=True, kw_only=True)
class DomainGeneralization(System):
    """Settings of one run.

    Attributes:
        data: Domains, as for `open_data`: "pacs", or names joined by "+".
        without: The domain that is tested on.
        method: "plain" or "mldg".
        model: Network.
        head: Classification head; None: a linear layer.
        inner: α, the learning rate of the step inside MLDG.
        beta: β, the weight of the held-out domain.
        lr: Highest learning rate of SGD; it falls to 0 with the cosine.
        weight_decay: Weight decay.
        batch: Examples per step, over all domains.
        epochs: Number of epochs over the domains together.
        augment: Augmentations in order.
        limit: Number of examples of each class of each domain; None: all.
    """

    data: str = "pacs"
    without: str = "photo"
    method: str = "plain"
    model: Mapping[str, Any] = field(default_factory=lambda: {"name": "cnn10"})
    head: Mapping[str, Any] | None = None
    inner: float = 0.03
    beta: float = 1.0
    lr: float = 0.03
    weight_decay: float = 5e-4
    batch: int = 64
    epochs: int = 25
    augment: Sequence[Mapping[str, Any]] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("method", self.method, METHODS)
        for name in ("batch", "epochs"):
            check_between(name, getattr(self, name), 1)
        for name in ("inner", "lr"):
            check_between(name, getattr(self, name), 0, ends="(]")
        for name in ("beta", "weight_decay"):
            check_between(name, getattr(self, name), 0)

    @classmethod
    def train(cls, runs: Sequence[Self], *, device: str) -> list[Numbers]:
        domains = open_domains(runs[0].data)
        if runs[0].limit is not None:
            domains = {name: limited(part, runs[0].limit, name="limit") for name, part in domains.items()}
        return [train_network(run, domains, choose_device(device)) for run in runs]


def train_network(run: DomainGeneralization, domains: Mapping[str, Examples], device: torch.device) -> Numbers:
    """Train on all domains but one, and test on that."""
    together, held = leave_one_out(domains, run.without)
    sources = [part for name, part in domains.items() if name != run.without]
    if run.method == "mldg" and len(sources) < 2:
        raise ValueError(f"mldg keeps one of the training domains, of which {run.data} without {run.without} has only one")
    scale, classes = scale_of(together), len(held.classes)
    network = create_model(run.model, shape=held.shape, num_classes=classes, head=run.head, scale=scale, seed=run.seed).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=run.lr, momentum=0.9, weight_decay=run.weight_decay)
    loss, draw = run.create_loss(), torch.Generator().manual_seed(run.seed)
    steps = run.epochs * math.ceil(len(together) / run.batch)
    network.train()
    for at, parts in zip(range(steps), batches(sources, run, device), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = run.lr * rate(at / steps)
        optimizer.zero_grad()
        if run.method == "plain":
            torch.autograd.backward(mean_loss(network, loss, parts))
        else:
            kept = int(torch.randint(len(parts), (1,), generator=draw))
            torch.autograd.backward(mldg(network, loss, parts, kept, inner=run.inner, beta=run.beta))
        optimizer.step()
    network.eval()
    right = [(predict(network, part).logits.argmax(1).cpu() == part.labels).double().mean().item() for part in (held, together)]
    return {"epochs": run.epochs, "classes": classes, "test_accuracy": right[0], "accuracy": right[1]}


Labeled = tuple[Tensor, Tensor]


def mldg(network: Network, loss: Any, parts: Sequence[Labeled], kept: int, *, inner: float, beta: float) -> Tensor:
    """F(θ) + β G(θ − α ∇F(θ)) for batches of the domains, of which the one at `kept` is G."""
    others = [part for i, part in enumerate(parts) if i != kept]
    first = mean_loss(network, loss, others)
    names, weights = zip(*network.named_parameters(), strict=True)
    slopes = torch.autograd.grad(first, weights, create_graph=True)
    moved = {name: weight - inner * slope for name, weight, slope in zip(names, weights, slopes, strict=True)}
    inputs, labels = parts[kept]
    second: Tensor = loss(torch.func.functional_call(network, moved, (inputs,)), labels)
    return first + beta * second


def mean_loss(network: Network, loss: Any, parts: Sequence[Labeled]) -> Tensor:
    """The loss over the batches of these domains, which are about equally large."""
    total: Tensor = loss(network(torch.cat([x for x, _ in parts])), torch.cat([y for _, y in parts]))
    return total


def batches(sources: Sequence[Examples], run: DomainGeneralization, device: torch.device) -> Iterator[list[Labeled]]:
    """Yields a batch of each domain, indefinitely."""
    augment, size = create_augment(list(run.augment)) if run.augment else None, max(2, run.batch // len(sources))
    how: dict[str, Any] = {"device": device, "augment": augment}
    feeds = [Feed(part, batch=min(size, len(part)), seed=run.seed + i, **how) for i, part in enumerate(sources)]
    for draws in zip(*(feed.endless() for feed in feeds), strict=True):
        yield [(feed.load(draw), feed.labels[draw.ids]) for feed, draw in zip(feeds, draws, strict=True)]


def rate(done: float) -> float:
    """The learning rate as a share of the highest: linear warmup, then the cosine."""
    return done / WARMUP if done < WARMUP else (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP))) / 2
