"""Inputs on the device: brought there once, however many runs train on them or are tested on them.

A copy lives as long as one of the runs holds it; inputs that were changed in place since are brought over anew.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

ROOM = 0.5  # of the free memory of a GPU, for data that live there

Copies = dict[tuple[torch.device, int], "weakref.ref[Tensor]"]  # by the device and the version of the inputs
_copies: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def on_device(inputs: Tensor, device: torch.device) -> Tensor:
    """These inputs on this device: themselves, the copy that is there already, or a new one."""
    if inputs.device == device:
        return inputs
    copy = copy_on(inputs, device)
    if copy is None:
        copy = inputs.to(device)
        own: Copies = _copies.setdefault(inputs, {})  # type: ignore[no-untyped-call]
        own[device, inputs._version] = weakref.ref(copy)
    return copy


def copy_on(inputs: Tensor, device: torch.device) -> Tensor | None:
    """The copy of these inputs that is on this device, None where there is none."""
    own: Copies = _copies.get(inputs, {})  # type: ignore[no-untyped-call]
    found = own.get((device, inputs._version))
    return None if found is None else found()


def fits(inputs: Tensor, device: torch.device) -> bool:
    """Whether the inputs may live on the device, or do already."""
    if device.type != "cuda" or inputs.device == device or copy_on(inputs, device) is not None:
        return True
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # what torch keeps for what comes
    return inputs.numel() * inputs.element_size() < ROOM * free
