"""What a model says of many inputs: logits, and where it has a head the features and class weights, batch by batch.

A model is anything callable that gives logits; features come from `Network.outputs` or, for any other Module with a linear
head, from `find_head`. Modules are run in evaluation mode, with parameters that ask for no gradient, and are left as they
were found, after an error too. Images in uint8 reach the model as floats from 0 to 1. Results stay on the model's device, and
nothing waits for it between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mohs._core import eval_mode
from mohs._core.errors import DataError
from mohs.data.examples import Examples, Inputs

Model = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Outputs:
    """logits (N, K), features (N, D) and the head's weight (K, D)."""

    logits: Tensor
    features: Tensor
    weight: Tensor


@contextmanager
def evaluating(model: Model) -> Iterator[torch.device | None]:
    """Evaluation mode without parameter gradients, and all as it was afterwards; gives the model's device, if it has one."""
    if not isinstance(model, nn.Module):
        yield None
        return
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    with eval_mode.evaluating(model) as device:
        try:
            for parameter in wanted:
                parameter.requires_grad_(False)
            yield device if wanted or any(True for _ in model.buffers()) else None
        finally:
            for parameter, before in wanted.items():
                parameter.requires_grad_(before)


def logits_over(model: Model, inputs: Inputs | Tensor | Examples, *, batch_size: int = 256) -> Tensor:
    """The model's logits (N, K) of all inputs, on its device."""
    with torch.no_grad(), evaluating(model) as device:
        return torch.cat([logits_of(model(batch)) for batch in input_batches(inputs, batch_size, device)])


def outputs_over(
    model: nn.Module, inputs: Inputs | Tensor | Examples, *, layer: str | None = None, batch_size: int = 256
) -> Outputs:
    """Logits, features and head of all inputs; layer: the head, where it is not the last linear layer."""
    run, weight = _runner(model, layer)
    with torch.no_grad(), evaluating(model) as device:
        pairs = [run(batch) for batch in input_batches(inputs, batch_size, device)]
    logits = torch.cat([logits_of(out) for out, _ in pairs])
    return Outputs(logits, torch.cat([features for _, features in pairs]), weight)


def input_batches(inputs: Inputs | Tensor | Examples, batch_size: int, device: torch.device | None) -> Iterator[Tensor]:
    """The inputs in order, this many at a time, on the device (None: where they are); uint8 as floats from 0 to 1."""
    given = inputs.inputs if isinstance(inputs, Examples) else inputs
    if isinstance(batch_size, bool) or batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if not len(given):
        raise DataError("the inputs hold no examples: there is nothing to evaluate")
    for start in range(0, len(given), batch_size):
        stop = min(start + batch_size, len(given))
        batch = given[start:stop] if isinstance(given, Tensor) else given[torch.arange(start, stop)]
        batch = batch if device is None else batch.to(device, non_blocking=True)
        yield batch.float() / 255 if batch.dtype == torch.uint8 else batch


def logits_of(outputs: Any) -> Tensor:
    """The logits (n, K) of whatever a model gives: the tensor, its `.logits` or ["logits"], or the first of a tuple."""
    from mohs.hardness.score import logits_of as found_in

    logits = found_in(outputs)
    if logits.dim() != 2:
        raise ValueError(f"the model must give logits of shape (N, K), got {tuple(logits.shape)}")
    return logits


def _runner(model: nn.Module, layer: str | None) -> tuple[Callable[[Tensor], tuple[Any, Tensor]], Tensor]:
    """A function of a batch that gives outputs and features, and the head's weight."""
    from mohs.heads.find_head import LINEAR, find_head
    from mohs.models.network import Network

    if layer is None and isinstance(model, Network) and isinstance(model.head, LINEAR):
        weight: Tensor = model.head.weight.detach()  # type: ignore[operator]
        return model.outputs, weight
    if not isinstance(model, nn.Module):
        raise ValueError(f"features need a torch Module with a linear head, got {type(model).__name__}")
    found = find_head(model, layer=layer)
    return found.run, found.weight.detach()
