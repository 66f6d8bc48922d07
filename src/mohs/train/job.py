"""A job: a resolved run with everything that its training needs, and the state that a checkpoint holds (see `build`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from mohs._core.distributed import add_over_ranks
from mohs._core.specs import as_spec
from mohs.data.examples import Data, Examples
from mohs.hardness.recorder import Recorder
from mohs.losses.class_weights import class_counts
from mohs.losses.objective import Objective
from mohs.models.network import Network
from mohs.models.twins import Twins, members, without_margin
from mohs.train.augment import Sequential
from mohs.train.build_objective import weight_by_class
from mohs.train.compiled import Compiled, Outputs
from mohs.train.ema import EMA
from mohs.train.epoch_means import EpochMeans
from mohs.train.feed import Feed
from mohs.train.robust import Refinement
from mohs.train.run import Run
from mohs.train.trace import Trace
from mohs.train.warp import as_floats

PARTS = ("recorder", "trace", "ema", "refinement")  # parts of a checkpoint besides network and optimizer


class Training(nn.Module):
    """Network and objective as one module, so that they are distributed together."""

    def __init__(self, network: Network, objective: Objective, examples: int) -> None:
        super().__init__()
        self.network, self.objective, self.examples = network, objective, examples
        self.networks = len(members(network))
        self.outputs: Outputs = network.outputs

    def forward(
        self,
        x: Tensor,
        labels: Tensor,
        weights: list[float | Tensor],
        ids: Tensor,
        soft: Tensor | None = None,
        second: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The objective of a batch, and the logits and features of its first views.

        x and second, the second views if any, are (b, ...), or (b, 2, ...) for two networks with their own views.
        """
        count, own = self.networks, isinstance(self.network, Twins) and self.network.own_views
        views = [x] if second is None else [as_floats(x), second]
        seen = torch.cat([view.transpose(0, 1) for view in views], 1).flatten(0, 1) if own else torch.cat(views)
        outputs = self.outputs(seen, labels)
        by_view = [tensor.view(count, -1, *labels.shape, tensor.shape[1]) for tensor in outputs]  # network, view, example
        logits, features = (tensor[:, 0].flatten(0, 1) for tensor in by_view)
        given: dict[str, Tensor | None] = {"features": features}
        if self.objective.takes("guess"):
            probs = torch.softmax(without_margin(self.network, logits, features).float(), 1)
            guess = torch.stack(probs.chunk(count)).mean(0)  # over networks
            given |= {"guess": guess.repeat(count, 1), "second": by_view[0][:, -1].flatten(0, 1)}
        if count == 2:
            labels, ids = labels.repeat(2), torch.cat([ids, ids + self.examples])
            soft = None if soft is None else soft.transpose(0, 1).flatten(0, 1)
        return self.objective(logits, labels, weights=weights, soft=soft, ids=ids, **given), logits, features


@dataclass(eq=False)
class Job:
    """A run that is ready to train from `epoch` on."""

    run: Run
    data: Data
    accelerator: Accelerator
    training: Training
    wrapped: nn.Module
    optimizer: Any
    schedule: Any
    feed: Feed
    means: EpochMeans
    recorder: Recorder | None = None
    trace: Trace | None = None
    ema: EMA | None = None
    soft: Tensor | None = None  # soft labels (N, K), if any; (N, 2, K) for two networks
    refinement: Refinement | None = None
    later: tuple[Sequential | None, Sequential | None] = (None, None)  # augmentations after the warm-up of robust training
    checked: dict[str, Examples] = field(default_factory=dict)  # val and test, if any; on the device if they fit
    epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        here: torch.device = self.accelerator.device
        return here

    def state(self) -> dict[str, Any]:
        """The contents of a checkpoint."""
        parts = {name: getattr(self, name) for name in PARTS if getattr(self, name) is not None}
        return {
            "epoch": self.epoch,
            "processes": self.accelerator.num_processes,
            "history": self.history,
            "training": self.training.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],
            "scaler": None if self.accelerator.scaler is None else self.accelerator.scaler.state_dict(),
            **{name: part.state_dict() for name, part in parts.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from `state()`."""
        self.epoch, self.history = state["epoch"], list(state["history"])
        self.training.load_state_dict(state["training"])
        inner = getattr(self.optimizer, "optimizer", self.optimizer)
        inner.load_state_dict({"state": state["optimizer"], "param_groups": inner.state_dict()["param_groups"]})
        for weight, kept in inner.state.items():  # in the memory format of the weight, as fused steps need
            alike = {name: v for name, v in kept.items() if isinstance(v, Tensor) and v.shape == weight.shape}
            kept |= {name: torch.empty_like(weight).copy_(value) for name, value in alike.items()}
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        for name in PARTS:
            if getattr(self, name) is not None:
                getattr(self, name).load_state_dict(state[name])

    def backward(self, loss: Tensor) -> None:
        """Backpropagate the loss, scaled for fp16."""
        if self.accelerator.scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.accelerator.backward(loss)

    def event(self, done: int) -> dict[str, Any]:
        """The event for `watch` after this many steps of the epoch."""
        return {
            "epoch": self.epoch,
            "epochs": self.run.epochs,
            "step": done,
            "steps": len(self.feed),
            "so_far": self.means.so_far,
        }

    def averaged(self) -> AbstractContextManager[Any]:
        """A context in which the network has its averaged weights, if there are any."""
        return nullcontext() if self.ema is None else self.ema.swapped(self.training.network)

    def begin_phase(self) -> bool:
        """Whether the augmentation, and so the step, changes at this epoch because training on refined targets begins."""
        now = (self.feed.augment, self.feed.second)
        begins = self.refinement is not None and self.refinement.refines and now != self.later
        if begins:
            self.feed.augment, self.feed.second = self.later
            if isinstance(self.training.outputs, Compiled):
                self.training.outputs.fast = None  # for batches of another size
        return begins

    def reweigh(self) -> None:
        """Set the class weights of this epoch."""
        if self.run.class_weight is not None:
            counts = class_counts(self.feed.labels, len(self.data.classes))
            weight = weight_by_class(as_spec(self.run.class_weight), counts, epoch=self.epoch)
            self.training.objective.loss.weight.copy_(weight)  # type: ignore[attr-defined]

    def average_buffers(self) -> None:
        """Average the network's running statistics over processes."""
        if self.accelerator.num_processes > 1:
            for buffer in self.training.network.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(add_over_ranks(buffer.clone()) / self.accelerator.num_processes)
