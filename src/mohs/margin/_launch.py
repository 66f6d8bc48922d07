"""Launch a Triton kernel at little cost to the host: a kernel already compiled for such arguments is called directly.

Triton inspects every argument at each call, which for small batches takes longer than the kernel does. Here the compiled
kernel is looked up by all that Triton specializes on: dtypes, alignment of pointers, integers and compile-time constants.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mohs.margin._choose import INTERPRETED

_compiled: dict[Any, Any] = {}
_MOST = 4096  # kernels remembered: one for each shape


def launch(
    kernel: Any,
    programs: int,
    warps: int,
    tensors: tuple[Tensor | None, ...],
    integers: tuple[int, ...],
    floats: tuple[float, ...],
    constants: tuple[Any, ...],
    given: tuple[Tensor | None, ...],
) -> None:
    """Run a kernel whose parameters are tensors, integers, floats and compile-time constants, in this order.

    Args:
        kernel: A function under `triton.jit`, of a module.
        programs: Size of the grid.
        warps: Warps of a program.
        tensors, integers, floats, constants: The arguments; the first tensor is not None.
        given: The tensors among the arguments whose dtype or alignment may vary from call to call.
    """
    if INTERPRETED:
        kernel[(programs,)](*tensors, *integers, *floats, *constants)
        return
    device = tensors[0].get_device()  # type: ignore[union-attr]
    if device != torch._C._cuda_getDevice():
        with torch.cuda.device(device):
            launch(kernel, programs, warps, tensors, integers, floats, constants, given)
        return
    kinds = [t if t is None else (t.dtype, t.data_ptr() % 16) for t in given]
    key = (id(kernel), device, warps, integers, constants, *kinds)  # Triton's own hash of a kernel is slow
    ready = _compiled.get(key)
    if ready is None:
        if len(_compiled) >= _MOST:
            _compiled.clear()
        _compiled[key] = kernel[(programs,)](*tensors, *integers, *floats, *constants, num_warps=warps)
        return
    addresses = [t if t is None else t.data_ptr() for t in tensors]  # of a tensor, the driver would be asked for it
    ready.run(
        programs, 1, 1, torch._C._cuda_getCurrentRawStream(device), ready.function, ready.packed_metadata, None, None, None,
        *addresses, *integers, *floats, *constants,
    )  # fmt: skip
