"""Classification of small graphs: GCN with SAGPool, on many random splits at once, with early stopping on validation graphs.

A run is the mean over `splits` random splits into training, validation and test graphs (0.8, 0.1, 0.1), one network each, since
the split moves the accuracy more than the loss does. A network counts at the first epoch with its best validation accuracy; it
stops after `patience` epochs without a better one. `start` epochs of cross-entropy come before the loss of the run.
Zhao et al., "Well-classified examples are underestimated" (AAAI 2022), Table 1; settings as in the authors' script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from mohs._core.device import choose_device
from mohs._core.validation import check_between
from mohs.losses import create_loss
from mohs.studies.systems.graph_data import Graphs, read_graphs
from mohs.studies.systems.graph_net import GraphNetworks
from mohs.studies.systems.system import Numbers, System

TRAIN, VALIDATION = 0.8, 0.1  # shares of the graphs; the rest is the test set
COLUMNS = ("accuracy", "val_accuracy", "test_accuracy", "best_epoch")
TOGETHER = {"cpu": 1, "cuda": 100}  # networks side by side


@dataclass(frozen=True, kw_only=True)
class GraphClassification(System):
    """Settings of one run: `splits` networks.

    Attributes:
        data: NAME of `graph-NAME.npz`, or "synthetic".
        splits: Number of random splits.
        start: Number of epochs of cross-entropy before `loss` takes over.
        width: Channels of the graph convolutions.
        ratio: Share of the nodes that pooling keeps.
        lr: Learning rate of Adam.
        weight_decay: L2 penalty in Adam.
        batch: Graphs per step.
        patience: Number of epochs without a better validation accuracy after which a network stops.
        epochs: Maximum number of epochs.
    """

    data: str = "PROTEINS"
    splits: int = 10
    start: int = 0
    width: int = 128
    ratio: float = 0.5
    lr: float = 5e-4
    weight_decay: float = 1e-4
    batch: int = 128
    patience: int = 50
    epochs: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("splits", "width", "batch", "patience", "epochs"):
            check_between(name, getattr(self, name), 1)
        check_between("start", self.start, 0)
        check_between("ratio", self.ratio, 0, 1, ends="(]")
        check_between("lr", self.lr, 0, ends="(]")
        if self.create_loss().over_batch:
            raise ValueError(f"loss {self.loss!r} depends on the whole batch: networks side by side would share it")

    @classmethod
    def train(cls, runs: Sequence[Self], *, device: str) -> list[Numbers]:
        run, place = runs[0], choose_device(device)
        graphs, size = read_graphs(run.data).to(place), TOGETHER[place.type]
        seeds = [one.seed * run.splits + split for one in runs for split in range(run.splits)]
        found = [train_networks(run, graphs, seeds[at : at + size]) for at in range(0, len(seeds), size)]
        means = torch.cat([one.best for one in found]).double().view(len(runs), run.splits, -1).mean(1)
        common = {"epochs": max(one.epochs for one in found), "classes": graphs.classes}
        return [common | dict(zip(COLUMNS, line, strict=True)) for line in means.tolist()]


@dataclass(frozen=True)
class Stopped:
    """COLUMNS of each network at its best epoch (N, 4), and the number of epochs run."""

    best: Tensor
    epochs: int


def train_networks(run: GraphClassification, graphs: Graphs, seeds: Sequence[int]) -> Stopped:
    """Train one network per seed, which sets its split, its initial weights and the order of its batches."""
    device = graphs.labels.device
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    parts = torch.stack([torch.randperm(len(graphs), generator=draw) for draw in draws]).to(device)
    count, held = int(TRAIN * len(graphs)), int(VALIDATION * len(graphs))
    net = GraphNetworks(graphs.features.shape[1], graphs.classes, seeds, width=run.width, ratio=run.ratio).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=run.lr, weight_decay=run.weight_decay)
    losses = {False: create_loss("cross_entropy"), True: run.create_loss()}
    best = torch.full((len(seeds), 4), -1.0, device=device)
    waited, active = torch.zeros(len(seeds), device=device), torch.arange(len(seeds), device=device)
    torch.manual_seed(seeds[0])  # of dropout
    epoch = 0
    for epoch in range(1, run.epochs + 1):
        order = torch.stack([torch.randperm(count, generator=draws[i]) for i in active.tolist()]).to(device)
        right = train_epoch(net, optimizer, losses[epoch > run.start], graphs, parts[active].gather(1, order), run.batch)
        now = correct(net, graphs, parts[active, count:])
        val, test = now[:, :held].mean(1), now[:, held:].mean(1)
        better = val > best[active, 1]
        line = torch.stack([right / count, val, test, torch.full_like(val, epoch)], 1)
        best[active] = torch.where(better[:, None], line, best[active])
        waited[active] = torch.where(better, 0.0, waited[active] + 1)
        going = waited[active] <= run.patience
        if not going.all():
            keep_networks(net, optimizer, going)
            active = active[going]
            if not len(active):
                break
    return Stopped(best.cpu(), epoch)


def train_epoch(
    net: GraphNetworks, optimizer: torch.optim.Optimizer, loss: nn.Module, graphs: Graphs, order: Tensor, size: int
) -> Tensor:
    """One epoch over graphs (networks, n) in this order; returns how many of them each network classified correctly."""
    net.train()
    right = torch.zeros(len(order), device=order.device)
    for chosen in torch.split(order, size, dim=1):
        batch = graphs.batch(chosen.flatten())
        logits = net(batch)
        optimizer.zero_grad()
        (loss(logits, batch.labels) * len(order)).backward()  # the mean over each network's own batch
        optimizer.step()
        right += (logits.argmax(1) == batch.labels).view(len(order), -1).sum(1)
    return right


@torch.no_grad()
def correct(net: GraphNetworks, graphs: Graphs, chosen: Tensor) -> Tensor:
    """Whether each network classifies its graphs (networks, n) correctly, as 0 and 1."""
    net.eval()
    batch = graphs.batch(chosen.flatten())
    right: Tensor = net(batch).argmax(1) == batch.labels
    return right.view_as(chosen).float()


def keep_networks(net: GraphNetworks, optimizer: torch.optim.Optimizer, going: Tensor) -> None:
    """Drop the networks that have stopped, with their moments in the optimizer."""
    net.networks = int(going.sum())
    for weight in net.parameters():
        state = optimizer.state[weight]
        weight.data, weight.grad = weight.data[going], None
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = state[name][going]
