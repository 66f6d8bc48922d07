"""Images made harder in three measured ways: less contrast, uniform noise, Gaussian blur.

    contrast    x ← c x + (1 − c)/2                              c from 0 (all gray) to 1 (unchanged)
    noise       x ← clip(x + U(−w, w), 0, 1), independently for each value; Geirhos et al. lower the contrast to 0.3 first
    blur        x ← x ∗ N(0, σ²) by rows and columns, the edge repeated beyond the image

x is from 0 to 1; images (N, C, H, W) are uint8 or floats, and the result has their type. The levels of Angular Visual Hardness
(Chen et al., ICML 2020, appendix B) are 0.1, 0.2, 0.3, 0.6 and 1 for contrast, 0 to 0.4 in steps of 0.1 for noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from mohs._core.specs import create
from mohs._core.validation import check_between


def contrast(images: Tensor, *, level: float) -> Tensor:
    """c x + (1 − c)/2; level is c."""
    check_between("level", level, 0, 1)
    return _like(_from_0_to_1(images) * level + (1 - level) / 2, images)


def uniform_noise(images: Tensor, *, width: float, generator: torch.Generator, contrast: float = 1.0) -> Tensor:
    """clip(x + U(−w, w)); width is w, contrast is applied first."""
    check_between("width", width, 0, 1)
    check_between("contrast", contrast, 0, 1)
    x = _from_0_to_1(images) * contrast + (1 - contrast) / 2
    noise = torch.rand(x.shape, generator=generator, device=generator.device).to(x)
    return _like((x + (2 * noise - 1) * width).clamp(0, 1), images)


def gaussian_blur(images: Tensor, *, sigma: float) -> Tensor:
    """Convolution with a Gaussian of standard deviation sigma pixels, truncated at 4σ."""
    check_between("sigma", sigma, 0)
    if sigma == 0:
        return images.clone()
    x = _from_0_to_1(images)
    return _like(gaussian_filter(x, sigma, reach=max(1, math.ceil(4 * sigma))).clamp(0, 1), images)


def gaussian_filter(x: Tensor, sigma: float, *, reach: int, edge: str = "replicate") -> Tensor:
    """x (N, C, H, W) ∗ N(0, σ²), truncated at `reach` pixels; edge: how images are padded, "replicate" or "reflect"."""
    at = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    weights = torch.exp(-0.5 * (at / sigma) ** 2)
    weights = weights / weights.sum()
    flat = x.reshape(-1, 1, *x.shape[-2:])  # every channel separately
    flat = conv2d(pad(flat, (reach, reach, 0, 0), mode=edge), weights.view(1, 1, 1, -1))
    flat = conv2d(pad(flat, (0, 0, reach, reach), mode=edge), weights.view(1, 1, -1, 1))
    return flat.view(x.shape)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Contrast c = level."""

    level: float

    def __post_init__(self) -> None:
        check_between("level", self.level, 0, 1)

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return contrast(images, level=self.level)


@dataclass(frozen=True, kw_only=True)
class UniformNoise:
    """Noise of half-width w, after a contrast."""

    width: float
    contrast: float = 1.0

    def __post_init__(self) -> None:
        check_between("width", self.width, 0, 1)
        check_between("contrast", self.contrast, 0, 1)

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if generator is None:
            raise ValueError("noise needs a generator: pass torch.Generator().manual_seed(...)")
        return uniform_noise(images, width=self.width, contrast=self.contrast, generator=generator)


@dataclass(frozen=True, kw_only=True)
class GaussianBlur:
    """Blur of standard deviation sigma pixels."""

    sigma: float

    def __post_init__(self) -> None:
        check_between("sigma", self.sigma, 0)

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return gaussian_blur(images, sigma=self.sigma)


Degradation = Contrast | UniformNoise | GaussianBlur
DEGRADATIONS: dict[str, type[Degradation]] = {"contrast": Contrast, "noise": UniformNoise, "blur": GaussianBlur}


def create_degradation(name: str, /, **fields: Any) -> Degradation:
    """The degradation of that name."""
    return create(DEGRADATIONS, "degradation", name, **fields)


def _from_0_to_1(images: Tensor) -> Tensor:
    if images.dim() != 4:
        raise ValueError(f"images must have shape (N, C, H, W), got {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        return images.float() / 255
    if not images.is_floating_point():
        raise ValueError(f"images must be uint8, or floats from 0 to 1, got {images.dtype}")
    return images


def _like(x: Tensor, images: Tensor) -> Tensor:
    return (x * 255).round().to(torch.uint8) if images.dtype == torch.uint8 else x.to(images.dtype)
