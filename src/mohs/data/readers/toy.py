"""Two overlapping classes on the sphere: points of two Gaussians in three dimensions, brought to length 1.

    u = x/‖x‖,  x ~ N(μ, σ²I)          μ = (1, ±.6, 0), σ = .5: the best classifier errs on about 11 %
    density of u on the sphere ∝ g(t),  g(t) = t + (1 + t²) Φ(t)/φ(t),  t = u·μ/σ          as both μ have one length
    P(first | u) = g(t₁)/(g(t₁) + g(t₂))                                        the Bayes-optimal classifier

The points depend on the seed alone. Chen et al., "Angular Visual Hardness" (ICML 2020), Figures 3 and 7, which state
1,000 points per class and neither means nor spread.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.validation import check_between
from mohs.data.examples import Data, Examples

MEANS = ((1.0, 0.6, 0.0), (1.0, -0.6, 0.0))
SPREAD = 0.5
EACH = 1000
CLASSES = ["left", "right"]


def sphere(*, each: int = EACH, seed: int = 0) -> Data:
    """Training and test sets with `each` points per class."""
    check_between("each", each, 1)
    generator = torch.Generator().manual_seed(seed)
    return Data(_points(each, generator, "sphere"), None, _points(each, generator, "sphere"))


def posterior(points: Tensor) -> Tensor:
    """points (N, 3) on the sphere -> the probability of the first class (N,), float64."""
    t = points.double() @ torch.tensor(MEANS, dtype=torch.float64).T / SPREAD  # (N, 2)
    log_ratio = torch.special.log_ndtr(t) + t.square() / 2 + 0.5 * torch.log(torch.tensor(2 * torch.pi))
    g = t + (1 + t.square()) * log_ratio.exp()  # |t| ≤ 2.4 here, where nothing cancels
    first: Tensor = g[:, 0] / g.sum(1)
    return first


def _points(each: int, generator: torch.Generator, name: str) -> Examples:
    drawn = torch.randn(2, each, 3, generator=generator, dtype=torch.float64) * SPREAD
    x = (drawn + torch.tensor(MEANS, dtype=torch.float64).unsqueeze(1)).flatten(0, 1)
    points = (x / x.norm(dim=1, keepdim=True)).float()
    return Examples(points, torch.arange(2).repeat_interleave(each), list(CLASSES), name=name)
