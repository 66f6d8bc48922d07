"""Launch a Triton kernel at little cost to the host: a kernel already compiled for such arguments is called directly.

Triton inspects every argument at each call, which for small batches takes longer than the kernel. Here the compiled kernel
is looked up by what Triton specializes on: dtypes, alignment of pointers, integers that are 1 or multiples of 16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mohs.margin._choose import INTERPRETED

_compiled: dict[Any, Any] = {}
_LARGE = 2**31 - 1


def launch(
    kernel: Any,
    programs: int,
    warps: int,
    tensors: tuple[Tensor, ...],
    integers: tuple[int, ...],
    floats: tuple[float, ...],
    constants: tuple[Any, ...],
) -> None:
    """Run a kernel whose parameters are tensors, integers, floats and compile-time constants, in this order."""
    device = tensors[0].device
    if INTERPRETED:
        kernel[(programs,)](*tensors, *integers, *floats, *constants)
    elif device.index == torch.cuda.current_device():
        _launch(kernel, programs, warps, tensors, integers, floats, constants, device.index)
    else:
        with torch.cuda.device(device):
            _launch(kernel, programs, warps, tensors, integers, floats, constants, device.index)


def _launch(
    kernel: Any,
    programs: int,
    warps: int,
    tensors: tuple[Tensor, ...],
    integers: tuple[int, ...],
    floats: tuple[float, ...],
    constants: tuple[Any, ...],
    device: int,
) -> None:
    key = (
        kernel,
        device,
        warps,
        constants,
        tuple([(t.dtype, t.data_ptr() % 16 == 0) for t in tensors]),
        tuple([-1 if n == 1 else (n % 16 == 0) + 2 * (n > _LARGE) for n in integers]),
    )
    ready = _compiled.get(key)
    if ready is None:
        _compiled[key] = kernel[(programs,)](*tensors, *integers, *floats, *constants, num_warps=warps)
    else:
        ready[(programs, 1, 1)](*tensors, *integers, *floats, *constants)
