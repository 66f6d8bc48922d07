"""Validation of the arguments of evaluations: shapes, finite numbers, class indices; errors name the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.margin import INTEGERS, full_precision


def numbers(name: str, values: Any, *, dims: tuple[int, ...]) -> Tensor:
    """A tensor, array or list as a detached floating tensor (at least float32), finite, with one of these dimensions."""
    tensor = (values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))).detach()
    tensor = tensor.to(full_precision(tensor.dtype))
    if tensor.dim() not in dims:
        shapes = " or ".join({1: "(N,)", 2: "(N, K)"}[d] for d in dims)
        raise ValueError(f"{name} must have shape {shapes}, got {tuple(tensor.shape)}")
    if not len(tensor):
        raise DataError(f"{name} holds no rows: there is nothing to evaluate")
    bad = ~tensor.isfinite().reshape(len(tensor), -1).all(1)
    if bad.any():
        row = int(bad.int().argmax())
        raise DataError(f"{name}[{row}] holds NaN or infinity; {int(bad.sum())} row(s) do: leave them out or fix the model")
    return tensor


def probabilities(probs: Any) -> Tensor:
    """probs (N, K) with rows that sum to 1, or (N,) of one event; logits are refused."""
    tensor = numbers("probs", probs, dims=(1, 2))
    outside = ((tensor < -1e-6) | (tensor > 1 + 1e-6)).reshape(len(tensor), -1).any(1)
    if outside.any():
        row = int(outside.int().argmax())
        raise DataError(f"probs[{row}] is outside 0..1: pass probabilities, such as logits.softmax(1)")
    if tensor.dim() == 2:
        off = (tensor.sum(1) - 1).abs() > 1e-2
        if off.any():
            row = int(off.int().argmax())
            raise DataError(f"probs[{row}] sums to {float(tensor[row].sum()):.4g}, not 1: pass the probabilities of all classes")
    return tensor.clamp(0, 1)


def class_labels(labels: Any, *, count: int, classes: int, name: str = "labels", device: torch.device | None = None) -> Tensor:
    """labels (N,) as int64; raise unless there are `count`, each in 0..classes−1."""
    tensor = (labels if isinstance(labels, Tensor) else torch.as_tensor(np.asarray(labels))).detach()
    if tensor.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},), one per example, got {tuple(tensor.shape)}")
    if tensor.dtype not in (*INTEGERS, torch.bool):
        raise ValueError(f"{name} must be integer class indices, got {tensor.dtype}; convert them with .long()")
    tensor = tensor.long()
    wrong = (tensor < 0) | (tensor >= classes)
    if wrong.any():
        row = int(wrong.int().argmax())
        raise DataError(f"{name}[{row}] is {int(tensor[row])}, but there are {classes} classes, 0..{classes - 1}")
    return tensor if device is None else tensor.to(device)


def same_length(**named: Any) -> int:
    """The common number of rows, at least one; raise if they differ."""
    (first, head), *rest = named.items()
    for name, values in rest:
        if len(values) != len(head):
            raise ValueError(f"{name} has {len(values)} rows and {first} {len(head)}: both must describe the same examples")
    if not len(head):
        raise DataError(f"{first} holds no rows: there is nothing to evaluate")
    return len(head)
