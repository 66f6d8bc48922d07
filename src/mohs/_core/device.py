"""The choice of a device: what "auto", "cpu", "cuda" and "cuda:1" mean on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """The torch device for a user's choice.

    Args:
        device: "auto" (a GPU if there is one, else the CPU), "cpu", "cuda", one GPU such as "cuda:1", or a torch device.

    Raises:
        ValueError: The word is unknown, or names a GPU that torch does not see.
    """
    if isinstance(device, torch.device) and device.type not in ("cpu", "cuda"):
        return device  # such as mps: the caller decides
    name = str(device)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (name != kind and not index.isdecimal()):
        raise ValueError(f"device must be auto, cpu, cuda or one GPU such as cuda:1, got {name!r}")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"device={name}, but torch sees no GPU: use device=cpu, or run `mohs doctor` to see why")
        if index and int(index) >= torch.cuda.device_count():
            raise ValueError(f"device={name}, but torch sees only {torch.cuda.device_count()} GPU(s), numbered from 0")
    return torch.device(name)


def device_of(model: Callable[..., Any]) -> torch.device | None:
    """The device of a Module's first parameter or buffer; None if it has neither, and for any other callable."""
    if not isinstance(model, nn.Module):
        return None
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), None)
