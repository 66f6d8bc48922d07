"""The network's forward and backward pass as few fused kernels, by torch.compile, where a run asks for it (`compile = true`).

A step that is not a CUDA graph spends most of its time launching small kernels one by one: fewer of them, less time. The
first step takes some seconds more, in which they are made. They are made for batches of the first shape that comes and for
training alone: a smaller last batch and every evaluation go through the network as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs.errors import RunError
from mohs.models.network import Network


class Compiled:
    """`outputs` of this network, compiled for inputs of one shape."""

    def __init__(self, network: Network) -> None:
        self.network, self.shape = network, torch.Size()
        self.fast = torch.compile(network.outputs, dynamic=False)

    def __call__(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self.shape = self.shape or x.shape
        if x.shape != self.shape:
            return self.network.outputs(x, labels)
        try:
            return self.fast(x, labels)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = " ".join(str(error).split("\n")[:2])
            raise RunError(
                f"the network could not be compiled ({reason}): torch.compile needs a C++ compiler, and on a GPU Triton; "
                "run it without compile"
            ) from error
