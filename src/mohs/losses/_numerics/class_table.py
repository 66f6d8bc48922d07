"""Tables by class that a loss reads: counts (K,), transition and soft-label matrices (K, K).

A Module holds its table as a buffer that moves with `.to(device)` and is not saved (it is a setting, shown by the repr);
fractions are held in the default dtype as `weight` is, whole numbers stay whole.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor


def hold_table(loss: nn.Module, name: str) -> Tensor:
    """For `__post_init__` after `become_module`: the field (a tensor or nested lists) becomes a buffer; returns it."""
    table = torch.as_tensor(loss.__dict__.pop(name)).detach()
    table = table.to(torch.get_default_dtype()) if table.is_floating_point() else table
    loss.register_buffer(name, table, persistent=False)
    return table


def check_table(name: str, table: Tensor, expected: tuple[int, ...]) -> None:
    """Raise unless the table has this shape, which is that of the logits' classes."""
    if table.shape != expected:
        raise ValueError(
            f"{name} must have shape {expected} for logits with {expected[0]} classes, got shape {tuple(table.shape)}"
        )


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """table (K, K), index (N, ...) of classes -> each example's row, over the classes: (N, K, ...)."""
    return table[index].movedim(-1, 1)


def soft_cross_entropy(log_p: Tensor, target: Tensor) -> Tensor:
    """−Σ_k t_k log p_k, where 0 log 0 = 0: log_p and target (N, K, ...) -> (N, ...)."""
    return -(target * log_p).masked_fill(target == 0, 0.0).sum(1)


def is_transformed(tensor: Tensor) -> bool:
    """Whether a torch.func transform is running, in which a Module's state cannot be written; torch.compile writes it."""
    return not torch.compiler.is_compiling() and is_functorch_wrapped_tensor(tensor)
