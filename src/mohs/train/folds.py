"""Logits for every example from a head that never saw its label, with the course of training on rows held out.

    rows are dealt into F folds, class by class; head f is trained on all rows but those of fold f, and speaks for fold f

All heads are trained at once: a batch of features is mapped and multiplied once for all of them, and each leaves its own
fold's rows out of its loss. Adam works entry by entry, so each head is what it would be if trained alone. At the end of each
epoch the held-out rows are recorded (`mohs.Recorder`), which gives AUM, mean confidence, variability and the rest for
examples that the head cannot have memorized. The map of the features (`feature_map`) is made of all rows; labels play no
part in it. Copies of an example that lie in another fold do leak their label. A class of one example is unknown to the head
that speaks for it: such classes are named in `lone`, and their examples get no `right`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.validation import check_between
from mohs.hardness.classes import encode
from mohs.hardness.measure import host, joined, measure, overall, table_of
from mohs.hardness.noise_model import NoiseFit, fit_noise
from mohs.hardness.recorder import Recorder
from mohs.margin import NO_LABEL
from mohs.train.feature_map import FeatureMap, feature_map, pieces
from mohs.train.linear_head import Loss, as_loss, check_rows
from mohs.train.mapped_features import Mapped

RATE, DECAY, WARM_UP = 0.01, 0.01, 0.1  # Adam's peak rate, its weight decay, the share of steps before the peak
DYNAMICS = ("aum", "mean_margin", "mean_confidence", "variability", "forgetting", "first_learned", "epochs")
START = 1e-3  # the weights' size at the beginning
State = dict[str, Any]


@dataclass(frozen=True, eq=False)
class FoldOutputs:
    """logits (N, K) out of fold, which fold (N,), the heads, the table, and how likely each label is right.

    weight (F, K, W), bias (F, K) on `map`; noise: temperature and rate fitted to the logits; right (N,): NaN where unknown.
    """

    logits: Tensor = field(repr=False)
    fold: Tensor = field(repr=False)
    weight: Tensor = field(repr=False)
    bias: Tensor = field(repr=False)
    map: FeatureMap = field(repr=False)
    table: pa.Table = field(repr=False)
    noise: NoiseFit
    right: Tensor = field(repr=False)
    classes: list[Any]
    lone: list[Any]


def assign_folds(labels: Tensor, *, folds: int = 5, seed: int = 0) -> Tensor:
    """labels (N,) -> a fold for each (N,): folds differ by one row at the most, and so do the parts of each class in them."""
    if not 2 <= folds <= len(labels):
        raise ValueError(f"folds must be at least 2 and at most {len(labels)}, the number of rows, got {folds}")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[torch.argsort(labels[order], stable=True)]  # class by class, shuffled within
    dealt = torch.empty(len(labels), dtype=torch.int64)
    dealt[order] = torch.arange(len(labels)) % folds
    return dealt


def out_of_fold(
    features: Any,
    labels: Any,
    *,
    loss: str | Mapping[str, Any] | Loss = "gce",
    folds: int = 5,
    seed: int = 0,
    epochs: int = 20,
    landmarks: int = 512,
    batch_size: int | None = None,
    classes: Sequence[Any] | None = None,
    sample_weight: Tensor | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_epoch: Callable[[State], None] | None = None,
    state: State | None = None,
) -> FoldOutputs:
    """features (N, D), labels (N,) of any kind -> what heads say of rows they were not trained on.

    loss: a name, a mapping with a name, or a loss. landmarks: kernel units between features and heads, 0 for none. classes:
    the class names, where labels are their places. progress(done, epochs) and on_epoch(state) are called after each epoch;
    with a `state` that on_epoch was given, the same call goes on from there to the same result.
    """
    given, names = _encoded(features, labels, classes)
    check_rows(features, given, sample_weight)
    check_between("epochs", epochs, 1)
    mapped = Mapped(features, feature_map(features, landmarks=landmarks, seed=seed, dtype=torch.float32))
    fold = assign_folds(given, folds=folds, seed=seed)
    size = batch_size or default_batch(len(given))
    check_between("batch_size", size, 1)
    heads = _Heads(mapped, given, fold, as_loss(loss), len(names), seed, epochs, size, sample_weight)
    if state is not None:
        heads.load(state)
    while heads.epoch < epochs:
        heads.train_epoch()
        if progress is not None:
            progress(heads.epoch, epochs)
        if on_epoch is not None:
            on_epoch(heads.state())
    return _outputs(heads, names)


def default_batch(examples: int) -> int:
    """Rows a step: a sixteenth of the rows but 256 at the most, or a hundredth where that is more."""
    return max(16, min(256, examples // 16), examples // 100)


class _Heads:
    """F heads in training: weights, optimizer, record."""

    def __init__(
        self, mapped: Mapped, labels: Tensor, fold: Tensor, loss: Loss, classes: int, seed: int, epochs: int, batch: int,
        sample_weight: Tensor | None,
    ) -> None:  # fmt: skip
        self.mapped, self.labels, self.fold, self.epochs, self.batch = mapped, labels, fold, epochs, batch
        self.folds, self.epoch, self.sample_weight = int(fold.max()) + 1, 0, sample_weight
        self.losses = [copy.deepcopy(loss) for _ in range(self.folds)]  # each its own: some keep a state
        self.order = torch.Generator().manual_seed(seed)
        start = START * torch.randn(classes, mapped.map.width, generator=self.order)  # from 0 some losses do not move
        self.weight = start.repeat(self.folds, 1, 1).requires_grad_()
        self.bias = torch.zeros(self.folds, classes, requires_grad=True)
        groups = [{"params": [self.weight], "weight_decay": DECAY}, {"params": [self.bias], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE)
        self.recorder = Recorder(len(labels))
        self.logits = torch.empty(len(labels), classes)
        self.plan = [len(labels), classes, self.folds, mapped.map.width, seed, epochs, batch, repr(loss)]

    def train_epoch(self) -> None:
        batches = list(pieces(torch.randperm(len(self.labels), generator=self.order), self.batch))
        for i, places in enumerate(batches):
            for group in self.optimizer.param_groups:
                group["lr"] = RATE * one_cycle((self.epoch + (i + 0.5) / len(batches)) / self.epochs)
            self.weight.grad, self.bias.grad = torch.autograd.grad(self.objective(places), (self.weight, self.bias))
            self.optimizer.step()
        self.look()
        self.epoch += 1

    def objective(self, places: Tensor) -> Tensor:
        """The sum over the heads of their mean loss on the rows of the batch that are theirs."""
        flat = self.mapped[places] @ self.weight.flatten(0, 1).T  # (n, F·K)
        logits = flat.view(len(places), self.folds, -1) + self.bias
        extra = {} if self.sample_weight is None else {"sample_weight": self.sample_weight[places]}
        total = logits.new_zeros(())
        for f, loss in enumerate(self.losses):
            mine = self.fold[places] != f
            if mine.any() and (self.sample_weight is None or extra["sample_weight"][mine].any()):
                ignored = getattr(loss, "ignore_index", NO_LABEL)
                total = total + loss(logits[:, f], self.labels[places].masked_fill(~mine, ignored), **extra)
        return total

    @torch.no_grad()
    def look(self) -> None:
        """Record what each head says of the rows it does not train on."""
        for f in range(self.folds):
            for places in pieces((self.fold == f).nonzero().squeeze(1), Mapped.BLOCK):
                self.logits[places] = self.mapped[places] @ self.weight[f].T + self.bias[f]
        if not self.logits.isfinite().all():
            raise DataError("the heads' logits overflowed in training: scale the features, or take another loss")
        self.recorder.update(torch.arange(len(self.labels)), self.logits, self.labels, epoch=self.epoch)

    def state(self) -> State:
        """Everything needed to go on from here, as copies."""
        tensors = {name: getattr(self, name).detach().clone() for name in ("weight", "bias", "logits")}
        losses = [copy.deepcopy(loss.state_dict()) if isinstance(loss, torch.nn.Module) else {} for loss in self.losses]
        kept = {"plan": self.plan, "epoch": self.epoch, "order": self.order.get_state(), "losses": losses}
        return kept | tensors | {"optimizer": copy.deepcopy(self.optimizer.state_dict()), "recorder": self.recorder.state_dict()}

    def load(self, state: State) -> None:
        if state.get("plan") != self.plan:
            raise ValueError(
                f"state is of another fit ({state.get('plan')}) than this one ({self.plan}): call it as it was called"
            )
        for name in ("weight", "bias", "logits"):
            getattr(self, name).data.copy_(state[name])
        for loss, kept in zip(self.losses, state["losses"], strict=True):
            if isinstance(loss, torch.nn.Module):
                loss.load_state_dict(kept)
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.recorder.load_state_dict(state["recorder"])
        self.order.set_state(state["order"])
        self.epoch = state["epoch"]


def one_cycle(done: float) -> float:
    """The learning rate over its peak when this share of training is done: up in a line, down to 0 by a cosine."""
    if done < WARM_UP:
        return max(done / WARM_UP, 0.04)
    return (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2


def _outputs(heads: _Heads, names: list[Any]) -> FoldOutputs:
    weight, bias = heads.weight.detach(), heads.bias.detach()
    counts = torch.bincount(heads.labels, minlength=len(names))
    known = counts[heads.labels] > 1
    noise = fit_noise(heads.logits[known], heads.labels[known])
    right = noise.right(heads.logits, heads.labels).masked_fill(~known, torch.nan)
    lone = [names[k] for k in (counts == 1).nonzero().squeeze(1).tolist()]
    return FoldOutputs(
        logits=heads.logits, fold=heads.fold, weight=weight, bias=bias, map=heads.mapped.map, table=_table(heads, names),
        noise=noise, right=right, classes=names, lone=lone,
    )  # fmt: skip


def _table(heads: _Heads, names: list[Any]) -> pa.Table:
    """What the last look and the whole course tell of each example; angles are those of the mapped features."""
    parts = []
    for f in range(heads.folds):
        for places in pieces((heads.fold == f).nonzero().squeeze(1), Mapped.BLOCK):
            made = measure(heads.logits[places], heads.labels[places], heads.mapped[places], heads.weight[f].detach())
            parts.append(host({"row": places, **made}))
    columns = joined(parts)
    order = np.argsort(columns.pop("row"))
    columns = {name: values[order] for name, values in columns.items()}
    course = heads.recorder.table()
    dynamics = {name: course.column(name) for name in DYNAMICS}
    return table_of({"id": np.arange(len(order)), **columns, **overall(columns), **dynamics}, names)


def _encoded(features: Any, labels: Any, classes: Sequence[Any] | None) -> tuple[Tensor, list[Any]]:
    """labels as places among the classes (N,), and the classes' names; raise where there is nothing to tell apart."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    named = list(classes) if classes is not None and values.dtype.kind in "iu" else None  # labels are their places
    if named is not None:
        classes = list(range(len(named)))
    elif classes is None and values.dtype.kind in "iuUSb" and values.ndim == 1:
        classes = np.unique(values).tolist()
    count = len(classes) if classes is not None else len(set(values.tolist()))
    try:
        index, names = encode(values, num_classes=count, classes=classes)
    except ValueError as error:
        raise DataError(str(error)) from error
    if values.shape != (len(features),):
        raise ValueError(f"labels must have shape ({len(features)},), one a row of features, got {values.shape}")
    if len(np.unique(index)) < 2:
        raise DataError("labels name fewer than 2 classes: there is nothing to tell apart")
    return torch.from_numpy(index), names if named is None else named
