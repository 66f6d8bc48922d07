"""mohs losses in the Hugging Face Trainer, and a callback that records training dynamics.

    compute_loss = as_compute_loss_func(mohs.GradientRescalingLoss(), recorder)
    Trainer(..., compute_loss_func=compute_loss, callbacks=[RecorderCallback(compute_loss)])

The loss is Σℓ / num_items_in_batch, so that gradient accumulation weights all items equally; without that number it is the
loss's own mean. Logits are (B, K), or (B, T, K) with labels (B, T) for tokens. For a causal language model the logits of each
token are compared with the label of the next, as the model's own loss does; the class of the outputs tells
(CausalLMOutput...), or `shift_labels`.

To record, the items need an "id" (`mohs.WithIds`) and the training arguments `remove_unused_columns=False`: the callback removes
the id from the model's inputs and passes it to the loss. Training steps are recorded, evaluation is not; an example counts
once per epoch. For tokens use `Recorder(N, positions=T)`: token t of example i is number i·T + t, and labels of −100 are not
recorded. A recorder with a head reads its features from the outputs, as "features". The Trainer's checkpoints do not
include the record: save `recorder.state_dict()` yourself.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mohs.hardness.recorder import Recorder
from mohs.losses._reduction import spread_sample_weight

try:
    from transformers import TrainerCallback
    from transformers.utils.generic import ModelOutput
except Exception as error:  # a broken installation raises more than ImportError
    raise ImportError(
        f"mohs.integrations.transformers needs transformers, which did not import ({error}): pip install 'mohs[hf]'"
    ) from error

ID_NAMES = ("ids", "id")


def as_compute_loss_func(loss: nn.Module, recorder: Recorder | None = None, *, shift_labels: bool | None = None) -> ComputeLoss:
    """Wrap a loss for the Trainer's `compute_loss_func`.

    Args:
        loss: Any loss module with a `reduction` of "mean" or "sum".
        recorder: A `mohs.Recorder` to update at every training step; it also needs `RecorderCallback`.
        shift_labels: Compare the logits of each token with the label of the next; default: for causal language models.

    Returns:
        A callable f(outputs, labels, num_items_in_batch=None, sample_weight=None); sample_weight is (B,) or, like the labels,
        (B, T).
    """
    if getattr(loss, "reduction", None) not in ("mean", "sum"):
        raise ValueError(f"loss must have a reduction of mean or sum, like nn.CrossEntropyLoss; got {loss!r}")
    return ComputeLoss(mean=_reducing(loss, "mean"), total=_reducing(loss, "sum"), recorder=recorder, shift_labels=shift_labels)


@dataclass(eq=False)
class ComputeLoss:
    """The result of `as_compute_loss_func`; the callback sets `ids` and `epoch` before each call."""

    mean: nn.Module
    total: nn.Module
    recorder: Recorder | None = None
    shift_labels: bool | None = None
    ids: Tensor | None = field(default=None, repr=False)
    epoch: int | None = None

    def __call__(
        self,
        outputs: Any,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None = None,
        *,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        first = int(logits.dim() > 2 and is_shifted(outputs, self.shift_labels))  # the first token that is predicted
        logits = logits[:, : logits.shape[1] - first] if first else logits
        if self.recorder is not None and torch.is_grad_enabled():  # evaluation runs without gradients
            self._record(logits, labels, outputs.get("features") if isinstance(outputs, dict) else None, first)
        labels = labels.to(logits.device)
        given = {}
        if sample_weight is not None:
            weights = spread_sample_weight(sample_weight.to(labels.device), labels)
            given["sample_weight"] = (weights[:, first:] if first else weights).flatten()
        logits, labels = logits.flatten(0, -2), (labels[:, first:] if first else labels).flatten()
        if num_items_in_batch is None:
            return self.mean.to(logits.device)(logits, labels, **given)  # type: ignore[no-any-return]
        total = self.total.to(logits.device)(logits, labels, **given)
        return total / num_items_in_batch  # type: ignore[no-any-return]

    def _record(self, logits: Tensor, labels: Tensor, features: Tensor | None, first: int) -> None:
        ids, self.ids = self.ids, None
        if ids is None or self.recorder is None:
            raise ValueError(
                'a training step has no ids: give the items an "id" (WithIds(dataset)), keep it with '
                "remove_unused_columns=False, and pass callbacks=[RecorderCallback(compute_loss)] to the Trainer"
            )
        if logits.dim() == 3:
            ids = self.recorder.position_ids(ids, labels)[:, first:]
            labels, logits = labels[:, first:], logits.movedim(2, 1)
            features = None if features is None else features[:, : features.shape[1] - first].movedim(2, 1)
        self.recorder.update(ids, logits, labels, features, epoch=None if self.recorder.track == ("aum",) else self.epoch)


def is_shifted(outputs: Any, shift_labels: bool | None) -> bool:
    """Whether the logits of a token (B, T, K) predict the label of the next, by the wish or by the class of the outputs."""
    if shift_labels is not None:
        return shift_labels
    if not isinstance(outputs, ModelOutput):
        raise ValueError(
            f"outputs of type {type(outputs).__name__} do not tell whether the model is a causal language model: pass "
            "shift_labels=True (the logits of a token predict the next) or False to as_compute_loss_func"
        )
    return "CausalLMOutput" in type(outputs).__name__


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
