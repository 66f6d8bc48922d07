"""Out-of-fold logits: every example is predicted by a head that was not trained on it, with its held-out training dynamics.

    rows are split into F stratified folds; head f is trained on all rows except fold f, and predicts fold f

All heads are trained at once: a batch of features is mapped and multiplied once for all of them, and each head's loss leaves
out the rows of its own fold. Adam works entry by entry, so each head is the same as if trained alone. At the end of each
epoch the held-out rows are recorded (`mohs.Recorder`), which gives AUM, mean confidence, variability and the rest for
examples that the head cannot have memorized. The feature map (`feature_map`) is fitted on all rows, without labels.
Duplicates of an example in another fold leak its label. A class with one example is unknown to the head that predicts it:
such classes are listed in `lone`, and their examples are not judged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.group_numbers import group_numbers
from mohs._core.validation import check_between
from mohs.data.examples import groups_hash
from mohs.data.groups import alone
from mohs.hardness.classes import encode
from mohs.hardness.judgment import LabelJudgment, judge_labels
from mohs.hardness.measure import host, joined, measure, overall, table_of
from mohs.hardness.recorder import Recorder
from mohs.margin import NO_LABEL
from mohs.train.feature_map import FeatureMap, MappedFeatures, feature_map
from mohs.train.fold_heads import assign_folds
from mohs.train.learning_rate import cosine
from mohs.train.linear_head import Loss, as_loss, check_rows

RATE, DECAY = 0.01, 0.01  # AdamW: peak learning rate, weight decay
SCHEDULE, LEAST = cosine(warmup=0.1), 0.04  # LEAST: share of the peak, during the warm-up
DYNAMICS = ("aum", "mean_margin", "mean_confidence", "variability", "forgetting", "first_learned", "epochs")
START = 1e-3  # standard deviation of the initial weights
State = dict[str, Any]


@dataclass(frozen=True, eq=False)
class FoldOutputs:
    """Out-of-fold predictions of all examples.

    Attributes:
        logits: (N, K), each row from the head that was not trained on it.
        fold: The fold (N,) of each row.
        weight: Heads' weights (F, K, W) on the mapped features.
        bias: Heads' biases (F, K).
        map: The feature map.
        table: Hardness table, one row per example.
        judgment: Noise model fitted to the logits, and its judgment of each label; NaN for the classes `lone`.
        classes: Class names.
        lone: Classes whose examples are all in one fold, such as those with a single example or group.
    """

    logits: Tensor = field(repr=False)
    fold: Tensor = field(repr=False)
    weight: Tensor = field(repr=False)
    bias: Tensor = field(repr=False)
    map: FeatureMap = field(repr=False)
    table: pa.Table = field(repr=False)
    judgment: LabelJudgment = field(repr=False)
    classes: list[Any]
    lone: list[Any]


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
    groups: Any = None,
    progress: Callable[[int, int], None] | None = None,
    on_epoch: Callable[[State], None] | None = None,
    state: State | None = None,
) -> FoldOutputs:
    """Train one head per fold and predict every example with the head that was not trained on it.

    Args:
        features: (N, D), an array or tensor.
        labels: (N,), class names or indices.
        loss: A name ("gce:q=0.5"), a mapping with a name, or a loss function.
        folds: Number of cross-validation folds.
        seed: Random seed of the folds, the weights and the order of the examples.
        epochs: Number of training epochs.
        landmarks: Number of kernel units between features and heads; 0 for linear heads.
        batch_size: Rows per step; chosen by the number of rows if None.
        classes: Class names, if labels are indices.
        sample_weight: Weights (N,) of the examples in the loss.
        groups: Names (N,) of groups that stay whole in the folds, such as patients.
        progress: Called as progress(epochs done, epochs) after each epoch.
        on_epoch: Called with the state after each epoch.
        state: A state that `on_epoch` received: training resumes from it and ends with the same result.

    Returns:
        Logits, folds, heads and the hardness table.
    """
    given, names = _encoded(features, labels, classes)
    check_rows(features, given, sample_weight)
    check_between("epochs", epochs, 1)
    mapped = MappedFeatures(features, feature_map(features, landmarks=landmarks, seed=seed, dtype=torch.float32))
    together = None if groups is None else group_numbers(groups)
    if together is not None and len(together) != len(given):
        raise ValueError(f"groups must have shape ({len(given)},), one per row of features, got {len(together)}")
    fold = assign_folds(given, folds=folds, seed=seed, groups=together)
    if len(torch.unique(given)) == len(given):
        raise DataError("labels hold no class twice: a model that is trained without an example would not know its class")
    size = batch_size or default_batch(len(given))
    check_between("batch_size", size, 1)
    heads = _Heads(mapped, given, fold, as_loss(loss), len(names), seed, epochs, size, sample_weight)
    heads.plan += [] if together is None else [groups_hash(together)]
    if state is not None:
        heads.load(state)
    while heads.epoch < epochs:
        heads.train_epoch()
        if progress is not None:
            progress(heads.epoch, epochs)
        if on_epoch is not None:
            on_epoch(heads.state())
    return _outputs(heads, names, None if together is None else together.numpy())


def default_batch(examples: int) -> int:
    """Rows per step: a sixteenth of the rows, at most 256, or a hundredth if that is more."""
    return max(16, min(256, examples // 16), examples // 100)


class _Heads:
    """F heads in training: weights, optimizer, recorder."""

    def __init__(
        self, mapped: MappedFeatures, labels: Tensor, fold: Tensor, loss: Loss, classes: int, seed: int, epochs: int, batch: int,
        sample_weight: Tensor | None,
    ) -> None:  # fmt: skip
        self.mapped, self.labels, self.fold, self.epochs, self.batch = mapped, labels, fold, epochs, batch
        self.folds, self.epoch, self.sample_weight = int(fold.max()) + 1, 0, sample_weight
        self.losses = [copy.deepcopy(loss) for _ in range(self.folds)]  # one copy per head, since some losses keep a state
        self.order = torch.Generator().manual_seed(seed)
        start = START * torch.randn(classes, mapped.map.width, generator=self.order)  # some losses have no gradient at 0
        self.weight = start.repeat(self.folds, 1, 1).requires_grad_()
        self.bias = torch.zeros(self.folds, classes, requires_grad=True)
        groups = [{"params": [self.weight], "weight_decay": DECAY}, {"params": [self.bias], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE)
        self.recorder = Recorder(len(labels))
        self.logits = torch.empty(len(labels), classes)
        self.plan = [len(labels), classes, self.folds, mapped.map.width, seed, epochs, batch, repr(loss)]

    def train_epoch(self) -> None:
        batches = torch.split(torch.randperm(len(self.labels), generator=self.order), self.batch)
        for i, places in enumerate(batches):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.epoch + (i + 0.5) / len(batches), self.epochs)
            self.weight.grad, self.bias.grad = torch.autograd.grad(self.objective(places), (self.weight, self.bias))
            self.optimizer.step()
        self.record()
        self.epoch += 1

    def objective(self, places: Tensor) -> Tensor:
        """The sum over heads of the mean loss on the rows outside their fold."""
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
    def record(self) -> None:
        """Record each head's logits on its held-out rows."""
        for f in range(self.folds):
            for places in torch.split((self.fold == f).nonzero().squeeze(1), MappedFeatures.BLOCK):
                self.logits[places] = self.mapped[places] @ self.weight[f].T + self.bias[f]
        if not self.logits.isfinite().all():
            raise DataError("the heads' logits overflowed in training: scale the features, or use another loss")
        self.recorder.update(torch.arange(len(self.labels)), self.logits, self.labels, epoch=self.epoch)

    def state(self) -> State:
        """Everything needed to resume, as copies."""
        tensors = {name: getattr(self, name).detach().clone() for name in ("weight", "bias", "logits")}
        losses = [copy.deepcopy(loss.state_dict()) if isinstance(loss, torch.nn.Module) else {} for loss in self.losses]
        kept = {"plan": self.plan, "epoch": self.epoch, "order": self.order.get_state(), "losses": losses}
        return kept | tensors | {"optimizer": copy.deepcopy(self.optimizer.state_dict()), "recorder": self.recorder.state_dict()}

    def load(self, state: State) -> None:
        if state.get("plan") != self.plan:
            raise ValueError(
                f"state is from another call ({state.get('plan')}) than this one ({self.plan}): repeat the call unchanged"
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


def learning_rate(epoch: float, epochs: int) -> float:
    """The learning rate at a time in epochs."""
    factor = SCHEDULE(epoch, epochs)
    return RATE * (max(factor, LEAST) if epoch < SCHEDULE.warmup * epochs else factor)


def _outputs(heads: _Heads, names: list[Any], groups: Any) -> FoldOutputs:
    weight, bias = heads.weight.detach(), heads.bias.detach()
    unknown = alone(heads.labels, heads.fold)
    scores = heads.logits.masked_fill(unknown.unsqueeze(1), torch.nan)
    lone = [names[k] for k in sorted(set(heads.labels[unknown].tolist()))]
    return FoldOutputs(
        logits=heads.logits, fold=heads.fold, weight=weight, bias=bias, map=heads.mapped.map, table=_table(heads, names),
        judgment=judge_labels(scores.numpy(), heads.labels.numpy(), groups=groups), classes=names, lone=lone,
    )  # fmt: skip


def _table(heads: _Heads, names: list[Any]) -> pa.Table:
    """Final scores and training dynamics of each example; angles are those of the mapped features."""
    parts = []
    for f in range(heads.folds):
        for places in torch.split((heads.fold == f).nonzero().squeeze(1), MappedFeatures.BLOCK):
            made = measure(heads.logits[places], heads.labels[places], heads.mapped[places], heads.weight[f].detach())
            parts.append(host({"row": places, **made}))
    columns = joined(parts)
    order = np.argsort(columns.pop("row"))
    columns = {name: values[order] for name, values in columns.items()}
    recorded = heads.recorder.table()
    dynamics = {name: recorded.column(name) for name in DYNAMICS}
    return table_of({"id": np.arange(len(order)), **columns, **overall(columns), **dynamics}, names)


def _encoded(features: Any, labels: Any, classes: Sequence[Any] | None) -> tuple[Tensor, list[Any]]:
    """labels as class indices (N,), and the class names; raise if there are fewer than two classes."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    named = list(classes) if classes is not None and values.dtype.kind in "iu" else None  # labels are indices
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
        raise ValueError(f"labels must have shape ({len(features)},), one per row of features, got {values.shape}")
    if len(np.unique(index)) < 2:
        raise DataError("labels hold fewer than 2 classes: there is nothing to classify")
    return torch.from_numpy(index), names if named is None else named
