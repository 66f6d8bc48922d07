"""Evaluation mode as a context manager; on exit the model's state is restored, also after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from mohs._core.device import device_of


@contextmanager
def eval_mode(
    model: Callable[..., Any], *, device: str | torch.device | None = None, freeze: bool = False
) -> Iterator[torch.device | None]:
    """Put a model in evaluation mode; restore its modes, device and gradient flags afterwards.

    Args:
        model: A Module; any other callable is unchanged.
        device: Device to run the model on; None: its current device.
        freeze: Turn off the gradients of its parameters, for gradients with respect to inputs alone.

    Yields:
        The model's device; None if it is not a Module or has no tensors.
    """
    if not isinstance(model, nn.Module):
        yield None
        return
    modes = {part: part.training for part in model.modules()}
    trainable = [parameter for parameter in model.parameters() if freeze and parameter.requires_grad]
    home = device_of(model)
    model.eval()
    try:
        for parameter in trainable:
            parameter.requires_grad_(False)
        if device is not None:
            model.to(device)
        yield home if device is None else torch.device(device)
    finally:
        if device is not None and home is not None:
            model.to(home)
        for parameter in trainable:
            parameter.requires_grad_(True)
        for part, mode in modes.items():
            part.training = mode
