"""Launch the loss kernel over logits (N, K, D), with only the outputs that are asked for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mohs.losses._kernels.add_up import sum_of
from mohs.losses._kernels.curves import Curve
from mohs.losses._kernels.loss_kernel import denominator_kernel, loss_kernel
from mohs.margin._launch import launch
from mohs.margin._triton import layout, strides, width

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
    grad: Tensor | None = None


def weight_sum(labels: Tensor, classes: int, ignore_index: int, weight: Tensor | None, sample_weight: Tensor | None) -> Tensor:
    """labels (R,) -> Σ w_y s over the rows that count, a float32 scalar on the device."""
    out = torch.empty((), dtype=torch.float32, device=labels.device)
    launch(
        denominator_kernel,
        1,
        16,
        (labels, weight, sample_weight, out),
        (labels.shape[0], classes, ignore_index),
        (),
        (weight is not None, sample_weight is not None, 8192 if labels.shape[0] > 2048 else 1024),
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
        grad: (N, K, D), where to write the gradient; the logits themselves if they may be overwritten.
        pull: Return ∂L/∂m.
        save: Return top and total, for `write_gradient`.
        stats: Return margin, gap, entropy and the most likely class, without target and shift.
    """
    how = layout(logits)
    into = sum_of(how.programs, logits) if total else None
    value, whole, counter = (_numbers(logits, how.rows), None, None) if into is None else into
    pulls = top = totals = margin = gap = entropy = best = None
    if pull or save or stats:
        room = (_numbers(logits, how.rows) for _ in range(6))
        pulls = next(room) if pull else None
        top, totals = (next(room), next(room)) if save else (None, None)
        margin, gap, entropy = (next(room), next(room), next(room)) if stats else (None, None, None)
        best = torch.empty(how.rows, dtype=torch.int32, device=logits.device) if stats else None
    counted = mean and denominator is None and how.rows * how.programs <= COUNTED
    if mean and denominator is None and not counted:
        denominator = weight_sum(labels, how.classes, ignore_index, weight, sample_weight)
    steps = strides(logits)
    grad_steps = steps if grad is None else strides(grad)
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
            pulls,
            top,
            totals,
            margin,
            gap,
            entropy,
            best,
            grad,
        ),
        (how.rows, how.inner, *steps, *grad_steps, ignore_index),
        (smoothing, shift, *curve.parameters),
        (
            how.classes,
            width(steps, grad_steps),
            curve.number,
            weight is not None,
            sample_weight is not None,
            smoothing != 0,
            target is not None,
            mean,
            counted,
            whole is not None,
            grad is not None,
            pull,
            save,
            stats,
            how.tile,
            how.block,
            how.loop,
        ),
        (logits, labels, weight, sample_weight, target, denominator, grad),
    )
    if total:
        value = value.sum() if whole is None else whole
    return Rows(value, pulls, top, totals, margin, gap, entropy, best, grad)


def _numbers(like: Tensor, count: int) -> Tensor:
    return torch.empty(count, dtype=torch.float32, device=like.device)
