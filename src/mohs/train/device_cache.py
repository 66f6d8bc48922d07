"""Inputs cached on the device: copied once, however many runs train or are evaluated on them.

A copy lives as long as a run holds it; inputs that have been modified in place are copied again.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

ROOM = 0.5  # share of a GPU's free memory that data may use

Copies = dict[tuple[torch.device, int], "weakref.ref[Tensor]"]  # by device and version of the inputs
_copies: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def on_device(inputs: Tensor, device: torch.device) -> Tensor:
    """The inputs on the device: themselves, a cached copy, or a new one."""
    if inputs.device == device:
        return inputs
    copy = copy_on(inputs, device)
    if copy is None:
        copy = inputs.to(device)
        own: Copies = _copies.setdefault(inputs, {})  # type: ignore[no-untyped-call]
        own[device, inputs._version] = weakref.ref(copy)
    return copy


def copy_on(inputs: Tensor, device: torch.device) -> Tensor | None:
    """The cached copy of the inputs on the device; None if there is none."""
    own: Copies = _copies.get(inputs, {})  # type: ignore[no-untyped-call]
    found = own.get((device, inputs._version))
    return None if found is None else found()


def fits(inputs: Tensor, device: torch.device) -> bool:
    """Whether the inputs fit on the device, or are there already."""
    if device.type != "cuda" or inputs.device == device or copy_on(inputs, device) is not None:
        return True
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # cached by torch's allocator
    return inputs.numel() * inputs.element_size() < ROOM * free
