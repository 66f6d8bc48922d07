"""Launch a Triton kernel with little host overhead: a kernel that is already compiled for such arguments is called directly.

Triton inspects every argument at each call, which for small batches takes longer than the kernel does. Here the compiled
kernel is looked up by what Triton specializes on: dtypes, integers and compile-time constants, which are the same in all calls
of one kind, and the alignment of the pointers.
"""

from __future__ import annotations

from importlib.metadata import version
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import Tensor

from mohs.margin._choose import ENABLED, INTERPRETED

DIRECT = ENABLED and version("triton").startswith("3.6.")
_launchers: dict[Any, Launcher] = {}
_MOST = 4096  # launchers remembered
Given = tuple[Tensor | int | None, ...]


class Launcher:
    """A kernel with its grid, integers and compile-time constants, to be called with tensors of the same dtypes each time.

    An argument that is None is None in every call. A number instead of a tensor means that row of `left`, a contiguous tensor of
    two dimensions: many arrays from one allocation, without the cost of creating a view of each.
    """

    __slots__ = ("_given", "_ready", "_rows", "constants", "integers", "kernel", "programs", "warps")

    def __init__(self, kernel: Any, programs: int, warps: int, integers: tuple[int, ...], constants: tuple[Any, ...]) -> None:
        self.kernel, self.programs, self.warps, self.integers, self.constants = kernel, programs, warps, integers, constants
        self._ready: dict[Any, tuple[Any, Any, Any]] = {}  # by device, and by alignment if a pointer is not aligned
        self._given: list[int] = []  # positions of the tensors, in calls without `left`
        self._rows: tuple[list[int], list[tuple[int, int]]] = ([], [])  # in calls with `left`; and the offsets of its rows

    def __call__(self, tensors: Given, floats: tuple[float, ...] = (), left: Tensor | None = None) -> None:
        """Run the kernel, whose parameters are tensors, integers, floats and constants; the first is a tensor or a row."""
        if INTERPRETED:
            self.kernel[(self.programs,)](*with_rows(tensors, left), *self.integers, *floats, *self.constants)
            return
        device = (tensors[0] if left is None else left).get_device()  # type: ignore[union-attr]
        if device != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                self(tensors, floats, left)
            return
        # addresses as numbers: passing a tensor would make the launcher query the driver
        addresses: list[int | None] = [None] * len(tensors)
        bits = 0
        if left is None:
            given = self._given or self._places(tensors)
        else:
            given, rows = self._rows if self._rows[0] else self._places_and_rows(tensors, left)
            begin = left.data_ptr()
            for place, after in rows:
                addresses[place] = address = begin + after
                bits |= address
        for place in given:
            addresses[place] = address = tensors[place].data_ptr()  # type: ignore[union-attr]
            bits |= address
        key = (device, *(a and a % 16 == 0 for a in addresses)) if bits & 15 else device
        ready = self._ready.get(key)
        if ready is None:
            arguments = (*with_rows(tensors, left), *self.integers, *floats, *self.constants)
            compiled = self.kernel[(self.programs,)](*arguments, num_warps=self.warps)
            self._ready[key] = prepared(compiled)
            return
        run, function, fixed = ready
        run(
            self.programs, 1, 1, torch._C._cuda_getCurrentRawStream(device), function, *fixed,
            *addresses, *self.integers, *floats, *self.constants,
        )  # fmt: skip

    def _places(self, tensors: Given) -> list[int]:
        self._given = [place for place, given in enumerate(tensors) if isinstance(given, Tensor)]
        return self._given

    def _places_and_rows(self, tensors: Given, left: Tensor) -> tuple[list[int], list[tuple[int, int]]]:
        step = left.stride(0) * left.element_size()
        places = [place for place, given in enumerate(tensors) if isinstance(given, Tensor)]
        self._rows = (places, [(place, given * step) for place, given in enumerate(tensors) if isinstance(given, int)])
        return self._rows


def with_rows(tensors: Given, left: Tensor | None) -> tuple[Tensor | None, ...]:
    """The tensors, with rows of `left` where there are numbers."""
    return tuple([left[given] if isinstance(given, int) and left is not None else given for given in tensors])  # type: ignore[misc]


def prepared(compiled: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """What launches a compiled kernel, its handle, and the arguments that follow: metadata, and hooks that are not used.

    Triton 3.6 calls its launcher, a function in C, by a function in Python that allocates memory for kernels that need it.
    """
    run, hooks = compiled.run, (compiled.packed_metadata, None, None, None)
    direct = getattr(run, "launch", None)
    if DIRECT and isinstance(direct, BuiltinFunctionType) and run.global_scratch_size == 0 and run.profile_scratch_size == 0:
        return direct, compiled.function, (run.launch_cooperative_grid, run.launch_pdl, None, None, *hooks)
    return run, compiled.function, hooks


def launch(
    kernel: Any,
    programs: int,
    warps: int,
    tensors: tuple[Tensor | None, ...],
    integers: tuple[int, ...],
    floats: tuple[float, ...],
    constants: tuple[Any, ...],
) -> None:
    """Run a kernel through the cached `Launcher` for such arguments.

    Args:
        kernel: A function under `triton.jit`, of a module.
        programs: Size of the grid.
        warps: Warps of a program.
        tensors, integers, floats, constants: The arguments; the first tensor is not None.
    """
    key = (id(kernel), programs, warps, integers, constants, *[t if t is None else t.dtype for t in tensors])
    launcher = _launchers.get(key)  # Triton's own hash of a kernel is slow, hence its id
    if launcher is None:
        if len(_launchers) >= _MOST:
            _launchers.clear()
        launcher = _launchers[key] = Launcher(kernel, programs, warps, integers, constants)
    launcher(tensors, floats)
