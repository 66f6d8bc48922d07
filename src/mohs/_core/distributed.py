"""The processes that share a job: which of them this is, and how they tell one another what they have."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch import distributed as dist


def ranks() -> tuple[int, int]:
    """This process's number and how many there are; (0, 1) where torch.distributed is not in use."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gathered(value: Any) -> list[Any]:
    """What every process passed here, in the order of ranks, on every process."""
    _, number = ranks()
    if number == 1:
        return [value]
    values: list[Any] = [None] * number
    dist.all_gather_object(values, value)
    return values


def add_over_ranks(value: Tensor) -> Tensor:
    """The tensor itself, holding the sum of what it held on every process."""
    if ranks()[1] > 1:
        dist.all_reduce(value)
    return value


def from_first(value: Any) -> Any:
    """What the first process passed here, on every process."""
    if ranks()[1] == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
