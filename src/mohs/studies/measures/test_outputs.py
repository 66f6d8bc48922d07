"""What every measure begins with: what the network says of a part of the data, of all its examples or of some."""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples
from mohs.evaluate.outputs import Outputs
from mohs.train.predict import predict
from mohs.train.trained import Trained


def test_of(data: Data) -> Examples:
    """The test set; an error where there is none."""
    if data.test is None:
        raise DataError(f"{data.name} has no test set to measure on")
    return data.test


def said_of(trained: Trained, examples: Examples) -> Outputs:
    """Logits, features and class weights, on the CPU."""
    logits, features = predict(trained.network, examples)
    weight: Tensor = trained.network.head.weight.detach().cpu()  # type: ignore[operator]
    return Outputs(logits.float(), features, weight)


def some(examples: Examples, number: int | None) -> Examples:
    """All, or as many spread evenly over the set, whatever its order."""
    if number is None or number >= len(examples):
        return examples
    if number < 1:
        raise ValueError(f"examples must be at least 1, got {number}")
    return examples.take(torch.linspace(0, len(examples) - 1, number).round().long())


def pixels_of(examples: Examples) -> Tensor:
    """All images as one tensor; an error where inputs are no images."""
    if examples.kind != "images":
        raise DataError(f"{examples.name} holds features of shape {examples.shape}: this measure is of images")
    x = examples.inputs
    return x if isinstance(x, Tensor) else x[torch.arange(len(examples))]
