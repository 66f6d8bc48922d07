"""A network: a scale for its inputs, a body that gives features, and a head that gives logits.

    features(x) = body((x − mean)/sd)          logits = head(features)

Images are uint8 from 0 to 255 or floats from 0 to 1: the scale is part of the network, so its weights are all that is needed
to use it. Heads with a margin need the labels in training: `outputs(x, labels)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mohs.heads import HEADS

MARGIN_HEADS = tuple(HEADS.values())


class Scale(nn.Module):
    """(x − mean)/sd by channel (of images) or by feature; uint8 becomes 0 to 1 first."""

    mean: Tensor
    sd: Tensor

    def __init__(self, mean: Tensor | Sequence[float], sd: Tensor | Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32))
        self.register_buffer("sd", torch.as_tensor(sd, dtype=torch.float32).clamp_min(1e-6))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
        if x.dim() < 4:
            return (x - self.mean) / self.sd
        shape = (-1, 1, 1)
        scaled: Tensor = (x - self.mean.view(shape)) / self.sd.view(shape)
        return scaled.contiguous(memory_format=torch.channels_last)


class Network(nn.Module):
    """`Network(body, head, scale)`: logits of inputs; `features` and `outputs` give the features too."""

    def __init__(self, body: nn.Module, head: nn.Module, scale: Scale) -> None:
        super().__init__()
        self.scale, self.body, self.head = scale, body, head

    def features(self, x: Tensor) -> Tensor:
        """x (N, ...) -> (N, D), in float32 whatever the precision of the body."""
        features: Tensor = self.body(self.scale(x)).float()
        return features

    def outputs(self, x: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits (N, K) and features (N, D); with labels (n ≤ N), a margin head applies its margin to the first n."""
        features = self.features(x)
        return apply_head(self.head, features, labels), features

    def forward(self, x: Tensor) -> Tensor:
        return self.outputs(x)[0]


def apply_head(head: nn.Module, features: Tensor, labels: Tensor | None) -> Tensor:
    """The logits of features (N, D), in full precision; with labels, a margin head applies its margin to the first rows."""
    with torch.autocast(features.device.type, enabled=False):
        if not isinstance(head, MARGIN_HEADS):
            logits: Tensor = head(features)
            return logits
        count = len(features) if labels is None else len(labels)
        labeled: Tensor = head(features[:count], labels)
        return labeled if count == len(features) else torch.cat([labeled, head.logits(features[count:])])  # type: ignore[operator]


def head_weight(network: Network) -> Tensor:
    """The class weights (K, D) of the network's head."""
    weight = network.head.weight
    if not isinstance(weight, Tensor):
        raise ValueError(f"the head of the network must have a weight (K, D), got {type(network.head).__name__}")
    return weight
