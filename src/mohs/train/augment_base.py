"""Code shared by augmentations: random numbers, one row per input, drawn before they are applied, and checks of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

Drawn = tuple[Tensor, ...]


class Augment(Protocol):
    """Random numbers for n inputs, and their application."""

    @property
    def draws(self) -> int: ...
    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn: ...
    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor: ...


def augmented(augment: Augment, x: Tensor, generator: torch.Generator) -> Tensor:
    """Draw and apply; the generator may be on another device than x."""
    drawn = augment.draw(len(x), generator, x.shape[1:])
    return augment.apply(x, *(numbers.to(x.device) for numbers in drawn))


def whole(n: int, most: int, generator: torch.Generator) -> Tensor:
    """n random integers from −most to most."""
    return torch.randint(-most, most + 1, (n,), generator=generator, device=generator.device)


def uniform(n: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """n uniform random numbers from low to high."""
    return low + (high - low) * torch.rand(n, generator=generator, device=generator.device)


def coin(n: int, generator: torch.Generator, share: float = 0.5) -> Tensor:
    """n random booleans, true with probability `share`."""
    return torch.rand(n, generator=generator, device=generator.device) < share


def check_images(name: str, shape: Sequence[int], reach: int = 0) -> None:
    """Raise unless inputs of this shape are images with sides larger than the padding."""
    if len(shape) != 3:
        raise ValueError(f"{name} takes images (C, H, W), but inputs have shape {tuple(shape)}: leave it out for features")
    if reach >= min(shape[1:]):
        raise ValueError(f"{name} reaches {reach} pixels beyond an image of {shape[1]}×{shape[2]}: choose less than its side")
