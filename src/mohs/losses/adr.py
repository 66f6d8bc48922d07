"""Adaptive discriminative regularization: a push on the predictions themselves, its strength set by how undecided they are.

    F = (2πφ)^(−τ/2) exp(−T/(2φ))          T: the squares of the τ largest probabilities, summed; φ: uncertainty, 0 to 1
    φ = H(p)/log K                         or, by "variance", K/(K − 1) (1 − Σ p_k²), a choice of ours
    dF/dz = F [(T − τφ)/(2φ²) dφ/dz − 1/(2φ) dT/dz]

The mean over the batch is returned; γ is its weight in the objective. For τ ≥ 2, or many classes, F is not monotone in
certainty, whatever the paper says: for K = 10 and τ = 3 it grows from uniform to p = 0.84 and only then falls, so
minimizing it pushes doubtful predictions back to uniform. Without the normalizer (exp(−T/(2φ)) alone) it is monotone, and
with φ held constant (`detach_phi`) the push is always to certainty. φ is kept at or above 1e-6; one example's F is 0 long
before that. φ of the whole batch (`scope="batch"`, eq. 4) is each process's own. The entropy penalty is H(p).
"Adaptive discriminative regularization for visual classification" (IJCV 2024), eqs. 4 and 7, the root over φ as eq. 14
differentiates it and φ of one sample as in eqs. 3, 7 and 8; the entropy penalty is eq. 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mohs._core.validation import check_choice
from mohs.losses._drop_in import rebuildable, settings
from mohs.losses._numerics.certainty import UNCERTAINTIES, certainty

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
    """logits (N, K, ...) -> scalar: the mean of F; tau is τ, phi how φ is measured and scope over what."""
    check_options(tau, phi, scope)
    squares, uncertainty = UNCERTAINTIES[phi](logits, tau)
    if scope == "batch":
        uncertainty = uncertainty.mean()
    uncertainty = (uncertainty.detach() if detach_phi else uncertainty).clamp(PHI_FLOOR, 1.0)  # over 1 by rounding only
    normal = torch.xlogy(tau / 2, 2 * math.pi * uncertainty) if normalizer else 0.0
    return torch.exp2((squares / (-2 * uncertainty) - normal) / math.log(2)).mean()  # exp2, xlogy: see certainty.py


def entropy_penalty(logits: Tensor) -> Tensor:
    """logits (N, K, ...) -> scalar: the mean entropy, in nats."""
    return certainty(logits, tau=1)[1].mean()


def check_options(tau: int, phi: str, scope: str) -> None:
    """Raise unless tau is a whole number of at least 1 and the others are known."""
    if not isinstance(tau, int) or tau < 1:
        raise ValueError(f"tau must be a whole number of at least 1, got {tau!r}")
    check_choice("phi", phi, tuple(UNCERTAINTIES))
    check_choice("scope", scope, ("sample", "batch"))


@dataclass(eq=False, repr=False, kw_only=True)
class ADR(nn.Module):
    """Adaptive discriminative regularization as a Module, called with the logits alone."""

    formula: ClassVar[str] = "(2πφ)^(−τ/2) exp(−T/(2φ))"
    purpose: ClassVar[str] = "beside any loss, with a small weight: moves predictions away from indecision, adaptively"
    takes: ClassVar[tuple[str, ...]] = ("logits",)
    tau: int = 3
    phi: str = "entropy"
    scope: str = "sample"
    normalizer: bool = True
    detach_phi: bool = False

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        check_options(self.tau, self.phi, self.scope)

    def forward(self, logits: Tensor) -> Tensor:
        return adr(logits, **settings(self))

    __repr__ = rebuildable


@dataclass(eq=False, repr=False, kw_only=True)
class EntropyPenalty(nn.Module):
    """The mean entropy as a Module, called with the logits alone; the "confidence penalty" is −1 times it."""

    formula: ClassVar[str] = "H(p) = −Σ p log p"
    purpose: ClassVar[str] = "beside any loss: sharper predictions"
    takes: ClassVar[tuple[str, ...]] = ("logits",)

    def __post_init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, logits: Tensor) -> Tensor:
        return entropy_penalty(logits)

    __repr__ = rebuildable
