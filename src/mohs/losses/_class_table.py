"""Per-class tables that a loss reads: counts (K,), transition and soft-label matrices (K, K).

A Module holds its table as a buffer that moves with `.to(device)` and is not in the `state_dict` (it is a setting, shown by
the repr). Floating-point tables are converted to the default dtype; integer tables stay integer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def number_table(name: str, given: Any) -> Tensor:
    """A table as a tensor: as given, or from an array or nested lists."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be a tensor, an array or nested lists of numbers, got {given!r}") from error


def hold_table(loss: nn.Module, name: str) -> Tensor:
    """Turn the field `name` (a tensor or nested lists) into a buffer and return it; for `setup` of a loss Module."""
    table = number_table(name, loss.__dict__.pop(name)).detach()
    table = table.to(torch.get_default_dtype()) if table.is_floating_point() else table
    loss.register_buffer(name, table, persistent=False)
    return table


def check_table(name: str, table: Tensor, expected: tuple[int, ...]) -> None:
    """Validate the table's shape against the number of classes of the logits."""
    if table.shape != expected:
        raise ValueError(
            f"{name} must have shape {expected} for logits with {expected[0]} classes, got shape {tuple(table.shape)}"
        )


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """table (K, K), index (N, ...) of classes -> each example's row of the table (N, K, ...)."""
    return table[index].movedim(-1, 1)


def soft_cross_entropy(log_p: Tensor, target: Tensor) -> Tensor:
    """−Σ_k t_k log p_k, where 0 log 0 = 0: log_p and target (N, K, ...) -> (N, ...)."""
    return -(target * log_p).masked_fill(target == 0, 0.0).sum(1)
