"""Evaluation mode for a while: a module looked at is left as it was found, after an error too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[torch.device]:
    """The module and all its parts in evaluation mode, in the modes they were in afterwards; gives the module's device."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield device_of(module)
    finally:
        for part, mode in modes.items():
            part.training = mode


def device_of(module: nn.Module) -> torch.device:
    """Where the module's first parameter or buffer is; the CPU where it has none."""
    return next((tensor.device for tensor in (*module.parameters(), *module.buffers())), torch.device("cpu"))
