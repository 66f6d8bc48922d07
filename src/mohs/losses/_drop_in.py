"""The base of every loss Module, which makes it a drop-in replacement for `nn.CrossEntropyLoss`.

A Module takes the same arguments as `nn.CrossEntropyLoss`: logits (N, K), (N, K, d1, ...) or (K,), and as targets classes (N,
...) or, for a loss that is a curve of the margin, probabilities of the shape of the logits (`soft_labels.py`); by position or as
`input` and `target`. Its class weights are a buffer of the `state_dict`, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mohs._core.dataclass_module import DataclassModule
from mohs._core.validation import check_type
from mohs.losses._class_table import number_table
from mohs.losses._reduction import SMOOTHABLE, check_reduction, check_smoothing
from mohs.losses.soft_labels import soft_label_loss
from mohs.margin import NO_LABEL, check_tensors

SHARED = ("weight", "ignore_index", "reduction", "label_smoothing")  # the fields of every loss
Curve = Callable[[Tensor], Tensor]


@dataclass(eq=False, repr=False, kw_only=True)
class LossModule(DataclassModule):
    """The base of every loss Module: the fields of `nn.CrossEntropyLoss`, and the same call with logits and targets."""

    smoothable: ClassVar[bool] = False
    weight: Tensor | None = field(default_factory=lambda: None)  # a class attribute would hide the buffer
    ignore_index: int = NO_LABEL
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        weight = self.__dict__.pop("weight")
        nn.Module.__init__(self)
        self.register_buffer("weight", None if weight is None else _weights(weight))
        check_type("ignore_index", self.ignore_index, int)
        check_reduction(self.reduction)
        check_smoothing(self.label_smoothing)
        if self.label_smoothing != 0 and not self.smoothable:
            raise ValueError(f"label_smoothing is not defined for {type(self).__name__} (only for {SMOOTHABLE}); leave it at 0")
        self.setup()

    def forward(self, input: Tensor, target: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:  # noqa: A002
        try:
            dims, floating = input.dim(), target.is_floating_point()
        except AttributeError:
            check_tensors(input=input, target=target)
            raise
        if dims == 1:
            each = None if sample_weight is None else sample_weight.reshape(1)
            value = self.forward(input.unsqueeze(0), target.unsqueeze(0), sample_weight=each)
            return value.squeeze(0) if self.reduction == "none" else value
        if floating and target.dim() == dims:
            return self.of_shares(input, target, sample_weight)
        return self.of_labels(input, target, sample_weight)

    def of_labels(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None) -> Tensor:
        """The loss of classes (N, ...)."""
        return self.function(logits, labels, sample_weight=sample_weight, **self.arguments())

    def of_shares(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None) -> Tensor:
        """The loss of probability targets (N, K, ...)."""
        curve = getattr(self, "curve", None)
        if self.over_batch or curve is None:
            why = "an example's weight depends on the batch" if self.over_batch else "it is not a function of the margin alone"
            raise ValueError(f"{type(self).__name__} does not take probability targets: {why}; use class indices")
        return soft_label_loss(curve, logits, target, sample_weight=sample_weight, **self.options())

    @property
    def over_batch(self) -> bool:
        """Whether the value of an example depends on the other examples of the batch."""
        return False

    def options(self) -> dict[str, Any]:
        """The fields that all losses share, with their values: the keyword arguments of `reduce`."""
        return self.values_of(SHARED)


def _weights(given: Any) -> Tensor:
    """Class weights as a tensor: floating point as given, numbers in the default dtype."""
    weight = number_table("weight", given)
    return weight if weight.is_floating_point() else weight.to(torch.get_default_dtype())


class RegularizerModule(DataclassModule):
    """The base of every regularizer Module: called with what it `takes`, in that order."""

    takes: ClassVar[tuple[str, ...]]

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, **self.arguments())
