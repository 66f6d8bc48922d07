"""Transition matrices: the probabilities with which label noise turns true classes into given ones.

    T[i, j] = P(given j | true i)          rows sum to 1; T = I: no noise
    symmetric: 1 − r on the diagonal, r/(K − 1) off it        pair: 1 − r, and r to the next class, cyclically

T⁻¹ exists unless the rows of T are linearly dependent: symmetric noise is singular at r = (K − 1)/K,
pair noise at r = ½ for even K. Since T's rows sum to 1, the largest row of |T⁻¹| is its condition number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.validation import check_between
from mohs.margin import is_traced

CONDITION = 1e6  # an exactly singular matrix in float32 comes out above this


def symmetric_transition(classes: int, rate: float, *, dtype: torch.dtype | None = None) -> Tensor:
    """Transition matrix of symmetric noise: a wrong label is any other class with equal probability.

    Args:
        classes: Number of classes K.
        rate: Probability that a label is wrong.
        dtype: dtype of the result; the default dtype if None.

    Returns:
        T (K, K).
    """
    _check_noise(classes, rate)
    off = torch.full((classes, classes), rate / (classes - 1), dtype=dtype)
    return off.fill_diagonal_(1 - rate)


def pair_transition(classes: int, rate: float, *, dtype: torch.dtype | None = None) -> Tensor:
    """Transition matrix of pair noise: a wrong label is the next class, cyclically; arguments as in `symmetric_transition`."""
    _check_noise(classes, rate)
    eye = torch.eye(classes, dtype=dtype)
    return (1 - rate) * eye + rate * eye.roll(1, 1)


def check_transition(transition: Tensor) -> None:
    """Validate that T is square and nonnegative with rows that sum to 1 (to 1e-3, or to half precision)."""
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
    """T⁻¹, computed in float64, in the dtype and on the device of T; ValueError if T is singular or nearly so."""
    inverse: Tensor = torch.linalg.inv_ex(transition.to("cpu", torch.float64)).inverse
    if not is_traced(inverse) and not inverse.detach().abs().sum(1).max() <= CONDITION:
        raise ValueError(
            f"transition is singular or nearly so (its inverse exceeds {CONDITION:g}): true classes lead to the same labels, "
            "as in symmetric noise at rate (K − 1)/K. Use a lower rate, or forward correction"
        )
    dtype = transition.dtype if transition.is_floating_point() else torch.get_default_dtype()
    return inverse.to(transition.device, dtype)


def _check_noise(classes: int, rate: float) -> None:
    check_between("classes", classes, 2)
    check_between("rate", rate, 0, 1)
