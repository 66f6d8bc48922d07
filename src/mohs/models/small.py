"""Small networks for features and small images: logistic regression, multilayer perceptrons, a plain CNN.

    linear   features(x) = x                          the head alone: logistic regression, or a linear probe of embeddings
    mlp      D - hidden - ... - hidden                one activation after each layer
    toy      D - 2                                    the 3-2-2 network of AVH's Figures 3 and 7 on points of the sphere
    cnn      [two 3×3 convolutions, pool] × stages    width, 2 width, 4 width, ...; 4×4 pixels and up

Images are flattened for the first three. The toy's activation is not stated in the paper; a leaky ReLU cannot die and
leaves the norm of the features free, which the figures show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from torch import nn

from mohs._core.validation import check_choice, check_whole
from mohs.models.layers import (
    ACTIVATIONS,
    Body,
    Shape,
    check_fields,
    conv,
    global_mean,
    image_shape,
    numbers_in,
    with_dropout,
)


def perceptron(sizes: Sequence[int], *, activation: str = "relu", dropout: float = 0.0) -> nn.Sequential:
    """sizes[0] inputs, then a layer of each further size, with the activation (and dropout) after each."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inside, outside in pairwise(sizes):
        layers += [nn.Linear(inside, outside), ACTIVATIONS[activation](), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """The head alone, on flattened inputs."""

    formula: ClassVar[str] = "the head alone"
    purpose: ClassVar[str] = "embeddings, and the simplest baseline: logistic regression"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        return with_dropout([nn.Flatten()], self.dropout), numbers_in(shape)


@dataclass(frozen=True, kw_only=True)
class MLP:
    """Fully connected layers; hidden: the width of the one hidden layer, or a list of widths."""

    formula: ClassVar[str] = "fully connected, D - hidden - ..."
    purpose: ClassVar[str] = "tables and other features that are not linearly separable"
    hidden: int | Sequence[int] = 128
    activation: str = "relu"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not self.widths:
            raise ValueError(f"hidden must be a width or a list of widths, got {self.hidden!r}: see linear")
        for width in self.widths:
            check_whole("hidden", width)
        check_choice("activation", self.activation, list(ACTIVATIONS))
        check_fields(self)

    @property
    def widths(self) -> list[int]:
        return [self.hidden] if isinstance(self.hidden, int) else list(self.hidden)

    def body(self, shape: Shape) -> Body:
        sizes = [numbers_in(shape), *self.widths]
        return perceptron(sizes, activation=self.activation, dropout=self.dropout), sizes[-1]


@dataclass(frozen=True, kw_only=True)
class Toy:
    """One hidden layer of width 2, so that features can be drawn; 3-2-2 with three inputs and two classes."""

    formula: ClassVar[str] = "fully connected, D - 2"
    purpose: ClassVar[str] = "AVH's picture of angles and norms on points of the sphere"
    activation: str = "leaky_relu"

    def __post_init__(self) -> None:
        check_choice("activation", self.activation, list(ACTIVATIONS))

    def body(self, shape: Shape) -> Body:
        return perceptron([numbers_in(shape), 2], activation=self.activation), 2


@dataclass(frozen=True, kw_only=True)
class CNN:
    """Stages of two 3×3 convolutions with pooling between them; two stages at 8×8 pixels, four from 32×32 on."""

    formula: ClassVar[str] = "stages of two 3×3 convolutions, width to 4 width"
    purpose: ClassVar[str] = "images of 4 to 64 pixels in seconds to minutes on a CPU"
    width: int = 16
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        inside, height, width = image_shape("cnn", shape, smallest=4)
        stages = min(4, max(2, min(height, width).bit_length() - 2))  # the last map keeps 4×4 pixels or so
        layers: list[nn.Module] = []
        for stage in range(stages):
            outside = self.width * min(2**stage, 4)
            layers += [*([nn.MaxPool2d(2)] if stage else []), conv(inside, outside), conv(outside, outside)]
            inside = outside
        return with_dropout([*layers, global_mean()], self.dropout), inside
