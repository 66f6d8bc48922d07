"""Losses whose weight of a row depends on the whole batch, in three launches: all margins, every row's loss from them, the
gradient.

The second launch reads a few numbers of each row. One program takes all rows, or each of PARTS programs a part, which wait for
one another between what they add up and what they compute from the sums. PARTS is below the number of programs that a GPU runs at
a time, and a program that has waited too long adds up all parts itself, so that none waits forever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mohs.losses._kernels.add_up import sum_of
from mohs.losses._kernels.call import UNKNOWN, admits, kind_of, remember
from mohs.losses._reduction import spread_sample_weight
from mohs.margin import check_labels
from mohs.margin._choose import INTERPRETED, Plain, apply_eagerly, needs_plain, plain_gradient
from mohs.margin._launch import Launcher
from mohs.margin._triton import factor_launcher, flat, margin_launcher, three, write_gradient

PARTS = 4 if INTERPRETED else 64  # programs interpreted one after another cannot wait: each adds up all parts
MARGIN, TOP, TOTAL, PULL, LEVEL = range(5)  # outputs of the launches per row (LEVEL: one for all), in one allocation
_plans: dict[Any, Plan | None] = {}  # None: not for the kernels


class Request(NamedTuple):
    """What the second launch is specialized on, besides the dtypes."""

    rows: int
    classes: int
    ignore_index: int
    weight: bool
    sample_weight: bool
    mean: bool
    apart: bool


Values = Callable[[Request, Tensor], Launcher]  # request, logits (N, K) or (N, K, D) -> the second launch


class Plan(NamedTuple):
    """The launches of all calls of one kind.

    `margins` is None if the second launch computes them too. `sums`: its programs exchange sums.
    """

    request: Request
    margins: Launcher | None
    values: Launcher
    gradient: Launcher
    sums: bool


def over_batch(
    values: Values,
    logits: Tensor,
    labels: Tensor,
    plain: Callable[[Tensor], Plain],
    floats: tuple[float, ...],
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    sample_weight: Tensor | None,
    *,
    at_once: bool = False,
    threshold: Tensor | None = None,
) -> Tensor | None:
    """The reduced loss, or None where the kernels do not take such a call, though they take the logits.

    Args:
        values: Makes the second launch. Its kernel takes margin, label, weight, sample_weight and threshold, then what it writes:
            the level for `plain`, ∂L/∂m and value of each row, and what `sum_of` gives (numbers, sum, counters).
        logits: (N, K, ...).
        labels: (N, ...).
        plain: Level -> a function that computes the same loss without kernels.
        floats: For the kernel.
        weight, ignore_index, reduction, sample_weight: As for every loss.
        at_once: The kernel computes the margins too, from logits, which it takes first, and with them what `margin_forward` gives
            besides the margins, for the gradient.
        threshold: For the kernel, on the device.
    """
    each = sample_weight
    key = (values, *kind_of(logits, labels, weight, each), ignore_index, reduction)
    plan: Plan | None = _plans.get(key, UNKNOWN)
    if plan is UNKNOWN:
        taken = admits(logits, labels, weight, ignore_index, reduction, each)
        made = _plan(values, logits, labels, weight, each, ignore_index, reduction, at_once) if taken else None
        plan = remember(_plans, key, made)
    elif INTERPRETED:
        check_labels(logits, labels, ignore_index=ignore_index)  # on a CPU their range is validated at every call
    if plan is None:
        return None
    if each is not None:
        each = flat(spread_sample_weight(each, labels))
    return apply_eagerly(_OverBatch, logits, (plan, labels, weight, each, threshold, floats, plain))  # type: ignore[no-any-return]


def _plan(
    values: Values,
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    each: Tensor | None,
    ignore_index: int,
    reduction: str,
    at_once: bool,
) -> Plan:
    z = three(logits)
    given = (weight is not None, each is not None, reduction == "mean", reduction == "none")
    request = Request(labels.numel(), z.shape[1], ignore_index, *given)
    kind = (z.shape, z.stride(), z.dtype, labels.dtype, ignore_index)
    second = values(request, z)
    margins = None if at_once else margin_launcher(*kind)
    return Plan(request, margins, second, factor_launcher(*kind, factors=1), at_once or second.programs > 1)


class _OverBatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: tuple[Any, ...]) -> Tensor:
        plan, labels, weight, each, threshold, floats, _ = call
        request = plan.request
        z, y = three(logits), labels if labels.dim() == 1 and labels.is_contiguous() else flat(labels)
        room = -(-request.rows // 32) * 32  # for each at an aligned address
        left = torch.empty((5, room), dtype=torch.float32, device=z.device)
        if plan.margins is not None:
            plan.margins((z, y, MARGIN, TOP, TOTAL), (), left)
        numbers, whole, counters = sum_of(z) if plan.sums else (None, left.new_empty(()), None)
        value = left.new_empty(request.rows) if request.apart else None
        given = (MARGIN, y, weight, each, threshold, LEVEL, PULL, value, numbers, whole, counters)
        plan.values(given if plan.margins is not None else (z, TOP, TOTAL, *given), floats, left)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, y)
            ctx.call, ctx.left = call, left
        return whole if value is None else value.view(labels.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (g,), (logits, y) = grads, ctx.saved_tensors
        plan, *_, plain = ctx.call
        if needs_plain(g):
            return plain_gradient(plain(ctx.left[LEVEL, 0]), logits, g), None
        z = three(logits)
        if plan.request.apart:
            top, total, pull = (ctx.left[row] for row in (TOP, TOTAL, PULL))
            grad = write_gradient(z, y, top, total, pull, plan.request.ignore_index, factor=g, skip=True)
        else:
            grad = torch.empty_like(z)
            plan.gradient((z, y, TOP, TOTAL, PULL, PULL, g, None, grad), (), ctx.left)
        return grad if grad.dim() == logits.dim() else grad.view(logits.shape), None
