"""Shared by measures: the test set or a subset of it, and the network's outputs on it."""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples
from mohs.evaluate.outputs import Outputs, predict
from mohs.train.trained import Trained


def test_of(data: Data) -> Examples:
    """The test set; an error if the data have none."""
    if data.test is None:
        raise DataError(f"{data.name} has no test set to measure on")
    return data.test


def outputs_of(trained: Trained, examples: Examples) -> Outputs:
    """Logits, features and class weights of the network, on the CPU."""
    out = predict(trained.network, examples)
    return Outputs(out.logits.float(), out.features, out.weight)


def subset(examples: Examples, number: int | None) -> Examples:
    """`number` examples spread evenly over the set; None: all."""
    if number is None or number >= len(examples):
        return examples
    if number < 1:
        raise ValueError(f"examples must be at least 1, got {number}")
    return examples.take(torch.linspace(0, len(examples) - 1, number).round().long())


def pixels_of(examples: Examples) -> Tensor:
    """All images as one tensor; an error for other inputs."""
    if examples.kind != "images":
        raise DataError(f"{examples.name} holds features of shape {examples.shape}: this measure needs images")
    x = examples.inputs
    return x if isinstance(x, Tensor) else x[torch.arange(len(examples))]
