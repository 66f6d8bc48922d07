"""mohs losses in the Hugging Face Trainer, and a callback that records training dynamics.

    compute_loss = as_compute_loss_func(mohs.GradientRescalingLoss(), recorder)
    Trainer(..., compute_loss_func=compute_loss, callbacks=[RecorderCallback(compute_loss)])

The loss is Σℓ / num_items_in_batch, so that gradient accumulation weights all items equally; without that number it is the
loss's own mean. Logits are (B, K), or (B, T, K) with labels (B, T) for tokens, which are not shifted. To record, the items need
an "id" (`mohs.WithIds`) and the training arguments `remove_unused_columns=False`: the callback removes the id from the model's
inputs and passes it to the loss. Training steps are recorded, evaluation is not; an example counts once per epoch. A recorder
with a head reads its features from the outputs, as "features". The Trainer's checkpoints do not include the record: save
`recorder.state_dict()` yourself.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mohs.hardness.recorder import Recorder

try:
    from transformers import TrainerCallback
except Exception as error:  # a broken installation raises more than ImportError
    raise ImportError(
        f"mohs.integrations.transformers needs transformers, which did not import ({error}): pip install 'mohs[hf]'"
    ) from error

ID_NAMES = ("ids", "id")


def as_compute_loss_func(loss: nn.Module, recorder: Recorder | None = None) -> ComputeLoss:
    """Wrap a loss for the Trainer's `compute_loss_func`.

    Args:
        loss: Any loss module with a `reduction` of "mean" or "sum".
        recorder: A `mohs.Recorder` to update at every training step; it also needs `RecorderCallback`.

    Returns:
        A callable f(outputs, labels, num_items_in_batch=None).
    """
    if getattr(loss, "reduction", None) not in ("mean", "sum"):
        raise ValueError(f"loss must have a reduction of mean or sum, like nn.CrossEntropyLoss; got {loss!r}")
    return ComputeLoss(mean=_reducing(loss, "mean"), total=_reducing(loss, "sum"), recorder=recorder)


@dataclass(eq=False)
class ComputeLoss:
    """The result of `as_compute_loss_func`; the callback sets `ids` and `epoch` before each call."""

    mean: nn.Module
    total: nn.Module
    recorder: Recorder | None = None
    ids: Tensor | None = field(default=None, repr=False)
    epoch: int | None = None

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        if self.recorder is not None and torch.is_grad_enabled():  # evaluation runs without gradients
            self._record(logits, labels, outputs.get("features") if isinstance(outputs, dict) else None)
        logits, labels = logits.flatten(0, -2), labels.flatten()
        if num_items_in_batch is None:
            return self.mean.to(logits.device)(logits, labels)  # type: ignore[no-any-return]
        return self.total.to(logits.device)(logits, labels) / num_items_in_batch  # type: ignore[no-any-return]

    def _record(self, logits: Tensor, labels: Tensor, features: Tensor | None) -> None:
        ids, self.ids = self.ids, None
        if ids is None or self.recorder is None:
            raise ValueError(
                'a training step has no ids: give the items an "id" (WithIds(dataset)), keep it with '
                "remove_unused_columns=False, and pass callbacks=[RecorderCallback(compute_loss)] to the Trainer"
            )
        self.recorder.update(ids, logits, labels, features, epoch=None if self.recorder.track == ("aum",) else self.epoch)


class RecorderCallback(TrainerCallback):
    """Pass the ids of each batch to the loss, and end the recorder's epochs.

    Args:
        compute_loss: From `as_compute_loss_func`, with a recorder.
    """

    def __init__(self, compute_loss: ComputeLoss) -> None:
        if compute_loss.recorder is None:
            raise ValueError("compute_loss has no recorder: create it with as_compute_loss_func(loss, recorder)")
        self.compute_loss = compute_loss
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self._hook = model.register_forward_pre_hook(self._take_ids, with_kwargs=True)
        self.compute_loss.epoch = int((state.epoch or 0) + 1e-6)  # where a resumed training stands

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.compute_loss.recorder is not None:
            self.compute_loss.recorder.end_epoch()
        self.compute_loss.epoch = (self.compute_loss.epoch or 0) + 1

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._hook.remove()

    def _take_ids(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's inputs without the ids, which are kept for the loss of the same step."""
        for name in ID_NAMES:
            if name in kwargs:
                kwargs = dict(kwargs)
                ids = kwargs.pop(name)
                self.compute_loss.ids = ids if model.training else None
        return args, kwargs


def _reducing(loss: nn.Module, reduction: str) -> nn.Module:
    """A copy of the loss with another reduction; buffers are shared."""
    twin = copy.copy(loss)
    twin.reduction = reduction  # type: ignore[assignment]
    return twin
