"""Parts of the networks: convolution blocks, pooling to features, initial weights, and validation of shapes.

Every `body(shape)` takes the shape of one input, (C, H, W) or (D,), and validates it first: for an image that is too small
the error names the smallest size that fits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from mohs._core.validation import check_whole

Shape: TypeAlias = tuple[int, ...]
Body: TypeAlias = tuple[nn.Module, int]  # the module that gives the features, and their number

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "leaky_relu": lambda: nn.LeakyReLU(0.1, inplace=True),
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
}


def conv(
    inside: int, outside: int, size: int = 3, *, stride: int = 1, padding: int | None = None, act: str = "relu"
) -> nn.Sequential:
    """Convolution without bias, batch normalization, activation; "same" padding by default."""
    padding = size // 2 if padding is None else padding
    layer = nn.Conv2d(inside, outside, size, stride, padding, bias=False)
    return nn.Sequential(layer, BatchNorm(outside), ACTIVATIONS[act]())


class BatchNorm(nn.BatchNorm2d):
    """Batch normalization that counts batches only where momentum is None: this saves one GPU kernel per layer."""

    def forward(self, x: Tensor) -> Tensor:
        if self.momentum is None or self.running_mean is None:
            return super().forward(x)
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps)


class Times(nn.Module):
    """Multiplication by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class GlobalMax(nn.Module):
    """(N, C, H, W) -> (N, C), the maximum of each map; unlike adaptive max pooling its gradient is deterministic."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax((2, 3))


def global_mean() -> nn.Sequential:
    """(N, C, H, W) -> (N, C), the mean of each map."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


def with_dropout(layers: list[nn.Module], dropout: float) -> nn.Sequential:
    """The layers in sequence, with dropout of the features if it is positive."""
    return nn.Sequential(*layers, *([nn.Dropout(dropout)] if dropout else []))


@torch.no_grad()
def flat_size(layers: nn.Module, shape: Shape) -> int:
    """Number of outputs of the layers for one input, found by running them; leaves random state and layers unchanged."""
    was_training = layers.training
    made: Tensor = layers.eval()(torch.zeros(1, *shape))
    layers.train(was_training)
    return made.numel()


def he_normal(body: nn.Module) -> nn.Module:
    """Weights of convolutions and linear layers from N(0, 2/fan_in), biases 0: He et al. (ICCV 2015)."""
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return body


def image_shape(net: str, shape: Shape, *, smallest: int) -> tuple[int, int, int]:
    """(C, H, W), or an error that names the shapes this network takes."""
    if len(shape) != 3:
        raise ValueError(
            f"{net} takes images (C, H, W), but one input has the shape {tuple(shape)}: use linear or mlp for features"
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise ValueError(
            f"{net} takes images of at least {smallest}×{smallest} pixels, got {height}×{width}: "
            "enlarge them, or use a net for smaller images such as cnn (from 4×4), mlp or linear"
        )
    return channels, height, width


def check_dropout(dropout: float) -> None:
    """Validate that dropout is at least 0 and below 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and under 1, got {dropout!r}")


def check_fields(piece: object) -> None:
    """Validate a model's hyper-parameters by their types: integers from 1 on, and dropout below 1."""
    for field in dataclasses.fields(piece):  # type: ignore[arg-type]
        value = getattr(piece, field.name)
        if field.name == "dropout":
            check_dropout(value)
        elif field.type == "int" or (field.type == "int | None" and value is not None):
            check_whole(field.name, value)


def numbers_in(shape: Shape) -> int:
    """Number of entries of one input."""
    return math.prod(shape)
