"""mohs losses in the Hugging Face Trainer, and a callback that records training dynamics.

    compute_loss = as_compute_loss_func(mohs.GradientRescalingLoss(), recorder)
    Trainer(..., compute_loss_func=compute_loss, callbacks=[RecorderCallback(compute_loss)])

The loss is Σℓ / num_items_in_batch, so that gradient accumulation weights all items equally; without that number it is the
loss's own mean. Logits are (B, K), or (B, T, K) with labels (B, T) for tokens. For a causal language model the logits of each
token are compared with the label of the next, as the model's own loss does; this is determined by the class of the outputs
(CausalLMOutput...), or by `shift_labels`.

To record, the items need an "id" (`mohs.WithIds`) and the training arguments `remove_unused_columns=False`: the callback removes
the id from the model's inputs and passes it to the loss. Training steps are recorded, evaluation is not; an example counts
once per epoch. For tokens use `Recorder(N, positions=T)`: token t of example i is number i·T + t, and labels of −100 are not
recorded. A recorder with a head reads its features from the outputs, as "features". The Trainer's checkpoints do not
include the record: save `recorder.state_dict()` yourself.

With large vocabularies the logits take most of the memory. `fuse_output(model)` lets the loss compute them in chunks, and records
from the same pass:

    compute_loss = as_compute_loss_func(mohs.GeneralizedCrossEntropyLoss(), recorder, output=fuse_output(model))
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mohs.hardness.recorder import Recorder
from mohs.heads.fused import FusedHead, linear_loss
from mohs.losses._reduction import spread_sample_weight

try:
    from transformers import TrainerCallback
    from transformers.utils.generic import ModelOutput
except Exception as error:  # a broken installation raises more than ImportError
    raise ImportError(
        f"mohs.integrations.transformers needs transformers, which did not import ({error}): pip install 'mohs[hf]'"
    ) from error

ID_NAMES = ("ids", "id")
CHANGES_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")  # configured after the output layer


def as_compute_loss_func(
    loss: nn.Module, recorder: Recorder | None = None, *, shift_labels: bool | None = None, output: OutputLayer | None = None
) -> ComputeLoss:
    """Wrap a loss for the Trainer's `compute_loss_func`.

    Args:
        loss: Any loss module with a `reduction` of "mean" or "sum".
        recorder: A `mohs.Recorder` to update at every training step; it also needs `RecorderCallback`.
        shift_labels: Compare the logits of each token with the label of the next; default: for causal language models.
        output: The model's output layer from `fuse_output`, to train without the logits in memory; the loss must be a curve of
            the margin, and the recorder one without a head.

    Returns:
        A callable f(outputs, labels, num_items_in_batch=None, sample_weight=None); sample_weight is (B,) or, like the labels,
        (B, T).
    """
    if getattr(loss, "reduction", None) not in ("mean", "sum"):
        raise ValueError(f"loss must have a reduction of mean or sum, like nn.CrossEntropyLoss; got {loss!r}")
    if output is not None:
        FusedHead(output, loss)  # raises unless the loss can be fused
    return ComputeLoss(_reducing(loss, "mean"), _reducing(loss, "sum"), recorder, shift_labels, output)


class OutputLayer(nn.Linear):
    """The output layer of a model whose loss computes the logits: in training mode its outputs are its inputs."""

    def forward(self, features: Tensor) -> Tensor:
        return features if self.training else super().forward(features)


def fuse_output(model: nn.Module) -> OutputLayer:
    """Replace the linear output layer of a transformers model by one that leaves the logits to the loss in training mode.

    The parameters stay the same, tied weights included; evaluation, generation and checkpoints do not change.

    Args:
        model: A model with `get_output_embeddings`, such as a causal language model.

    Returns:
        The layer, for `as_compute_loss_func(..., output=)`.
    """
    layer = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]
    if not isinstance(layer, nn.Linear):
        raise ValueError(f"{type(model).__name__} has no linear output layer to fuse: use as_compute_loss_func without output=")
    changing = [name for name in CHANGES_LOGITS if getattr(model.config, name, None) is not None]
    if changing:
        raise ValueError(
            f"{type(model).__name__} changes its logits after the output layer (config.{changing[0]}): cannot be fused"
        )
    with torch.device("meta"):
        fused = OutputLayer(layer.in_features, layer.out_features, bias=layer.bias is not None)
    fused.weight, fused.bias = layer.weight, layer.bias
    fused.train(layer.training)
    model.set_output_embeddings(fused)  # type: ignore[operator]
    return fused


@dataclass(eq=False)
class ComputeLoss:
    """The result of `as_compute_loss_func`; the callback sets `ids` and `epoch` before each call."""

    mean: nn.Module
    total: nn.Module
    recorder: Recorder | None = None
    shift_labels: bool | None = None
    output: OutputLayer | None = None
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
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]  # (B, K) or (B, T, K)
        first = int(logits.dim() > 2 and is_shifted(outputs, self.shift_labels))  # the first token that is predicted
        logits = logits[:, : logits.shape[1] - first] if first else logits
        recording = self.recorder is not None and torch.is_grad_enabled()  # evaluation runs without gradients
        ids = self._item_ids(labels) if recording else None
        ids = ids[:, first:] if ids is not None and first else ids
        labels = labels.to(logits.device)
        if sample_weight is not None:
            weights = spread_sample_weight(sample_weight.to(labels.device), labels)
            sample_weight = (weights[:, first:] if first else weights).flatten()
        labels = labels[:, first:] if first else labels
        loss = self.mean if num_items_in_batch is None else self.total
        if self.output is not None and self.output.training:  # the logits are the features still
            weight, bias, rows = self.output.weight, self.output.bias, labels.flatten()
            features = logits.flatten(0, -2)
            value = linear_loss(features, weight, rows, bias, loss=loss, sample_weight=sample_weight, return_stats=recording)
            if ids is not None and self.recorder is not None:
                value, seen = value
                self.recorder.update_statistics(ids.flatten(), seen, rows, epoch=self.epoch)
        else:
            if ids is not None and self.recorder is not None:
                _record(self.recorder, ids, logits, labels, _features(outputs), self.epoch)
            given = {} if sample_weight is None else {"sample_weight": sample_weight}  # torch's own losses have no such argument
            value = loss.to(logits.device)(logits.flatten(0, -2), labels.flatten(), **given)
        return value if num_items_in_batch is None else value / num_items_in_batch  # type: ignore[no-any-return]

    def _item_ids(self, labels: Tensor) -> Tensor:
        """The ids of this step's items, (B,) or one per token (B, T)."""
        ids, self.ids = self.ids, None
        if ids is None or self.recorder is None:
            raise ValueError(
                'a training step has no ids: give the items an "id" (WithIds(dataset)), keep it with '
                "remove_unused_columns=False, and pass callbacks=[RecorderCallback(compute_loss)] to the Trainer"
            )
        return self.recorder.position_ids(ids, labels) if labels.dim() > 1 else ids


def _features(outputs: Any) -> Tensor | None:
    """The features of the outputs, where the model returns them."""
    return outputs.get("features") if isinstance(outputs, dict) else None


def _record(recorder: Recorder, ids: Tensor, logits: Tensor, labels: Tensor, features: Tensor | None, epoch: int | None) -> None:
    """Record logits (B, K), or (B, T, K) with ids and labels (B, T)."""
    if logits.dim() == 3:
        features = None if features is None else features[:, : logits.shape[1]].movedim(2, 1)
        logits = logits.movedim(2, 1)
    recorder.update(ids, logits, labels, features, epoch=None if recorder.track == ("aum",) else epoch)


def is_shifted(outputs: Any, shift_labels: bool | None) -> bool:
    """Whether the logits of a token (B, T, K) predict the label of the next, as requested, or by the class of the outputs."""
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
        self.compute_loss.epoch = int((state.epoch or 0) + 1e-6)  # the epoch of a resumed training

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
