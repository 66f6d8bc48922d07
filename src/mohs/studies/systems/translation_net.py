"""Transformers for translation, several side by side as one: every weight has a leading dimension of networks.

    encoder layer    x + attention(x, x), then x + feed-forward(x)            normalized before each part (pre-norm)
    decoder layer    the same, with attention to the encoder in between; its own attention sees no later piece
    output           the target's embedding, transposed: embeddings of source, target and output are one table

Vaswani et al., "Attention is all you need" (NIPS 2017); normalization before each part: Xiong et al. (ICML 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mohs.studies.systems.translation_data import END, PAD, START


class Transformers(nn.Module):
    """One Transformer per seed, side by side, on sentences of piece numbers (networks, batch, length), padded with PAD."""

    def __init__(
        self, pieces: int, seeds: Sequence[int], *, width: int = 128, hidden: int = 256, heads: int = 4, layers: int = 4,
        dropout: float = 0.3,
    ) -> None:  # fmt: skip
        super().__init__()
        self.networks, self.pieces, self.width, self.heads = len(seeds), pieces, width, heads
        self.layers, self.dropout = layers, dropout
        shapes: dict[str, tuple[int, ...]] = {"table": (pieces, width), "encoder_norm": (2, width), "decoder_norm": (2, width)}
        for side, parts in (("encoder", ("self",)), ("decoder", ("self", "cross"))):
            for i in range(layers):
                for part in parts:
                    name = f"{side}{i}_{part}"
                    shapes |= {
                        f"{name}_norm": (2, width),
                        f"{name}_query": (width, width),
                        f"{name}_key_value": (width, 2 * width),
                    }
                    shapes |= {f"{name}_out": (width, width)}
                name = f"{side}{i}_feed"
                shapes |= {f"{name}_norm": (2, width), f"{name}_in": (width, hidden), f"{name}_out": (hidden, width)}
        each = [initial(shapes, seed) for seed in seeds]
        self.weights = nn.ParameterDict({name: torch.stack([one[name] for one in each]) for name in each[0]})

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (networks, batch, length, pieces) of the piece that follows each prefix of the target."""
        return self.logits(self.decode(target, self.encode(source), source))

    def encode(self, source: Tensor) -> Tensor:
        """The encoder's output (networks, batch, length, width)."""
        x, seen = self.embed(source), visible(source)
        for i in range(self.layers):
            own = self.normed(f"encoder{i}_self", x)
            x = x + self.attend(f"encoder{i}_self", own, own, seen)
            x = x + self.feed(f"encoder{i}_feed", x)
        return self.normed("encoder", x)

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """The decoder's output for each prefix of the target."""
        x, length, seen = self.embed(target), target.shape[-1], visible(source)
        earlier = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()
        for i in range(self.layers):
            own = self.normed(f"decoder{i}_self", x)
            x = x + self.attend(f"decoder{i}_self", own, own, earlier)
            x = x + self.attend(f"decoder{i}_cross", self.normed(f"decoder{i}_cross", x), memory, seen)
            x = x + self.feed(f"decoder{i}_feed", x)
        return self.normed("decoder", x)

    def logits(self, x: Tensor) -> Tensor:
        """Scores of all pieces for outputs of the decoder."""
        table: Tensor = self.weights["table"]
        return (x.flatten(1, -2) @ table.mT).view(*x.shape[:-1], self.pieces)

    def embed(self, numbers: Tensor) -> Tensor:
        """Embeddings of the pieces, plus their positions."""
        first = torch.arange(self.networks, device=numbers.device).view(-1, 1, 1) * self.pieces
        x = F.embedding(numbers + first, self.weights["table"].flatten(0, 1)) * math.sqrt(self.width)
        return self.drop(x + positions(numbers.shape[-1], self.width, device=x.device))

    def attend(self, name: str, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
        """Attention of x to the memory, where `seen`."""
        query = self.split(self.linear(f"{name}_query", x))
        key, value = (self.split(part) for part in self.linear(f"{name}_key_value", memory).chunk(2, -1))
        seen = seen if seen.dim() == 2 else seen.flatten(0, 1)[:, None, None]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return self.drop(self.linear(f"{name}_out", mixed.transpose(1, 2).flatten(2).view_as(x)))

    def split(self, x: Tensor) -> Tensor:
        """(networks, batch, length, width) as (networks · batch, heads, length, width / heads)."""
        return x.view(-1, x.shape[2], self.heads, self.width // self.heads).transpose(1, 2)

    def feed(self, name: str, x: Tensor) -> Tensor:
        """The feed-forward part."""
        return self.drop(self.linear(f"{name}_out", self.linear(f"{name}_in", self.normed(name, x)).relu()))

    def linear(self, name: str, x: Tensor) -> Tensor:
        """The linear layer of this name, in every network."""
        out = torch.baddbmm(self.weights[f"{name}_bias"][:, None], x.flatten(1, -2), self.weights[name])
        return out.view(*x.shape[:-1], -1)

    def normed(self, name: str, x: Tensor) -> Tensor:
        """Layer normalization with each network's own gain and bias."""
        gain, bias = torch.unbind(self.weights[f"{name}_norm"][:, :, None, None], 1)
        return F.layer_norm(x, (self.width,)) * gain + bias

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, training=self.training)

    @torch.no_grad()
    def translate(self, source: Tensor, *, longest: int) -> Tensor:
        """Greedy translations (networks, batch, length), each closed by END."""
        memory = self.encode(source)
        made = torch.full((*source.shape[:2], 1), START, device=source.device)
        for _ in range(longest):
            following = self.logits(self.decode(made, memory, source)[:, :, -1:]).argmax(-1)
            made = torch.cat([made, following], -1)
            if (made == END).any(-1).all():
                break
        return made[..., 1:]


def visible(source: Tensor) -> Tensor:
    """Which pieces attention may see: all but padding."""
    return source != PAD


def positions(length: int, width: int, *, device: torch.device) -> Tensor:
    """Sinusoidal positions (length, width)."""
    rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000) / width))
    angle = torch.arange(length, device=device)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], 1)


def initial(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    """Weights of one network: Glorot for linear layers, normal with SD width^−½ for the table, and 0 for biases."""
    draw, made = torch.Generator().manual_seed(seed), {}
    for name, (inputs, outputs) in shapes.items():
        if name == "table":
            made[name] = torch.randn(inputs, outputs, generator=draw) * outputs**-0.5
        elif name.endswith("_norm"):
            made[name] = torch.stack([torch.ones(outputs), torch.zeros(outputs)])
        else:
            bound = math.sqrt(6 / (inputs + outputs))
            made[name] = torch.empty(inputs, outputs).uniform_(-bound, bound, generator=draw)
            made[f"{name}_bias"] = torch.zeros(outputs)
    return made
