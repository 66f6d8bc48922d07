"""What a network says of examples: logits and features, in batches, without gradients, in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mohs._core.eval_mode import evaluating
from mohs.data.examples import Examples
from mohs.models.network import Network

BATCH = 1024


def outputs(
    network: Network, examples: Examples, *, precision: str = "no", batch: int = BATCH
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Places (b,), logits (b, K) and features (b, D) of each batch in turn, on the network's device.

    precision: "no", "bf16" or "fp16". Examples may be on the device already.
    """
    device = next(network.parameters()).device
    source = examples.inputs
    half = torch.float16 if precision == "fp16" else torch.bfloat16
    with torch.no_grad(), evaluating(network):
        for start in range(0, len(examples), batch):
            places = torch.arange(start, min(start + batch, len(examples)))
            x = (source[start : start + batch] if isinstance(source, Tensor) else source[places]).to(device)
            with torch.autocast(device.type, half, enabled=precision != "no"):
                logits, features = network.outputs(x)
            yield places, logits, features


def predict(network: Network, examples: Examples, *, precision: str = "no", batch: int = BATCH) -> tuple[Tensor, Tensor]:
    """Logits (N, K) and features (N, D) of all examples, on the CPU."""
    made = [
        (logits.cpu(), features.cpu()) for _, logits, features in outputs(network, examples, precision=precision, batch=batch)
    ]
    return torch.cat([logits for logits, _ in made]), torch.cat([features for _, features in made])


def accuracy(network: Network, examples: Examples, *, precision: str = "no") -> float:
    """The share of examples whose label is the class with the largest logit."""
    return count_right(network, examples, precision=precision).item() / len(examples)


def count_right(network: Network, examples: Examples, *, precision: str = "no") -> Tensor:
    """Of how many examples the label is the class with the largest logit, on the device; of examples there nobody waits."""
    right = torch.zeros((), device=next(network.parameters()).device)
    labels = examples.labels.to(right.device)
    for places, logits, _ in outputs(network, examples, precision=precision):
        right += (logits.argmax(1) == labels[places[0] : places[-1] + 1]).sum()
    return right
