"""Launch the loss kernel over logits (N, K, D), with only the outputs that are asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mohs.losses._kernels.add_up import MOST_SUMMED, can_sum, sum_of
from mohs.losses._kernels.curves import Curve
from mohs.losses._kernels.loss_kernel import denominator_kernel, loss_kernel
from mohs.margin._launch import launch
from mohs.margin._triton import Layout, layout, padded, width

COUNTED = 1 << 24  # labels that all programs together read to add up the weights themselves, instead of one more launch


class Rows(NamedTuple):
    """What the kernel left of each row; None where it was not asked for. `value` is their sum if that is asked for."""

    value: Tensor
    pull: Tensor | None = None
    top: Tensor | None = None
    total: Tensor | None = None
    margin: Tensor | None = None
    gap: Tensor | None = None
    entropy: Tensor | None = None
    best: Tensor | None = None
    factor: Tensor | None = None


def weight_sum(labels: Tensor, classes: int, ignore_index: int, weight: Tensor | None, sample_weight: Tensor | None) -> Tensor:
    """labels (R,) -> Σ w_y s over the rows that count, a float32 scalar on the device."""
    rows, block = labels.shape[0], 1024
    programs = -(-rows // block)
    sums = 1 < programs <= MOST_SUMMED and can_sum(labels)
    parts, out, counter = sum_of(labels) if sums else (None, torch.empty((), dtype=torch.float32, device=labels.device), None)
    launch(
        denominator_kernel,
        programs if sums else 1,
        4,
        (labels, weight, sample_weight, parts, out, counter),
        (rows, classes, ignore_index),
        (),
        (weight is not None, sample_weight is not None, sums, block),
        (labels, weight, sample_weight),
    )
    return out


def launch_loss(
    logits: Tensor,
    labels: Tensor,
    curve: Curve,
    *,
    ignore_index: int,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    target: Tensor | None = None,
    shift: float = 0.0,
    mean: bool = False,
    denominator: Tensor | None = None,
    total: bool = False,
    normal: bool = False,
    grad: Tensor | None = None,
    pull: bool = False,
    save: bool = False,
    stats: bool = False,
) -> Rows:
    """logits (N, K) or (N, K, D) and labels (N · D,), both on the device, to what `Rows` names.

    Args:
        logits: (N, K) or (N, K, D), at least one row.
        labels: (N · D,), contiguous; so are sample_weight and target.
        curve: From `curve_of`.
        ignore_index, weight, sample_weight, smoothing: As in `mohs.losses._drop_in`.
        target: Replaces the label's logit.
        shift: Subtracted from the label's logit.
        mean: Divide by the denominator.
        denominator: From `weight_sum`, for the mean over more rows than these.
        total: Return the sum of the values instead of each.
        normal: Normalize the weights of Gradient Rescaling, for at most MOST_SUMMED rows on a device that `can_sum`; returns the
            factor that the gradient lacks.
        grad: (N, K, D), where to write the gradient; the logits themselves if they may be overwritten.
        pull: Return ∂L/∂m.
        save: Return top and total, for `write_gradient`.
        stats: Return margin, gap, entropy and the most likely class, without target and shift.
    """
    sums = total and can_sum(logits)
    plan = _plan(
        logits.shape,
        logits.stride(),
        None if grad is None else grad.stride(),
        ignore_index,
        curve.number,
        weight is not None,
        sample_weight is not None,
        smoothing != 0,
        target is not None,
        mean,
        denominator is not None,
        sums,
        normal,
        pull,
        save,
        stats,
    )
    how = plan.layout
    value, whole, counter = sum_of(logits) if plan.sums else (_numbers(logits, how.rows), None, None)
    factor = torch.empty_like(whole) if normal and whole is not None else None
    pulls = top = totals = margin = gap = entropy = best = None
    if pull or save or stats:
        room = (_numbers(logits, how.rows) for _ in range(6))
        pulls = next(room) if pull else None
        top, totals = (next(room), next(room)) if save else (None, None)
        margin, gap, entropy = (next(room), next(room), next(room)) if stats else (None, None, None)
        best = torch.empty(how.rows, dtype=torch.int32, device=logits.device) if stats else None
    if plan.counts_first:
        denominator = weight_sum(labels, how.classes, ignore_index, weight, sample_weight)
    launch(
        loss_kernel,
        how.programs,
        how.warps,
        (
            logits,
            labels,
            weight,
            sample_weight,
            target,
            denominator,
            value,
            whole,
            counter,
            factor,
            pulls,
            top,
            totals,
            margin,
            gap,
            entropy,
            best,
            grad,
        ),
        plan.integers,
        (smoothing, shift, *curve.parameters),
        plan.constants,
        (logits, labels, weight, sample_weight, target, denominator, grad),
    )
    if total:
        value = value.sum() if whole is None else whole
    return Rows(value, pulls, top, totals, margin, gap, entropy, best, factor)


class Plan(NamedTuple):
    """What is the same for all calls of one kind.

    Attributes:
        layout: How the kernel walks over the logits.
        integers, constants: Its arguments of these types.
        sums: Whether the launch adds up the values.
        counts_first: Whether the denominator takes a launch of its own.
    """

    layout: Layout
    integers: tuple[int, ...]
    constants: tuple[Any, ...]
    sums: bool
    counts_first: bool


@lru_cache(1024)
def _plan(
    shape: tuple[int, ...],
    steps: tuple[int, ...],
    grad_steps: tuple[int, ...] | None,
    ignore_index: int,
    curve: int,
    weight: bool,
    sample_weight: bool,
    smooth: bool,
    target: bool,
    mean: bool,
    denominator: bool,
    sums: bool,
    normal: bool,
    pull: bool,
    save: bool,
    stats: bool,
) -> Plan:
    """For logits of this shape and strides; the rest as in `launch_loss`, each as whether it is given."""
    how = layout(shape)
    read, written = (padded(steps if one is None else one) for one in (steps, grad_steps))
    sums = sums and how.programs <= MOST_SUMMED
    counted = mean and not denominator and how.rows * how.programs <= COUNTED
    kind = (how.classes, width(read, written), curve, weight, sample_weight, smooth, target, mean, counted, sums)
    constants = (*kind, normal, grad_steps is not None, pull, save, stats, how.tile, how.block, how.loop)
    integers = (how.rows, how.inner, *read, *written, ignore_index)
    return Plan(how, integers, constants, sums, mean and not denominator and not counted)


def _numbers(like: Tensor, count: int) -> Tensor:
    return torch.empty(count, dtype=torch.float32, device=like.device)
