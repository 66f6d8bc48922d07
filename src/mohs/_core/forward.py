"""The forward pass that scoring, prediction, evaluation and the audit share: evaluation mode, no gradients, one device.

    with inference(model) as run:
        for x in batches:
            outputs = run(model, x)

`run` moves its arguments to the model's device and calls the function under `torch.no_grad` and, where asked for,
`torch.autocast`. Results stay on the device; there is no host synchronization between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from mohs._core.eval_mode import eval_mode
from mohs._core.graphs import is_graph

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@contextmanager
def inference(
    model: Callable[..., Any], *, device: str | torch.device | None = None, precision: str = "no"
) -> Iterator[Callable[..., Any]]:
    """Evaluation mode, and a function `run(function, *args, **kwargs)` that calls on the model's device without gradients.

    Args:
        model: The model that the calls go through, directly or not (`network.outputs`).
        device: Where to run it, by default where it is; it is moved back afterwards.
        precision: "no", "bf16" or "fp16", for autocast.
    """
    with eval_mode(model, device=device) as here:

        def run(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            if here is not None:
                arguments, keywords = to_device(arguments, here), to_device(keywords, here)
            kind = "cpu" if here is None else here.type
            with torch.no_grad(), torch.autocast(kind, PRECISIONS.get(precision, torch.bfloat16), enabled=precision != "no"):
                return function(*arguments, **keywords)

        yield run


def to_device(value: Any, device: torch.device) -> Any:
    """The value with every tensor on the device, through tuples, lists, mappings and graphs."""
    if isinstance(value, Tensor) or is_graph(value):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: to_device(part, device) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(to_device(part, device) for part in value) if type(value) in (tuple, list) else value
    return value


def logits_of(outputs: Any) -> Tensor:
    """The logits in a model's outputs: the tensor itself, `.logits`, ["logits"], or the first entry of a tuple."""
    found = getattr(outputs, "logits", None)
    if found is None and isinstance(outputs, Mapping):
        found = outputs.get("logits")
    if found is None:
        found = outputs[0] if isinstance(outputs, tuple | list) and outputs else outputs
    if not isinstance(found, Tensor):
        raise ValueError(f"the model returns {type(outputs).__name__} without logits: wrap it so that it returns logits (N, K)")
    return found


def row_slices(rows: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows that cover rows 0..rows−1."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
