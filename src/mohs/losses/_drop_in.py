"""What makes every loss a drop-in for `nn.CrossEntropyLoss`: the options, the reduction, and the base of its Module.

    mean = Σᵢ wᵢ ℓᵢ / Σᵢ wᵢ        wᵢ = weight[yᵢ] · sample_weightᵢ, and 0 where yᵢ = ignore_index

`sum` is the numerator and `none` its terms. As in `F.cross_entropy`, the mean over zero examples (an empty batch, or
one with all labels ignored) is NaN and the sum is 0. Losses of half-precision logits are returned in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor, nn

from mohs._core.dataclass_module import DataclassModule
from mohs._core.validation import check_between
from mohs.margin import NO_LABEL, all_margins, check_labels, check_logits, full_precision, margin, plain_margin
from mohs.margin._choose import SHORT, takes
from mohs.margin._quick import quick_margin

REDUCTIONS = ("mean", "sum", "none")
SMOOTHABLE = "cross_entropy, encouraging and avh"
SHARED = ("weight", "ignore_index", "reduction", "label_smoothing")  # the fields of every loss
_NOT_SMOOTHABLE = f"label_smoothing={{}} is not defined for this loss (only for {SMOOTHABLE}); use 0"
_kernels: Any = None  # the module of the kernels, imported at their first call
Curve = Callable[[Tensor], Tensor]
Margin = Callable[..., Tensor]
Plain = Callable[..., Tensor]  # (logits, margin function) -> loss


class Options(TypedDict, total=False):
    """The arguments that all losses share."""

    weight: Tensor | None
    ignore_index: int
    reduction: str
    label_smoothing: float
    sample_weight: Tensor | None


class KernelCall(NamedTuple):
    """The options of a loss that a kernel takes, validated."""

    weight: Tensor | None
    sample_weight: Tensor | None  # the shape of the labels
    ignore_index: int
    reduction: str


def curve_loss(curve: Curve, logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor:
    """A loss that depends on the label's probability alone: its curve ℓ(m) at each example's margin, reduced."""
    value = _quick(curve, logits, labels, **options)
    if value is not None:
        return value

    def plain(logits: Tensor, margin_of: Margin = plain_margin) -> Tensor:
        m = margin_of(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
        return reduce(curve(m), labels, classes=logits.shape[1], **options)

    if options.get("label_smoothing", 0.0) != 0:
        return plain(logits)  # an error
    return _fused(curve, logits, labels, plain, **options)


def _quick(curve: Curve, logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor | None:
    """The loss of a plain batch on CPU, without weights and ignored labels; None if it is not one."""
    reduction = options.get("reduction", "mean")
    if (
        logits.device.type != "cpu"
        or takes(logits)
        or options.get("weight") is not None
        or options.get("sample_weight") is not None
        or options.get("label_smoothing", 0.0) != 0
        or reduction not in REDUCTIONS
    ):
        return None
    m = quick_margin(logits, labels, options.get("ignore_index", NO_LABEL), plain_margin)
    if m is None:
        return None
    values = curve(m)
    return values.mean() if reduction == "mean" else values.sum() if reduction == "sum" else values


def smoothed_curve_loss(curve: Curve, logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> Tensor:
    """(1 − a) ℓ(m_y) + (a/K) Σ_j ℓ(m_j), a: the label smoothing; each class's term is multiplied by its class weight."""
    a = options.get("label_smoothing", 0.0)
    check_smoothing(a)
    if a == 0:
        return curve_loss(curve, logits, labels, **options)
    check_logits(logits)

    def plain(logits: Tensor, margin_of: Margin = plain_margin) -> Tensor:
        rest: Options = {**options, "label_smoothing": 0.0}
        logits = logits.to(full_precision(logits.dtype))  # once, so that the two gradients are added in float32
        m = margin_of(logits, labels, ignore_index=options.get("ignore_index", NO_LABEL))
        every = curve(all_margins(logits))  # (N, K, ...)
        weight = options.get("weight")
        if weight is not None:
            check_weight(weight, logits.shape[1])
            every = every * weight.to(every).view(-1, *[1] * (every.dim() - 2))
        return reduce((1 - a) * curve(m), labels, classes=logits.shape[1], also=a * every.mean(1), **rest)

    return _fused(curve, logits, labels, plain, **options)


def _fused(curve: Curve, logits: Tensor, labels: Tensor, plain: Plain, **options: Unpack[Options]) -> Tensor:
    """The loss by its kernel where there is one for this call, or the plain version with the kernels of the margin."""
    global _kernels
    smoothing = options.get("label_smoothing", 0.0)
    call = kernel_call(logits, labels, **options)
    if call is None or (smoothing and (call.reduction == "none" or logits.dtype == torch.float16)):
        return plain(logits, margin)
    if _kernels is None:
        from mohs.losses._kernels import fused_loss as _kernels
    known = _kernels.curve_of(curve)
    if known is None or (smoothing and known.number):  # the kernel smooths cross-entropy alone, which is linear in log p
        return plain(logits, margin)
    return _kernels.fused_loss(logits, _kernels.Call(labels, known, plain, smoothing, *call))  # type: ignore[no-any-return]


def kernel_call(logits: Tensor, labels: Tensor, **options: Unpack[Options]) -> KernelCall | None:
    """The validated options if the kernels take this call: short floating point, at least one row, no gradient to weights."""
    if not takes(logits) or logits.dtype not in SHORT or torch.compiler.is_compiling():
        return None
    call = KernelCall(
        options.get("weight"),
        options.get("sample_weight"),
        options.get("ignore_index", NO_LABEL),
        options.get("reduction", "mean"),
    )
    check_reduction(call.reduction)
    check_labels(logits, labels, ignore_index=call.ignore_index)
    weight, each = call.weight, call.sample_weight
    if weight is not None:
        check_weight(weight, logits.shape[1])
        if weight.requires_grad:
            return None
    if each is not None:
        if each.requires_grad:
            return None
        call = call._replace(sample_weight=spread_sample_weight(each, labels))
    return call if labels.numel() else None


def reduce(
    values: Tensor,
    labels: Tensor,
    *,
    classes: int,
    also: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """values (N, ...) -> scalar, or (N, ...) for "none". `also` is added to the values after their class weight."""
    check_reduction(reduction)
    if label_smoothing != 0:
        raise ValueError(_NOT_SMOOTHABLE.format(label_smoothing))
    kept = labels.long() != ignore_index  # (N, ...)
    importance = None
    if weight is not None:
        check_weight(weight, classes)
        importance = weight.to(values)[torch.where(kept, labels.long(), 0)]
        values = values * importance
    if also is not None:
        values = values + also
    if sample_weight is not None:
        per_example = spread_sample_weight(sample_weight, labels).to(values)
        values = values * per_example
        importance = per_example if importance is None else importance * per_example
    values = torch.where(kept, values, 0.0)
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    return values.sum() / (kept if importance is None else torch.where(kept, importance, 0.0)).sum()


def spread_sample_weight(sample_weight: Tensor, labels: Tensor) -> Tensor:
    """sample_weight (N,) or as labels (N, d1, ...) -> the shape of labels."""
    if sample_weight.shape == labels.shape:
        return sample_weight
    if sample_weight.shape == labels.shape[:1]:
        return sample_weight.view(-1, *[1] * (labels.dim() - 1)).expand(labels.shape)
    raise ValueError(
        f"sample_weight must have shape {tuple(labels.shape[:1])} or {tuple(labels.shape)}, got {tuple(sample_weight.shape)}"
    )


def check_weight(weight: Tensor, classes: int) -> None:
    """Validate that there is one weight per class."""
    if weight.shape != (classes,):
        raise ValueError(f"weight must have one entry for each of the {classes} classes, got shape {tuple(weight.shape)}")


def check_reduction(reduction: str) -> None:
    """Validate the name of the reduction."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")


def check_smoothing(label_smoothing: float) -> None:
    """Validate that 0 ≤ label_smoothing ≤ 1."""
    check_between("label_smoothing", label_smoothing, 0.0, 1.0)


@dataclass(eq=False, repr=False, kw_only=True)
class LossModule(DataclassModule):
    """The base of every loss Module: the fields of `nn.CrossEntropyLoss`, called with logits and labels."""

    smoothable: ClassVar[bool] = False
    weight: Tensor | None = field(default_factory=lambda: None)  # a class attribute would hide the buffer
    ignore_index: int = NO_LABEL
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        weight = self.__dict__.pop("weight")
        nn.Module.__init__(self)
        weight = None if weight is None else torch.as_tensor(weight, dtype=torch.get_default_dtype())
        self.register_buffer("weight", weight, persistent=False)
        check_reduction(self.reduction)
        check_smoothing(self.label_smoothing)
        if self.label_smoothing != 0 and not self.smoothable:
            raise ValueError(f"label_smoothing is not defined for {type(self).__name__} (only for {SMOOTHABLE}); leave it at 0")
        self.setup()

    def forward(self, logits: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        return self.function(logits, labels, sample_weight=sample_weight, **self.arguments())

    def options(self) -> dict[str, Any]:
        """The fields that all losses share, with their values: the keyword arguments of `reduce`."""
        return {name: getattr(self, name) for name in SHARED}


class RegularizerModule(DataclassModule):
    """The base of every regularizer Module: called with what it `takes`, in that order."""

    takes: ClassVar[tuple[str, ...]]

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, **self.arguments())
