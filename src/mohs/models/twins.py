"""Two networks side by side as one: trained on the same examples with separate targets, and averaged for predictions.

    features = [f₁(x), f₂(x)]        logits = ½ (z₁(x) + z₂(x))

In evaluation mode it is a `Network` like any other. In training `outputs` stacks the two along the batch: rows 0..B−1 are the
first network's, rows B..2B−1 the second's, so that a loss over 2B rows trains both. With `own_views` the inputs are stacked
likewise: each network sees its half of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mohs._core.eval_mode import eval_mode
from mohs.models.network import MARGIN_HEADS, Network, apply_head


class Twins(Network):
    """`Twins(first, second)`: two networks for the same inputs and classes; the scale of the inputs is the first's.

    Attributes:
        own_views: Whether each network has its own half of the inputs in training.
    """

    body: Bodies
    head: Heads
    own_views: bool = False

    def __init__(self, first: Network, second: Network) -> None:
        super().__init__(Bodies([first.body, second.body]), Heads([first.head, second.head]), first.scale)

    def outputs(self, x: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if not self.training:
            return super().outputs(x)
        scaled = self.scale(x)
        given_to = scaled.chunk(2) if self.own_views else (scaled, scaled)
        features = [body(x).float() for body, x in zip(self.body, given_to, strict=True)]
        logits = [apply_head(head, given, labels) for head, given in zip(self.head.parts, features, strict=True)]
        return torch.cat(logits), torch.cat(features)


def members(network: Network) -> list[Network]:
    """The networks in it, which share its weights: two of `Twins`, else the network itself."""
    if not isinstance(network, Twins):
        return [network]
    pairs = zip(network.body, network.head.parts, strict=True)
    return [Network(body, head, network.scale).train(network.training) for body, head in pairs]


@torch.no_grad()
def without_margin(network: Network, logits: Tensor, features: Tensor) -> Tensor:
    """The logits in training as the heads give them without labels; the given ones if they have no margin."""
    heads = list(network.head.parts) if isinstance(network, Twins) else [network.head]
    if not any(isinstance(head, MARGIN_HEADS) for head in heads):
        return logits.detach()
    with eval_mode(network.head):
        return torch.cat([apply_head(head, part, None) for head, part in zip(heads, features.chunk(len(heads)), strict=True)])


class Bodies(nn.ModuleList):
    """Bodies whose features are joined: (B, D₁ + D₂)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([body(x).float() for body in self], 1)


class Heads(nn.Module):
    """The mean of the logits of several heads, each on its part of the features (B, D₁ + D₂)."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    @property
    def weight(self) -> Tensor:
        """Class weights (K, D₁ + D₂); for linear heads, logits are features · weightᵀ and a bias."""
        return torch.cat(self._weights(), 1) / len(self.parts)

    def forward(self, features: Tensor) -> Tensor:
        given = torch.split(features, [weight.shape[1] for weight in self._weights()], 1)
        return torch.stack([head(part) for head, part in zip(self.parts, given, strict=True)]).mean(0)

    def _weights(self) -> list[Tensor]:
        return [head.weight for head in self.parts]  # type: ignore[misc]
