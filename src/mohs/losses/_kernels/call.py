"""Whether the kernels take a call of a loss, by its shapes, dtypes and options, which are validated at the first such call."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor

from mohs.losses._reduction import check_reduction, check_weight, spread_sample_weight
from mohs.margin import check_labels
from mohs.margin._choose import INTERPRETED, SHORT

T = TypeVar("T")
MOST = 4096  # number of kinds of calls that are cached
UNKNOWN: Any = object()  # marks a kind of call that is not cached
_admitted: dict[Any, bool] = {}


def admits(
    logits: Tensor, labels: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, sample_weight: Tensor | None
) -> bool:
    """Validate the arguments; whether the kernels take this call, given that they take its logits.

    They take at least one row, weights without a gradient, and tensors that are all on one device.
    """
    given = (logits, labels, weight, sample_weight)
    key = (reduction, *[None if t is None else (t.shape, t.dtype, t.get_device(), t.requires_grad) for t in given])
    known = None if INTERPRETED else _admitted.get(key)  # on a CPU the range of the labels is validated at every call
    if known is None:
        known = remember(_admitted, key, _validated(logits, labels, weight, ignore_index, reduction, sample_weight))
    return known


def remember(kinds: dict[Any, T], key: Any, what: T) -> T:
    """Cache the result for this kind of call; the cache is cleared when it holds MOST kinds."""
    if len(kinds) >= MOST:
        kinds.clear()
    kinds[key] = what
    return what


def kind_of(logits: Tensor, labels: Tensor, weight: Tensor | None, sample_weight: Tensor | None) -> tuple[Any, ...]:
    """The cache key that calls with the same plan share."""
    weights = None if weight is None else (weight.shape, weight.dtype, weight.get_device(), weight.requires_grad)
    key = (logits.shape, logits.stride(), logits.dtype, labels.shape, labels.dtype, labels.get_device(), weights)
    if sample_weight is None:
        return key
    return *key, sample_weight.shape, sample_weight.dtype, sample_weight.get_device(), sample_weight.requires_grad


def _validated(
    logits: Tensor, labels: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, sample_weight: Tensor | None
) -> bool:
    check_reduction(reduction)
    check_labels(logits, labels, ignore_index=ignore_index)
    if weight is not None:
        check_weight(weight, logits.shape[1])
    if sample_weight is not None:
        spread_sample_weight(sample_weight, labels)
    given = [t for t in (labels, weight, sample_weight) if t is not None]
    alike = all(t.device == logits.device and not t.requires_grad for t in given)
    return alike and logits.dtype in SHORT and labels.numel() > 0
