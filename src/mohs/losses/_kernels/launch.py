"""Launch the loss kernel over logits (N, K, D), with only the requested outputs."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from mohs.losses._kernels.add_up import MOST_SUMMED, sum_of
from mohs.losses._kernels.curves import SELF_PACED, Curve
from mohs.losses._kernels.loss_kernel import denominator_kernel, loss_kernel
from mohs.margin._launch import Launcher
from mohs.margin._triton import layout, padded, width

COUNTED = 1 << 24  # up to this many label reads by all programs together, each program adds up the weights itself
TURNS = 4096  # number of programs that take tiles in turn, if one program per tile would be too many to sum within the launch


class Rows(NamedTuple):
    """The kernel's outputs for each row; None if not requested. `value` is the sum over rows if that is requested."""

    value: Tensor
    pull: Tensor | None = None
    top: Tensor | None = None
    total: Tensor | None = None
    margin: Tensor | None = None
    gap: Tensor | None = None
    entropy: Tensor | None = None
    best: Tensor | None = None


class Denominator(NamedTuple):
    """The launch that adds up the weights, in one program or in several whose sums are added."""

    launcher: Launcher
    sums: bool

    def __call__(self, labels: Tensor, weight: Tensor | None, sample_weight: Tensor | None) -> Tensor:
        """labels (R,) -> Σ w_y s over the rows that count, a float32 scalar on the device."""
        parts, out, counter = sum_of(labels) if self.sums else (None, _numbers(labels, ()), None)
        self.launcher((labels, weight, sample_weight, parts, out, counter))
        return out


def denominator_of(rows: int, classes: int, ignore_index: int, weight: bool, sample_weight: bool) -> Denominator:
    """The launch for labels (R,) of this number of rows."""
    block = 1024
    programs = -(-rows // block)
    sums = 1 < programs <= MOST_SUMMED
    integers, constants = (rows, classes, ignore_index), (weight, sample_weight, sums, block)
    return Denominator(Launcher(denominator_kernel, programs if sums else 1, 4, integers, constants), sums)


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
    level: Tensor | None = None,
    grad: Tensor | None = None,
    pull: bool = False,
    save: bool = False,
    stats: bool = False,
) -> Rows:
    """logits (N, K) or (N, K, D) and labels (N · D,), both on the device -> the outputs in `Rows`.

    Args:
        logits: (N, K) or (N, K, D), at least one row.
        labels: (N · D,), contiguous; so are sample_weight and target.
        curve: From `curve_of`.
        ignore_index, weight, sample_weight, smoothing: As in `mohs.losses._drop_in`.
        target: Replaces the label's logit.
        shift: Subtracted from the label's logit.
        mean: Divide by the denominator.
        denominator: For the mean over more rows than these.
        total: Return the sum of the values instead of each.
        level: λ of self-paced learning.
        grad: (N, K, D), where to write the gradient; the logits themselves if they may be overwritten.
        pull: Return ∂L/∂m.
        save: Return top and total, for `write_gradient`.
        stats: Return margin, gap, entropy and the most likely class, without target and shift.
    """
    plan = loss_plan(
        logits.shape,
        logits.stride(),
        None if grad is None else grad.stride(),
        (logits.dtype, labels.dtype, *(None if t is None else t.dtype for t in (weight, sample_weight, target, denominator))),
        ignore_index,
        curve.number,
        smooth=smoothing != 0,
        mean=mean,
        total=total,
        pull=pull,
        save=save,
        stats=stats,
    )
    room = (_numbers(logits, (plan.rows,)) for _ in range(6))
    pulls = next(room) if pull else None
    top, totals = (next(room), next(room)) if save else (None, None)
    margin, gap, entropy = (next(room), next(room), next(room)) if stats else (None, None, None)
    best = torch.empty(plan.rows, dtype=torch.int32, device=logits.device) if stats else None
    left = (pulls, top, totals, margin, gap, entropy, best)
    floats = (smoothing, shift, *curve.parameters)
    value, _ = plan.run(logits, labels, weight, sample_weight, floats, grad, target, denominator, level, left)
    return Rows(value, *left)


NOTHING = (None,) * 7


class Plan(NamedTuple):
    """Everything that is the same for all calls of one kind.

    Attributes:
        rows: Number of rows of the logits.
        launcher: The launch of the loss kernel.
        denominator: The launch that adds up the weights first, if the loss kernel does not.
        total: Whether the values are summed.
        sums: Whether the launch itself adds them up.
        normal: Whether it normalizes Gradient Rescaling.
        after: The launch of the backward pass, which scales the gradient, or writes it.
    """

    rows: int
    launcher: Launcher
    denominator: Denominator | None
    total: bool
    sums: bool
    normal: bool
    after: Launcher | None = None

    def run(
        self,
        logits: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        sample_weight: Tensor | None,
        floats: tuple[float, ...],
        grad: Tensor | None,
        target: Tensor | None = None,
        denominator: Tensor | None = None,
        level: Tensor | None = None,
        left: tuple[Tensor | None, ...] = NOTHING,
    ) -> tuple[Tensor, Tensor | None]:
        """The value, and the factor that the gradient of a normalized Gradient Rescaling lacks.

        floats: smoothing, shift and the parameters of the curve. level: λ of self-paced learning. left: buffers for the other
        outputs in `Rows`.
        """
        factor = whole = counter = None
        if self.sums:
            value, whole, counter = sum_of(logits)
            if self.normal:
                factor = torch.empty_like(whole)
        else:
            value = _numbers(logits, (self.rows,))
        if self.denominator is not None:
            denominator = self.denominator(labels, weight, sample_weight)
        first = (logits, labels, weight, sample_weight, target, denominator, level, value, whole, counter, factor)
        self.launcher((*first, *left, grad), floats)
        if self.total:
            value = value.sum() if whole is None else whole
        return value, factor


@lru_cache(1024)
def loss_plan(
    shape: tuple[int, ...],
    steps: tuple[int, ...],
    grad_steps: tuple[int, ...] | None,
    dtypes: tuple[torch.dtype | None, ...],
    ignore_index: int,
    curve: int,
    *,
    smooth: bool,
    mean: bool,
    total: bool,
    normal: bool = False,
    pull: bool = False,
    save: bool = False,
    stats: bool = False,
) -> Plan:
    """The plan for logits of this shape and strides.

    Args:
        shape, steps, grad_steps: Of the logits (N, K) or (N, K, D), their strides and those of the gradient.
        dtypes: Of logits, labels, weight, sample_weight, target and denominator; None for one that is not given.
        ignore_index: Label of examples to ignore.
        curve: Number of the curve.
        normal: Normalize the weights of Gradient Rescaling, of at most MOST_SUMMED rows.
        smooth, mean, total, pull, save, stats: As in `launch_loss`.
    """
    how = layout(shape)
    read, written = (padded(steps if one is None else one) for one in (steps, grad_steps))
    weight, sample_weight, target, denominator = (one is not None for one in dtypes[2:])
    turns = total and how.programs > MOST_SUMMED and not how.loop
    programs = TURNS if turns else how.programs
    added = total and programs <= MOST_SUMMED
    counted = mean and not denominator and how.rows * programs <= COUNTED
    shared = mean and not denominator and not counted and added
    first = None
    if mean and not denominator and not counted and not shared:
        first = denominator_of(how.rows, how.classes, ignore_index, weight, sample_weight)
    kind = (how.classes, width(read, written), curve, weight, sample_weight, smooth, target, mean, counted, shared, added)
    outputs = (grad_steps is not None, pull, save, stats)
    constants = (*kind, normal, turns, curve == SELF_PACED, *outputs, how.tile, how.block, how.loop)
    integers = (how.rows, how.inner, *read, *written, ignore_index)
    launcher = Launcher(loss_kernel, programs, how.warps, integers, constants)
    return Plan(how.rows, launcher, first, total, added, normal)


def _numbers(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)
