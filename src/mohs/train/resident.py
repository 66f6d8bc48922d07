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
    own: Copies = _copies.setdefault(inputs, {})  # type: ignore[no-untyped-call]
    key = (device, inputs._version)
    copy = own[key]() if key in own else None
    if copy is None:
        copy = inputs.to(device)
        own[key] = weakref.ref(copy)
    return copy


def fits(inputs: Tensor, device: torch.device) -> bool:
    """Whether the inputs may live on the device, where they are not there already."""
    if device.type != "cuda" or inputs.device == device:
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return inputs.numel() * inputs.element_size() < ROOM * free
