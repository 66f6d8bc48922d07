"""Means over an epoch of every part of the objective and of the accuracy, summed on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mohs._core.distributed import add_over_ranks


class EpochMeans:
    """Sums over the examples of an epoch; `add` needs no host synchronization."""

    def __init__(self, device: torch.device) -> None:
        self.names: list[str] = []
        self.sums = torch.zeros(0, dtype=torch.float64, device=device)
        self.one = torch.ones((), device=device)

    def add(self, parts: Mapping[str, Any], logits: Tensor, labels: Tensor) -> None:
        """Add one batch: the objective's parts (except its weights), logits and labels."""
        values = {name: value for name, value in parts.items() if isinstance(value, Tensor) and not name.endswith("_weight")}
        if not self.names:
            self.names = list(values)
            self.sums = torch.zeros(len(values) + 2, dtype=torch.float64, device=logits.device)
        correct = (logits.argmax(1) == labels).float().mean()
        self.sums.add_(torch.stack([*(value.float() for value in values.values()), correct, self.one]), alpha=len(labels))

    def so_far(self) -> dict[str, float]:
        """This process's means since the epoch began; synchronizes with the device."""
        *values, correct, count = self.sums.tolist() if self.names else (0.0, 0.0)
        means = [value / max(count, 1) for value in (*values, correct)]
        return dict(zip((*self.names, "accuracy"), means, strict=True))

    def close(self) -> dict[str, float]:
        """The means over the epoch and all processes; the sums are reset."""
        add_over_ranks(self.sums)
        means = self.so_far()
        self.sums.zero_()
        return means
