"""How features become the inputs of the closed-form heads: leading principal axes, and RBF units on them.

    axes       features standardized (or only centered), rotated to the axes of largest variance, with mean squared row norm 1
    RBF units  exp(−|x − x'|²/median) for landmarks x', whitened (Nyström), centered, with mean squared row norm 1

Each is fitted to N rows and then maps any rows, so that heads can score rows that they were not fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

BLOCK = 8192  # rows at a time
UNEVEN = 3.0  # ratio of the largest deviation to the median beyond which standardizing features may do harm


@dataclass(frozen=True, eq=False)
class Axes:
    """Features (n, D) standardized and rotated to the leading axes (n, r), in float32; fitted by `principal_axes`."""

    mean: Tensor
    deviation: Tensor
    rotation: Tensor | None
    size: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        x = (features.float() - self.mean) / self.deviation
        return (x if self.rotation is None else x @ self.rotation) / self.size


def principal_axes(x: Tensor, width: int, *, scale: bool = True) -> tuple[Axes, Tensor]:
    """Standardize features (N, D) and rotate them to at most `width` leading axes, with mean squared row norm 1.

    Args:
        x: Features (N, D).
        width: Largest number of axes.
        scale: Whether to divide each feature by its deviation.

    Returns:
        The map, and the mapped features (N, r).
    """
    x = x.float()
    mean = x.mean(0)
    x = x - mean
    deviation = _deviation(x) if scale else torch.ones_like(mean)
    x = x / deviation
    width, rotation = min(width, max(1, len(x) - 1), x.shape[1]), None
    if x.shape[1] > width and x.shape[1] <= len(x):
        rotation = torch.linalg.eigh((x.T @ x).double())[1][:, -width:].to(x.dtype)
        x = x @ rotation
    elif x.shape[1] > width:
        values, vectors = torch.linalg.eigh((x @ x.T).double())
        root = values[-width:].clamp(min=1e-9 * float(values[-1]) + 1e-12).sqrt()
        rotation = (x.T.double() @ (vectors[:, -width:] / root)).to(x.dtype)
        x = (vectors[:, -width:] * values[-width:].clamp(min=0).sqrt()).to(x.dtype)
    size = x.square().sum(1).mean().sqrt().clamp(min=1e-12)
    return Axes(mean, deviation, rotation, size), x / size


def uneven(x: Tensor) -> bool:
    """Whether the deviations of the features (N, D) differ: columns of a table, or axes ordered by their variance."""
    deviation = _deviation(x.float() - x.float().mean(0))
    return float(deviation.max()) > UNEVEN * float(deviation.median())


def _deviation(x: Tensor) -> Tensor:
    """Standard deviations (D,) of centered features (N, D); at least a thousandth of the largest."""
    deviation = x.square().mean(0).sqrt()
    return deviation.clamp(min=1e-3 * float(deviation.max()) + 1e-12)


@dataclass(frozen=True, eq=False)
class RbfUnits:
    """Features (n, D) as Nyström units (n, L) of exp(−|x − x'|²/median) on the axes; fitted by `rbf_units`."""

    axes: Axes
    marks: Tensor
    median: float
    root: Tensor
    center: Tensor
    size: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return (self.kernel(self.axes(features)) @ self.root - self.center) / self.size

    def kernel(self, x: Tensor) -> Tensor:
        """Rows on the axes (n, r) -> their similarity to the landmarks (n, L)."""
        return torch.exp(-torch.cdist(x, self.marks).square() / self.median)


def rbf_units(axes: Axes, x: Tensor, landmarks: int, seed: int, reach: float = 1.0) -> tuple[RbfUnits, Tensor]:
    """Fit Nyström units with this many landmarks to rows x (N, r) on the axes, centered, with mean squared row norm 1.

    Returns:
        The map from features, and the units (N, L) of x; the kernel is exp(−|x − x'|²/(reach · median)).
    """
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[: max(1, landmarks)]
    marks = x[order.to(x.device)]
    squares = torch.cdist(marks, marks).square()
    apart = squares[squares > 0]
    median = reach * float(apart.median()) if apart.numel() else 1.0
    values, vectors = torch.linalg.eigh(torch.exp(-squares / median).double())
    root = (vectors / values.clamp(min=1e-4 * float(values[-1])).sqrt()).to(x.dtype)
    plain = RbfUnits(axes, marks, median, root, x.new_zeros(()), x.new_ones(()))
    units = torch.cat([plain.kernel(part) @ root for part in torch.split(x, BLOCK)])
    center = units.mean(0)
    units = units - center
    size = units.square().sum(1).mean().sqrt().clamp(min=1e-12)
    return replace(plain, center=center, size=size), units / size
