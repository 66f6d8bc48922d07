"""Exponential moving average of a network's weights and running statistics, for evaluation.

    average ← d average + (1 − d) now,     d = min(decay, (1 + t)/(10 + t)) at the t-th update

The second term is a warm-up that lets the average forget the initial weights; warmup=False omits it. All averages are in one
tensor and the count t in another, both on the network's device, without host synchronization: an update may be captured in
a CUDA graph. Integers (the batch counts of batch normalization) are not averaged. The AMC authors' code evaluates such an
average with decay 0.999 and no warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from mohs._core.validation import check_between

AVERAGED = 0.1  # default averaging window, as a share of all steps


def average_decay(steps: int) -> float:
    """Decay of the averaged weights for a training of this many steps."""
    return max(0.5, 1 - 1 / max(2.0, AVERAGED * steps))


class EMA:
    """`EMA(network)` starts at the network's values; `update` after each step, `swapped` to evaluate."""

    def __init__(self, network: nn.Module, *, decay: float = 0.999, warmup: bool = True) -> None:
        check_between("decay", decay, 0, 1, ends="[)")
        self.decay, self.warmup = decay, warmup
        averaged = floats(network)
        self.names = list(averaged)
        self.values, self.views = flat_copy(list(averaged.values()))
        self.updates = torch.zeros((), device=self.values.device)

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Update the averages with the network's current values."""
        now = [tensor.to(self.values.dtype) for tensor in self.current(network)]
        if not self.warmup:
            torch._foreach_lerp_(self.views, now, 1 - self.decay)
            return
        self.updates.add_(1)
        rate = 1 - torch.clamp((1 + self.updates) / (10 + self.updates), max=self.decay)
        steps = torch._foreach_sub(now, self.views)
        torch._foreach_mul_(steps, rate)
        torch._foreach_add_(self.views, steps)

    @torch.no_grad()
    def copy_to(self, network: nn.Module) -> None:
        """Write the averages over the network's values."""
        torch._foreach_copy_(self.current(network), self.views)

    @contextmanager
    def swapped(self, network: nn.Module) -> Iterator[nn.Module]:
        """A context in which the network has the averaged values; its own are restored afterwards, also after an error."""
        now = self.current(network)
        with torch.no_grad():
            kept = [tensor.clone() for tensor in now]
        self.copy_to(network)
        try:
            yield network
        finally:
            with torch.no_grad():
                torch._foreach_copy_(now, kept)

    def current(self, network: nn.Module) -> list[Tensor]:
        """The network's current values, in the order of the averages."""
        now = floats(network)
        if list(now) != self.names:
            other = sorted(set(now) ^ set(self.names))
            what = ", ".join(other[:4]) or "the order of its parameters"
            raise ValueError(f"the network differs from the one that was averaged in {what}")
        return list(now.values())

    def state_dict(self) -> dict[str, Tensor]:
        return {"updates": self.updates.clone(), **{n: v.clone() for n, v in zip(self.names, self.views, strict=True)}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        missing = [name for name in ("updates", *self.names) if name not in state]
        if missing:
            raise ValueError(f"the state lacks the average of {', '.join(missing[:4])}: it is from another network")
        self.updates.copy_(state["updates"])
        for name, view in zip(self.names, self.views, strict=True):
            view.copy_(state[name])


def floats(network: nn.Module) -> dict[str, Tensor]:
    """Floating-point parameters and buffers by name, each once."""
    named = chain(network.named_parameters(), network.named_buffers())
    return {name: tensor.detach() for name, tensor in named if tensor.is_floating_point()}


@torch.no_grad()
def flat_copy(tensors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """One float32 tensor with copies of all, and views of it in their shapes and, if dense, memory formats."""
    flat = torch.empty(sum(t.numel() for t in tensors), device=tensors[0].device)
    views = []
    for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
        dense = torch.empty_like(tensor)  # the same memory format, for fast foreach updates
        views.append(part.as_strided(dense.shape, dense.stride()).copy_(tensor))
    return flat, views
