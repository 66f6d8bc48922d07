"""The network's forward and backward pass compiled by torch.compile, for runs with `compile = true`.

A captured step (CUDA graph) then has fewer kernels. Without one, as with fp16 or `--no-graph`, the two passes become separate
CUDA graphs (torch's CUDA-graph trees), which saves launch time. Those share a memory pool and write each gradient to the same
place: they need a run that trains alone, in one process, on whole batches. Compiling takes some seconds in the first steps. Only
training batches of the first shape are compiled: a smaller last batch and evaluations run eagerly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from mohs._core.errors import RunError
from mohs.models.network import Network

Outputs = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Compiled:
    """`outputs` of this network, compiled for inputs of one shape; trees: whether to use CUDA-graph trees."""

    def __init__(self, network: Network) -> None:
        self.network, self.shape, self.trees = network, torch.Size(), False
        self.fast: Outputs | None = None

    def __call__(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if self.fast is None:
            mode = "reduce-overhead" if x.is_cuda and self.trees else "default"
            self.fast, self.shape = torch.compile(self.network.outputs, dynamic=False, mode=mode), x.shape
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)  # float32 is intended
                warnings.filterwarnings("ignore", "The CUDA Graph is empty", UserWarning)  # from the warm-up of torch's graphs
                return self._compiled(x, labels)
        return self._compiled(x, labels) if x.shape == self.shape else self.network.outputs(x, labels)

    def _compiled(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        assert self.fast is not None
        try:
            return self.fast(x, labels)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = " ".join(str(error).split("\n")[:2])
            raise RunError(
                f"the network could not be compiled ({reason}): torch.compile needs a C++ compiler, and on a GPU Triton; "
                "train without compile"
            ) from error
