"""The network's forward and backward pass as few fused kernels, by torch.compile, where a run asks for it (`compile = true`).

Where the step is a CUDA graph, it has less to do; where it is not, as with fp16 or `--no-graph`, the two passes become graphs
of their own (torch's CUDA-graph trees), which a GPU need not wait for kernel by kernel. Those share one pool of memory and write
each gradient where they wrote the last: they are for a run that trains alone, in one process, on whole batches. The first
steps take some seconds more, in which all this is made, for batches of the first shape that comes and for training alone: a
smaller last batch and every evaluation go through the network as it is.
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
    """`outputs` of this network, compiled for inputs of one shape; trees: the passes may become graphs of their own."""

    def __init__(self, network: Network) -> None:
        self.network, self.shape, self.trees = network, torch.Size(), False
        self.fast: Outputs | None = None

    def __call__(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if self.fast is None:
            mode = "reduce-overhead" if x.is_cuda and self.trees else "default"
            self.fast, self.shape = torch.compile(self.network.outputs, dynamic=False, mode=mode), x.shape
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)  # float32 was asked for
                warnings.filterwarnings("ignore", "The CUDA Graph is empty", UserWarning)  # torch's own first one, meant to be
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
                "run it without compile"
            ) from error
