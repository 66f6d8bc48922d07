"""Adaptive discriminative regularization: acts on the predictions themselves, with a strength set by their uncertainty.

    F = (2πφ)^(−τ/2) exp(−T/(2φ))          T: the squares of the τ largest probabilities, summed; φ: uncertainty, 0 to 1
        (√2π φ)^(−τ) exp(−T/(2φ))          with normalizer="printed": φ outside the root, as eqs. 4, 7 and 10 print it
        exp(−T/(2φ))                       with normalizer="none"
    T, τ: of the probabilities of at least `threshold`, if one is given: their squares, summed, and their number
    φ = H(p)/log K                         or, by "variance", K/(K − 1) (1 − Σ p_k²), a choice of ours
    dF/dz = F [(T − τφ)/(2φ²) dφ/dz − 1/(2φ) dT/dz]

Returns the mean over the batch; γ is its weight in the objective. For τ ≥ 2, or many classes, F is not monotone in
certainty, contrary to the paper: for K = 10 and τ = 3 it grows from uniform to p = 0.84 (printed: 0.93) and only then falls,
so minimizing it pushes uncertain predictions back to uniform: F rises as φ falls while T < τφ (printed: T < 2τφ). Without
the normalizer it is monotone, and with φ held constant (`detach_phi`) the push is always toward certainty. φ is clamped at
1e-6; F underflows to 0 long before that. With `scope="batch"` (eq. 4) each process computes φ over its own batch.
The entropy penalty is H(p).
"Adaptive discriminative regularization for visual classification" (IJCV 2024), eqs. 4 and 7, by default with the
root over φ, which is what eq. 14 differentiates, and φ of one sample as in eqs. 3, 7 and 8; the entropy penalty is eq. 9.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_between, check_choice
from mohs.losses._drop_in import RegularizerModule
from mohs.losses._numerics.certainty import UNCERTAINTIES, Slopes, above, certainty, mean_over_rows
from mohs.margin._choose import Plain, takes

NORMALIZERS = ("root", "printed", "none")
PHI_FLOOR = 1e-6  # keeps log φ and 1/φ finite


def adr(
    logits: Tensor,
    *,
    tau: int = 3,
    phi: str = "entropy",
    scope: str = "sample",
    normalizer: str = "root",
    detach_phi: bool = False,
    threshold: float | None = None,
) -> Tensor:
    """logits (N, K, ...) -> scalar: the mean of F.

    Args:
        logits: The network's outputs.
        tau: τ, the number of probabilities in T.
        phi: The measure of uncertainty φ, "entropy" or "variance".
        scope: The set over which φ is computed, "sample" or "batch" (eq. 4).
        normalizer: The factor before the exponential: "root" (√(2πφ), eq. 14), "printed" (√2π φ, eqs. 4, 7 and 10) or "none".
        detach_phi: Hold φ constant in the gradient.
        threshold: Take the probabilities of at least this number, and the largest one, instead of the τ largest.
    """
    check_options(tau, phi, scope, normalizer, threshold)
    settings = {"tau": tau, "normalizer": normalizer, "detach_phi": detach_phi}
    plain: Plain = partial(plain_adr, phi=phi, scope=scope, threshold=threshold, **settings)  # type: ignore[arg-type]
    if phi != "entropy" or scope != "sample" or threshold is not None or torch.compiler.is_compiling():
        return plain(logits)
    if takes(logits) and normalizer != "printed":
        from mohs.losses._kernels.certainty_kernel import Certainty, fused_certainty, supports

        if supports(logits, tau):
            return fused_certainty(logits, Certainty(plain, False, tau, normalizer == "root", detach_phi, PHI_FLOOR))
    value = mean_over_rows(logits, tau, partial(_with_slopes, **settings), plain)  # type: ignore[arg-type]
    return plain(logits) if value is None else value


def plain_adr(
    logits: Tensor, *, tau: int, phi: str, scope: str, normalizer: str, detach_phi: bool, threshold: float | None
) -> Tensor:
    """`adr` without the kernels."""
    squares, uncertainty = UNCERTAINTIES[phi](logits, tau)
    count: Tensor | int = tau
    if threshold is not None:
        squares, count = above(logits, threshold)
    if scope == "batch":
        uncertainty = uncertainty.mean()
    uncertainty = (uncertainty.detach() if detach_phi else uncertainty).clamp(PHI_FLOOR, 1.0)  # above 1 by rounding error only
    return _strength(squares, uncertainty, count, normalizer).mean()


def _strength(squares: Tensor, uncertainty: Tensor, count: Tensor | int, normalizer: str) -> Tensor:
    """F, elementwise, as a power of 2: torch.exp and torch.log start MKL threads even for short vectors."""
    exponent = squares / (-2 * math.log(2) * uncertainty)
    if normalizer == "none":
        return torch.exp2(exponent)
    base = uncertainty if normalizer == "root" else uncertainty**2
    return torch.exp2(exponent - torch.xlogy(count / (2 * math.log(2)), 2 * math.pi * base))


def _with_slopes(squares: Tensor, entropy: Tensor, classes: int, *, tau: int, normalizer: str, detach_phi: bool) -> Slopes:
    """F, ∂F/∂T and ∂F/∂H, elementwise, where φ is that of each row.

    Where φ is clamped, F is 0 or φ is 1 up to rounding, and so is its slope.
    """
    phi = (entropy / math.log(classes)).clamp_(PHI_FLOOR, 1.0)
    value = _strength(squares, phi, tau, normalizer)
    by_squares = value / phi.mul_(-2)
    if detach_phi:
        return value, by_squares, torch.zeros_like(value)
    power = {"root": tau / 2, "printed": tau, "none": 0}[normalizer]  # F contains φ^(−power)
    return value, by_squares, (squares / phi).add_(power).mul_(by_squares).mul_(2 / math.log(classes))


def entropy_penalty(logits: Tensor) -> Tensor:
    """logits (N, K, ...) -> scalar: the mean entropy, in nats."""
    if takes(logits) and not torch.compiler.is_compiling():
        from mohs.losses._kernels.certainty_kernel import Certainty, fused_certainty, supports

        if supports(logits, 1):
            return fused_certainty(logits, Certainty(plain_entropy_penalty, entropy=True))
    value = mean_over_rows(logits, 0, _entropy_with_slopes, plain_entropy_penalty)
    return plain_entropy_penalty(logits) if value is None else value


def _entropy_with_slopes(squares: Tensor, entropy: Tensor, classes: int) -> Slopes:
    """H and its slopes; H does not depend on T, whose slope is not used."""
    return entropy, squares, torch.ones_like(entropy)


def plain_entropy_penalty(logits: Tensor) -> Tensor:
    """`entropy_penalty` without the kernels."""
    return certainty(logits, tau=1)[1].mean()


def check_options(tau: int, phi: str, scope: str, normalizer: str, threshold: float | None) -> None:
    """Validate the hyper-parameters."""
    if not isinstance(tau, int) or tau < 1:
        raise ValueError(f"tau must be a whole number of at least 1, got {tau!r}")
    check_choice("phi", phi, tuple(UNCERTAINTIES))
    check_choice("scope", scope, ("sample", "batch"))
    check_choice("normalizer", normalizer, NORMALIZERS)
    if threshold is not None:
        check_between("threshold", threshold, 0, 1, ends="()")


@module_of(adr)
class ADR(RegularizerModule):
    """Adaptive discriminative regularization as a Module, called with the logits alone."""

    formula = "(2πφ)^(−τ/2) exp(−T/(2φ))"
    purpose = "with any loss, at a small weight: moves predictions away from uncertainty"
    takes = ("logits",)
    tau: int = 3
    phi: str = "entropy"
    scope: str = "sample"
    normalizer: str = "root"
    detach_phi: bool = False
    threshold: float | None = None

    def setup(self) -> None:
        check_options(self.tau, self.phi, self.scope, self.normalizer, self.threshold)


@module_of(entropy_penalty)
class EntropyPenalty(RegularizerModule):
    """The mean entropy as a Module, called with the logits alone; the "confidence penalty" is −1 times it."""

    formula = "H(p) = −Σ p log p"
    purpose = "with any loss: sharper predictions"
    takes = ("logits",)
