"""Transition matrices: how label noise turns true classes into given ones.

    T[i, j] = P(given j | true i)          rows sum to 1; T = I is no noise
    symmetric: 1 − r on the diagonal, r/(K − 1) off it        pair: 1 − r, and r to the next class, cyclically

T⁻¹ exists unless some true classes leave the same mixture of labels: symmetric noise is singular at r = (K − 1)/K,
pair noise at r = ½ for even K. Since T's rows sum to 1, the largest row of |T⁻¹| is its condition number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.validation import check_between
from mohs.margin import is_traced

CONDITION = 1e6  # a float32 matrix that is singular on paper comes out above this


def symmetric_transition(classes: int, rate: float, *, dtype: torch.dtype | None = None) -> Tensor:
    """T (classes, classes) of noise that gives any other class, each as often; rate: how often the label is wrong."""
    _check_noise(classes, rate)
    off = torch.full((classes, classes), rate / (classes - 1), dtype=dtype)
    return off.fill_diagonal_(1 - rate)


def pair_transition(classes: int, rate: float, *, dtype: torch.dtype | None = None) -> Tensor:
    """T (classes, classes) of noise that gives the next class (the first after the last)."""
    _check_noise(classes, rate)
    eye = torch.eye(classes, dtype=dtype)
    return (1 - rate) * eye + rate * eye.roll(1, 1)


def check_transition(transition: Tensor) -> None:
    """Raise unless it is square, has no negative entry, and its rows sum to 1 (to 1e-3, or what half precision can hold)."""
    if transition.dim() != 2 or transition.shape[0] != transition.shape[1]:
        raise ValueError(f"transition must be a square matrix (K, K), got shape {tuple(transition.shape)}")
    rounding = torch.finfo(transition.dtype).eps if transition.is_floating_point() else 0.0
    sums = transition.detach().sum(1)
    negative, off = ~(transition.detach() >= 0), ~((sums - 1).abs() <= max(1e-3, 4 * rounding))  # NaN is wrong too
    if negative.any():
        i, j = negative.nonzero()[0].tolist()
        raise ValueError(f"transition[{i}, {j}] is {float(transition[i, j]):g}: entries are probabilities, at least 0")
    if off.any():
        row = int(off.nonzero()[0])
        raise ValueError(
            f"row {row} of transition sums to {float(sums[row]):g}, but row i holds P(given j | true i) and must sum to 1: "
            "divide each row by its sum (or transpose the matrix, if its columns sum to 1)"
        )


def inverse_transition(transition: Tensor) -> Tensor:
    """T⁻¹, found in float64 and returned as T came; ValueError where T is singular or nearly so."""
    inverse: Tensor = torch.linalg.inv_ex(transition.to("cpu", torch.float64)).inverse
    if not is_traced(inverse) and not inverse.detach().abs().sum(1).max() <= CONDITION:
        raise ValueError(
            f"transition is singular, or so nearly that its inverse exceeds {CONDITION:g}: labels given by it do not tell some "
            "true classes apart (symmetric noise at rate (K − 1)/K is such a case). Use a lower rate, or forward correction"
        )
    dtype = transition.dtype if transition.is_floating_point() else torch.get_default_dtype()
    return inverse.to(transition.device, dtype)


def _check_noise(classes: int, rate: float) -> None:
    check_between("classes", classes, 2)
    check_between("rate", rate, 0, 1)
