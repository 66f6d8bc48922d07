"""Processes of torch.distributed: this one's rank, and how values are gathered, summed and broadcast."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch import distributed as dist


def ranks() -> tuple[int, int]:
    """Rank and world size; (0, 1) without torch.distributed."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gathered(value: Any) -> list[Any]:
    """The values of all processes, in the order of ranks, on every process."""
    _, number = ranks()
    if number == 1:
        return [value]
    values: list[Any] = [None] * number
    dist.all_gather_object(values, value)
    return values


def add_over_ranks(value: Tensor) -> Tensor:
    """Sum the tensor over all processes, in place."""
    if ranks()[1] > 1:
        dist.all_reduce(value)
    return value


def from_first(value: Any) -> Any:
    """The first process's value, on every process."""
    if ranks()[1] == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
