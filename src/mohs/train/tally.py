"""What an epoch adds up to: the mean of every part of the objective and the accuracy, kept on the device until asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mohs._core.distributed import add_over_ranks


class Tally:
    """Sums over the examples of an epoch; `add` never waits for the device."""

    def __init__(self, device: torch.device) -> None:
        self.names: list[str] = []
        self.sums = torch.zeros(0, dtype=torch.float64, device=device)
        self.one = torch.ones((), device=device)

    def add(self, parts: Mapping[str, Any], logits: Tensor, labels: Tensor) -> None:
        """One batch: the objective's parts (its weights, which are no tensors or named so, are left out), logits and labels."""
        values = {name: value for name, value in parts.items() if isinstance(value, Tensor) and not name.endswith("_weight")}
        if not self.names:
            self.names = list(values)
            self.sums = torch.zeros(len(values) + 2, dtype=torch.float64, device=logits.device)
        right = (logits.argmax(1) == labels).float().mean()
        self.sums.add_(torch.stack([*(value.float() for value in values.values()), right, self.one]), alpha=len(labels))

    def so_far(self) -> dict[str, float]:
        """This process's means since the epoch began; waits for the device."""
        *values, right, count = self.sums.tolist() if self.names else (0.0, 0.0)
        means = [value / max(count, 1) for value in (*values, right)]
        return dict(zip((*self.names, "accuracy"), means, strict=True))

    def close(self) -> dict[str, float]:
        """The means over the epoch, over all processes; what follows starts anew."""
        add_over_ranks(self.sums)
        made = self.so_far()
        self.sums.zero_()
        return made
