"""What the heads share: the Module shell, the class weights, and the one step from plain logits to logits with a margin.

    logit_y  = plain_y + what the margin takes away          logit_k = plain_k for the other classes

The margin is there where labels are: for training, or for the loss on held-out data. Without labels (prediction)
the plain logits come out; a head in training mode asks for them, since forgetting them would train without a margin.
"""

from __future__ import annotations

import math
from dataclasses import fields

import torch
from torch import Tensor, nn

from mohs._core.validation import check_between
from mohs.margin import checked_labels


def with_target(logits: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """logits (N, K) with target (N,) in the labeled class's place."""
    return logits.scatter(1, labels.unsqueeze(1), target.unsqueeze(1).to(logits.dtype))  # (N, K)


def of_target(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (N, K) -> the labeled class's (N,)."""
    return logits.gather(1, labels.unsqueeze(1)).squeeze(1)


def indices(logits: Tensor, labels: Tensor, strength: float) -> Tensor:
    """Checked labels, ready for indexing; a row to ignore (-100) gets class 0's margin, which no loss then counts."""
    check_between("strength", strength, 0, 1)
    return checked_labels(logits, labels)


def become_head(head: nn.Module) -> nn.Parameter:
    """For `__post_init__` of every head: the dataclass becomes a Module. Returns class weights as `nn.Linear` would draw them."""
    nn.Module.__init__(head)
    sizes = {f.name: getattr(head, f.name) for f in fields(head)}  # type: ignore[arg-type]
    check_between("in_features", sizes["in_features"], 1)
    check_between("num_classes", sizes["num_classes"], 2)
    if "scale" in sizes:
        check_positive("scale", sizes["scale"])
    if "strength" in sizes:
        check_between("strength", sizes["strength"], 0, 1)
    weight = nn.Parameter(torch.empty(sizes["num_classes"], sizes["in_features"]))
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
    return weight


def needs_labels(head: nn.Module, labels: Tensor | None) -> None:
    """Raise where a head in training mode would silently leave its margin out."""
    if head.training and labels is None:
        raise ValueError(
            f"labels are needed while {type(head).__name__} is in training mode, for its margin: "
            "call head(features, labels), or head.eval() first to predict without them"
        )


def check_positive(name: str, value: float) -> None:
    """Raise, naming the argument and its value, unless 0 < value < ∞."""
    if not (isinstance(value, int | float) and 0 < value < float("inf")):
        raise ValueError(f"{name} must be above 0 and finite, got {value!r}")


def check_multiple(name: str, value: object) -> None:
    """Raise, naming the argument and its value, unless it is a whole number from 1 on."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} multiplies the angle and must be a whole number, 1 (no margin) or more, got {value!r}")
