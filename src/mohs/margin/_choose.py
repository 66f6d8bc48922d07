"""Whether a call runs on the Triton kernels or on the plain PyTorch version.

The kernels take CUDA tensors in eager mode and under torch.compile. Everything else (CPU, other devices, tensor subclasses,
torch.func transforms, forward-mode derivatives) runs without them, as does everything with `MOHS_KERNELS=off` or
without Triton. With `TRITON_INTERPRET=1` the kernels also take CPU tensors: slow, and only for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor, peek_interpreter_stack
from torch.autograd import forward_ad

ENABLED = os.environ.get("MOHS_KERNELS", "on").lower() not in ("off", "0", "false") and find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
Plain = Callable[[Tensor], Tensor]  # logits -> the same result by ordinary differentiable operations
SHORT = (torch.float32, torch.bfloat16, torch.float16)
_keep_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)  # private; absent in some versions


def takes(logits: Tensor) -> bool:
    """Whether the kernels take this tensor."""
    if not (logits.is_cuda or (INTERPRETED and logits.is_cpu)) or not ENABLED:
        return False
    if torch.compiler.is_compiling():
        return logits.is_cuda
    return ordinary(logits) and (INTERPRETED or _capable(logits.get_device()))


def ordinary(tensor: Tensor) -> bool:
    """Whether the tensor is not of a subclass, in a torch.func transform or in a forward-mode derivative."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and not is_functorch_wrapped_tensor(tensor)
        and not is_legacy_batchedtensor(tensor)
        and forward_ad._current_level < 0
    )


def eager(*tensors: Tensor) -> bool:
    """Whether operations on these tensors run at once and are differentiated by reverse mode alone, so that they may be fused."""
    return not torch.compiler.is_compiling() and peek_interpreter_stack() is None and all(map(ordinary, tensors))


@cache
def _capable(device: int) -> bool:
    """Whether Triton compiles for this GPU."""
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (7, 5)


def needs_plain(grad: Tensor) -> bool:
    """Whether the running backward pass is differentiated itself (create_graph=True) or vectorized (is_grads_batched=True)."""
    return torch.is_grad_enabled() or is_legacy_batchedtensor(grad) or is_functorch_wrapped_tensor(grad)


def plain_gradient(plain: Plain, logits: Tensor, grad: Tensor) -> Tensor:
    """The gradient of `plain` at the saved logits, as a differentiable function of them and of the gradient of its output."""
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        return torch.autograd.grad(plain(logits), logits, grad, create_graph=twice)[0]


def keeps_graph() -> bool:
    """Whether the running backward pass keeps the saved tensors (retain_graph), so that their memory must not be reused."""
    return True if _keep_graph is None else bool(_keep_graph())


def apply_eagerly(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply` without its Python overhead for torch.func transforms, when none is active."""
    if torch._C._are_functorch_transforms_active():
        return function.apply(*arguments)
    return super(torch.autograd.Function, function).apply(*arguments)  # type: ignore[misc]
