"""Adaptive discriminative regularization: acts on the predictions themselves, with a strength set by their uncertainty.

    F = (2πφ)^(−τ/2) exp(−T/(2φ))          T: the squares of the τ largest probabilities, summed; φ: uncertainty, 0 to 1
    φ = H(p)/log K                         or, by "variance", K/(K − 1) (1 − Σ p_k²), a choice of ours
    dF/dz = F [(T − τφ)/(2φ²) dφ/dz − 1/(2φ) dT/dz]

Returns the mean over the batch; γ is its weight in the objective. For τ ≥ 2, or many classes, F is not monotone in
certainty, contrary to the paper: for K = 10 and τ = 3 it grows from uniform to p = 0.84 and only then falls, so
minimizing it pushes uncertain predictions back to uniform. Without the normalizer (exp(−T/(2φ)) alone) it is monotone, and
with φ held constant (`detach_phi`) the push is always toward certainty. φ is clamped at 1e-6; F underflows to 0 long
before that. With `scope="batch"` (eq. 4) each process computes φ over its own batch. The entropy penalty is H(p).
"Adaptive discriminative regularization for visual classification" (IJCV 2024), eqs. 4 and 7, the root over φ as eq. 14
differentiates it and φ of one sample as in eqs. 3, 7 and 8; the entropy penalty is eq. 9.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from mohs._core.dataclass_module import module_of
from mohs._core.validation import check_choice
from mohs.losses._drop_in import RegularizerModule
from mohs.losses._numerics.certainty import UNCERTAINTIES, certainty
from mohs.margin._choose import takes

PHI_FLOOR = 1e-6  # so that neither log φ nor 1/φ is infinite


def adr(
    logits: Tensor,
    *,
    tau: int = 3,
    phi: str = "entropy",
    scope: str = "sample",
    normalizer: bool = True,
    detach_phi: bool = False,
) -> Tensor:
    """logits (N, K, ...) -> scalar: the mean of F; tau is τ, phi the measure of uncertainty φ, scope the set it is taken over."""
    check_options(tau, phi, scope)
    if phi == "entropy" and scope == "sample" and takes(logits) and not torch.compiler.is_compiling():
        from mohs.losses._kernels.certainty_kernel import Certainty, fused_certainty, supports

        if supports(logits, tau):
            settings = {"tau": tau, "normalizer": normalizer, "detach_phi": detach_phi}
            plain = partial(plain_adr, phi=phi, scope=scope, **settings)  # type: ignore[arg-type]
            return fused_certainty(logits, Certainty(plain, False, tau, normalizer, detach_phi, PHI_FLOOR))
    return plain_adr(logits, tau=tau, phi=phi, scope=scope, normalizer=normalizer, detach_phi=detach_phi)


def plain_adr(logits: Tensor, *, tau: int, phi: str, scope: str, normalizer: bool, detach_phi: bool) -> Tensor:
    """`adr` without the kernels."""
    squares, uncertainty = UNCERTAINTIES[phi](logits, tau)
    if scope == "batch":
        uncertainty = uncertainty.mean()
    uncertainty = (uncertainty.detach() if detach_phi else uncertainty).clamp(PHI_FLOOR, 1.0)  # above 1 by rounding error only
    normal = torch.xlogy(tau / 2, 2 * math.pi * uncertainty) if normalizer else 0.0
    return torch.exp2((squares / (-2 * uncertainty) - normal) / math.log(2)).mean()  # exp2, xlogy: see certainty.py


def entropy_penalty(logits: Tensor) -> Tensor:
    """logits (N, K, ...) -> scalar: the mean entropy, in nats."""
    if takes(logits) and not torch.compiler.is_compiling():
        from mohs.losses._kernels.certainty_kernel import Certainty, fused_certainty, supports

        if supports(logits, 1):
            return fused_certainty(logits, Certainty(plain_entropy_penalty, entropy=True))
    return plain_entropy_penalty(logits)


def plain_entropy_penalty(logits: Tensor) -> Tensor:
    """`entropy_penalty` without the kernels."""
    return certainty(logits, tau=1)[1].mean()


def check_options(tau: int, phi: str, scope: str) -> None:
    """Validate the hyper-parameters."""
    if not isinstance(tau, int) or tau < 1:
        raise ValueError(f"tau must be a whole number of at least 1, got {tau!r}")
    check_choice("phi", phi, tuple(UNCERTAINTIES))
    check_choice("scope", scope, ("sample", "batch"))


@module_of(adr)
class ADR(RegularizerModule):
    """Adaptive discriminative regularization as a Module, called with the logits alone."""

    formula = "(2πφ)^(−τ/2) exp(−T/(2φ))"
    purpose = "with any loss, at a small weight: moves predictions away from uncertainty"
    takes = ("logits",)
    tau: int = 3
    phi: str = "entropy"
    scope: str = "sample"
    normalizer: bool = True
    detach_phi: bool = False

    def setup(self) -> None:
        check_options(self.tau, self.phi, self.scope)


@module_of(entropy_penalty)
class EntropyPenalty(RegularizerModule):
    """The mean entropy as a Module, called with the logits alone; the "confidence penalty" is −1 times it."""

    formula = "H(p) = −Σ p log p"
    purpose = "with any loss: sharper predictions"
    takes = ("logits",)
