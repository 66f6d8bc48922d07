"""Strong augmentation: views that differ more than a shift and a mirror image, for training against wrong or guessed labels.

    rand_augment  `count` of rotation, shear, shift, brightness, contrast, saturation, sharpness, posterize, solarize and
                  autocontrast, each at random strength (Cubuk et al. 2020); nearest pixels, so that a warp does not blur
    cutout        a square of `side` of the image's side, anywhere, set to the image's mean (DeVries and Taylor 2017)
    corrupt       a `share` of the numbers replaced by those of x', the batch in reverse order: features (Bahri et al. 2022)
    mixup         λ x + (1 − λ) x', with x' the batch in reverse order and λ ~ Beta(α, α), at least ½ (Zhang et al. 2018)

The first two change a `share` of the images and leave the others unchanged: a network that only sees changed images is worse on
unchanged ones. As in `augment`, random numbers are drawn first and `apply` is a pure function that a CUDA graph
may capture. Mixing changes the labels as well: `Sequential.mix_targets`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

from mohs._core.validation import check_between, check_whole
from mohs.train.augment_base import Drawn, augmented, check_images, coin, uniform
from mohs.train.warp import as_floats

FAR = 9.0  # center of a square outside the image


def sometimes(numbers: Sequence[Tensor], unchanged: Sequence[float], share: float, generator: torch.Generator) -> Drawn:
    """The random numbers, (n,) each, for a share of the inputs; for the others the values that change nothing."""
    drawn = torch.stack(list(numbers))
    kept = drawn.new_tensor(unchanged).unsqueeze(1)
    return torch.where(coin(drawn.shape[1], generator, share), drawn, kept).unbind()


@dataclass(frozen=True, kw_only=True)
class rand_augment:  # noqa: N801  (augmentations are called like functions)
    """Some of ten operations at random strength, drawn per image. Floating point."""

    formula: ClassVar[str] = "two of ten operations"
    purpose: ClassVar[str] = "strong augmentation of images, as in the robust recipe"
    draws: ClassVar[int] = 1
    operations: ClassVar[int] = 12  # shear and shift count twice: across and down
    count: int = 2
    strength: float = 1.0
    share: float = 1.0

    def __post_init__(self) -> None:
        check_whole("count", self.count, 1)
        check_between("count", self.count, 1, self.operations)
        check_between("strength", self.strength, 0, 1)
        check_between("share", self.share, 0, 1)

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        check_images("rand_augment", shape)
        chances = torch.rand(n, self.operations, generator=generator, device=generator.device)
        chosen = torch.zeros_like(chances).scatter_(1, chances.topk(self.count, 1).indices, 1.0)
        strengths = uniform(n * self.operations, -self.strength, self.strength, generator).view(n, -1)
        return (chosen * strengths * coin(n, generator, self.share).unsqueeze(1),)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        """drawn: strengths (n, operations) from −1 to 1; 0 changes nothing."""
        strengths = drawn[0].view(*drawn[0].shape, 1, 1, 1).unbind(1)  # (n, 1, 1, 1) each
        images = moved(as_floats(x), *drawn[0][:, :5].unbind(1))
        brightness, contrast, saturation, sharpness, posterize, solarize, autocontrast = strengths[5:]
        images = images * (1 + 0.9 * brightness)
        images = torch.lerp(images.mean((1, 2, 3), keepdim=True), images, 1 + 0.9 * contrast)
        if images.shape[1] == 3:
            images = torch.lerp(images.mean(1, keepdim=True), images, 1 + 0.9 * saturation)
        images = torch.lerp(avg_pool2d(images, 3, 1, 1, count_include_pad=False), images, 1 + 0.9 * sharpness).clamp(0, 1)
        levels = torch.exp2(8 - 5 * posterize.abs())
        images = torch.where(posterize == 0, images, (images * levels).floor() / levels)
        images = torch.where(images > 1 - solarize.abs(), 1 - images, images)
        low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
        return torch.lerp(images, (images - low) / (high - low).clamp(min=1 / 255), autocontrast.abs())

    __call__ = augmented


def moved(images: Tensor, turn: Tensor, across: Tensor, down: Tensor, right: Tensor, below: Tensor) -> Tensor:
    """Images rotated by up to 30°, sheared and shifted by up to 0.3, by strengths (n,) from −1 to 1; nearest pixels."""
    angle = turn * (math.pi / 6)
    cos, sin, across, down = angle.cos(), angle.sin(), 0.3 * across, 0.3 * down
    first = torch.stack([cos + across * sin, across * cos - sin, 0.6 * right], 1)  # grids reach from −1 to 1
    second = torch.stack([sin + down * cos, cos - down * sin, 0.6 * below], 1)
    grid = affine_grid(torch.stack([first, second], 1).to(images.dtype), list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="nearest", padding_mode="border", align_corners=False)


@dataclass(frozen=True, kw_only=True)
class cutout:  # noqa: N801
    """A square of each image, which may lie partly outside, set to the image's mean. Floating point."""

    formula: ClassVar[str] = "a square of the image becomes gray"
    purpose: ClassVar[str] = "strong augmentation of images, as in the robust recipe"
    draws: ClassVar[int] = 2
    side: float = 0.4
    share: float = 0.5

    def __post_init__(self) -> None:
        check_between("side", self.side, 0, 1)
        check_between("share", self.share, 0, 1)

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        check_images("cutout", shape)
        centers = [uniform(n, 0, 1, generator) for _ in range(self.draws)]
        return sometimes(centers, (FAR, FAR), self.share, generator)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        images, (height, width) = as_floats(x), x.shape[2:]
        inside = [
            ((torch.arange(side, device=x.device) + 0.5) / side - center.view(-1, 1)).abs() < self.side / 2
            for side, center in zip((height, width), drawn, strict=True)
        ]
        square = (inside[0].unsqueeze(2) & inside[1].unsqueeze(1)).unsqueeze(1)  # (N, 1, H, W)
        return torch.where(square, images.mean((2, 3), keepdim=True), images)

    __call__ = augmented


@dataclass(frozen=True, kw_only=True)
class corrupt:  # noqa: N801
    """A share of the numbers of each input replaced by those of its partner in the reversed batch. Features."""

    formula: ClassVar[str] = "a share of x from another input"
    purpose: ClassVar[str] = "features: the second view of the robust recipe"
    draws: ClassVar[int] = 1
    share: float = 0.3

    def __post_init__(self) -> None:
        check_between("share", self.share, 0, 1)

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        return (torch.rand(n, *shape, generator=generator, device=generator.device) < self.share,)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        return torch.where(drawn[0], x.flip(0), x)

    __call__ = augmented


@dataclass(frozen=True, kw_only=True)
class mixup:  # noqa: N801
    """Each input, and its label, mixed with its partner in the reversed batch. Floating point."""

    formula: ClassVar[str] = "λ x + (1 − λ) x', λ ~ Beta(α, α) ≥ ½"
    purpose: ClassVar[str] = "wrong labels, calibration; images and features"
    draws: ClassVar[int] = 1
    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_between("alpha", self.alpha, 0, ends="(]")

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        both = torch.full((n, 2), float(self.alpha), device=generator.device)
        return (torch._sample_dirichlet(both, generator=generator).amax(1),)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        x = as_floats(x)
        return torch.lerp(x.flip(0), x, drawn[0].to(x.dtype).view(-1, *[1] * (x.dim() - 1)))

    __call__ = augmented
