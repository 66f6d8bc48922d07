"""Logits and features of many inputs: one forward pass over data for prediction, evaluation, the audit and the studies.

A model is any callable that returns logits. Features and class weights come from `Network.outputs` or, for any other Module
with a linear head, from `find_head`. Modules run in evaluation mode without gradients and are restored afterwards, also after
an error. uint8 images reach the model as floats from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mohs._core.device import device_of
from mohs._core.errors import DataError
from mohs._core.forward import inference, row_slices
from mohs._core.forward import logits_of as any_logits_of
from mohs.data.examples import Examples, Inputs
from mohs.heads.find_head import find_head
from mohs.models.network import Network

Model = Callable[..., Any]
Given = Inputs | Tensor | Examples
BATCH, CPU_BATCH = 1024, 128  # examples per forward pass, on a GPU and on a CPU, where feature maps should stay in the cache


@dataclass(frozen=True, eq=False)
class Outputs:
    """logits (N, K), features (N, D) and the head's weight (K, D)."""

    logits: Tensor
    features: Tensor
    weight: Tensor


def predict(
    network: nn.Module, examples: Given, *, precision: str = "no", batch_size: int | None = None, mirror: bool = False
) -> Outputs:
    """Logits, features and class weights of all examples, on the CPU.

    Args:
        precision: "no", "bf16" or "fp16".
        batch_size: Examples per forward pass; None: 1024 on a GPU, 128 on a CPU.
        mirror: Average logits and features over each image and its mirror image.
    """
    _, weight = _runner(network, None)
    parts = [
        (logits.cpu(), features.cpu())
        for _, logits, features in output_batches(network, examples, precision=precision, batch_size=batch_size, mirror=mirror)
    ]
    logits, features = (torch.cat([part[i] for part in parts]) for i in range(2))
    return Outputs(logits, features, weight.cpu())


def accuracy(network: nn.Module, examples: Examples, *, precision: str = "no") -> float:
    """The share of examples whose label has the largest logit."""
    return count_correct(network, examples, precision=precision).item() / len(examples)


def count_correct(network: nn.Module, examples: Examples, *, precision: str = "no") -> Tensor:
    """The number of examples whose label has the largest logit, on the device; no host synchronization for examples there."""
    correct = torch.zeros((), device=device_of(network))
    labels = examples.labels.to(correct.device)
    for rows, logits, _ in output_batches(network, examples, precision=precision):
        correct += (logits.argmax(1) == labels[rows]).sum()
    return correct


def logits_over(model: Model, inputs: Given, *, batch_size: int = 256) -> Tensor:
    """The logits (N, K) of all inputs, on the model's device."""
    with inference(model) as run:
        return torch.cat([logits_of(run(model, batch)) for _, batch in input_batches(inputs, batch_size, device_of(model))])


def outputs_over(model: nn.Module, inputs: Given, *, layer: str | None = None, batch_size: int = 256) -> Outputs:
    """Logits, features and class weights of all inputs, on the model's device; layer: the head, if not the last linear layer."""
    _, weight = _runner(model, layer)
    parts = [(logits, features) for _, logits, features in output_batches(model, inputs, layer=layer, batch_size=batch_size)]
    return Outputs(torch.cat([logits for logits, _ in parts]), torch.cat([features for _, features in parts]), weight)


def output_batches(
    model: nn.Module,
    inputs: Given,
    *,
    layer: str | None = None,
    precision: str = "no",
    batch_size: int | None = None,
    mirror: bool = False,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Rows, logits (b, K) and features (b, D) of each batch in turn, on the model's device; arguments as for `predict`."""
    call, _ = _runner(model, layer)
    call = _mirrored(call) if mirror else call
    device = device_of(model)
    if batch_size is None:
        batch_size = CPU_BATCH if device is None or device.type == "cpu" else BATCH
    with inference(model, precision=precision) as run:
        for rows, batch in input_batches(inputs, batch_size, device):
            outputs, features = run(call, batch)
            yield rows, logits_of(outputs), features


def input_batches(inputs: Given, batch_size: int, device: torch.device | None) -> Iterator[tuple[slice, Tensor]]:
    """Rows and inputs of each batch, in order, on the device (None: where they are); uint8 becomes floats from 0 to 1."""
    given = inputs.inputs if isinstance(inputs, Examples) else inputs
    if isinstance(batch_size, bool) or batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if not len(given):
        raise DataError("the inputs hold no examples: there is nothing to evaluate")
    for rows in row_slices(len(given), batch_size):
        batch = given[rows] if isinstance(given, Tensor) else given[torch.arange(rows.start, rows.stop)]
        batch = batch if device is None else batch.to(device, non_blocking=True)
        yield rows, batch.float() / 255 if batch.dtype == torch.uint8 else batch


def logits_of(outputs: Any) -> Tensor:
    """The logits (n, K) in a model's outputs; raise unless they have two dimensions."""
    logits = any_logits_of(outputs)
    if logits.dim() != 2:
        raise ValueError(f"the model must return logits of shape (N, K), got {tuple(logits.shape)}")
    return logits


def _runner(model: nn.Module, layer: str | None) -> tuple[Callable[[Tensor], tuple[Any, Tensor]], Tensor]:
    """A function of a batch that returns outputs and features, and the head's weight (K, D)."""
    if layer is None and isinstance(model, Network) and isinstance(model.head.weight, Tensor):
        return model.outputs, model.head.weight.detach()
    if not isinstance(model, nn.Module):
        raise ValueError(f"features need a torch Module with a linear head, got {type(model).__name__}")
    found = find_head(model, layer=layer)
    return found.logits_and_features, found.weight.detach()


def _mirrored(call: Callable[[Tensor], tuple[Any, Tensor]]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The mean of both views: ½ (f(x) + f(mirror of x)), for logits and for features."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        (outputs, features), (others, other_features) = call(x), call(x.flip(-1))
        return (logits_of(outputs) + logits_of(others)) / 2, (features + other_features) / 2

    return both
