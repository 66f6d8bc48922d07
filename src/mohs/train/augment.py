"""Augmentation of a batch on its device: random numbers are drawn first, then applied without loops or synchronization.

    none                 no change
    crop_flip            a random crop of the image padded by `padding`, mirrored with probability ½
    translate            a shift of up to `pixels` each way, the edge mirrored, as in the AMC authors' code
    gaussian_noise       x + N(0, sd²), from pixels of 0 to 1 or features; floating point; the AMC paper uses sd 0.15
    random_resized_crop  a box with a `scale` of the area and a `ratio` of width to height, enlarged to the image
    rand_augment         two of ten operations at random strength (`augment_strong`)
    cutout               a gray square at a random place
    corrupt              some numbers from another input, for features
    mixup                a mean of two inputs, and of their labels

`draw(n, generator, shape)` returns tensors of n rows each, on the generator's device, for n inputs of that shape (a process may
use some of the rows), and `apply(x, *drawn)` is a pure function of tensors, which a CUDA graph may capture;
`augment(x, generator)` does both. Images are (N, C, H, W), uint8 or floating point; the type is kept unless noted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mohs._core.specs import as_spec, create_spec
from mohs._core.validation import check_between, check_choice, check_whole
from mohs.train.augment_base import Augment, Drawn, augmented, check_images, coin, uniform, whole
from mohs.train.augment_strong import corrupt, cutout, mixup, rand_augment
from mohs.train.warp import as_floats, resized_crop, shifted

MODES = ("constant", "reflect")


@dataclass(frozen=True, kw_only=True)
class none:  # noqa: N801  (augmentations are called like functions)
    """No change."""

    formula: ClassVar[str] = "x"
    purpose: ClassVar[str] = "to turn augmentation off"
    draws: ClassVar[int] = 0

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        return ()

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        return x

    __call__ = augmented


@dataclass(frozen=True, kw_only=True)
class crop_flip:  # noqa: N801
    """A random crop of the padded image, mirrored with probability ½."""

    formula: ClassVar[str] = "shift by up to padding, mirror"
    purpose: ClassVar[str] = "CIFAR and other small photographs; flip=False where left and right matter"
    draws: ClassVar[int] = 3
    padding: int = 4
    mode: str = "constant"
    flip: bool = True

    def __post_init__(self) -> None:
        check_whole("padding", self.padding, 0)
        check_choice("mode", self.mode, MODES)

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        check_images("crop_flip", shape, self.padding)
        down, right = whole(n, self.padding, generator), whole(n, self.padding, generator)
        flip = coin(n, generator)
        return down, right, flip if self.flip else torch.zeros_like(flip)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        return shifted(x, *drawn, mode=self.mode)

    __call__ = augmented


@dataclass(frozen=True, kw_only=True)
class translate:  # noqa: N801
    """A shift of up to `pixels` up, down, left and right."""

    formula: ClassVar[str] = "shift by up to pixels"
    purpose: ClassVar[str] = "digits and letters, which must not be mirrored; the AMC recipe"
    draws: ClassVar[int] = 2
    pixels: int = 2
    mode: str = "reflect"

    def __post_init__(self) -> None:
        check_whole("pixels", self.pixels, 0)
        check_choice("mode", self.mode, MODES)

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        check_images("translate", shape, self.pixels)
        return whole(n, self.pixels, generator), whole(n, self.pixels, generator)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        return shifted(x, *drawn, mode=self.mode)

    __call__ = augmented


@dataclass(frozen=True, kw_only=True)
class gaussian_noise:  # noqa: N801
    """Independent noise on every pixel or feature; the result may leave 0 to 1."""

    formula: ClassVar[str] = "x + N(0, sd²)"
    purpose: ClassVar[str] = "the AMC recipe, and features"
    draws: ClassVar[int] = 1
    sd: float = 0.15

    def __post_init__(self) -> None:
        check_between("sd", self.sd, 0)

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        return (torch.randn(n, *shape, generator=generator, device=generator.device),)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        return as_floats(x) + self.sd * drawn[0]

    __call__ = augmented


@dataclass(frozen=True, kw_only=True)
class random_resized_crop:  # noqa: N801
    """A random box, enlarged to the image; a box larger than the image is clipped. Floating point."""

    formula: ClassVar[str] = "a box of scale of the area, enlarged"
    purpose: ClassVar[str] = "photographs; the ImageNet recipe, and the Encouraging Loss paper's on CIFAR"
    draws: ClassVar[int] = 5
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    flip: bool = True

    def __post_init__(self) -> None:
        for name in ("scale", "ratio"):
            object.__setattr__(self, name, check_span(name, getattr(self, name)))
        check_between("scale", self.scale[1], 0, 1)

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        check_images("random_resized_crop", shape)
        area = uniform(n, self.scale[0], self.scale[1], generator)
        ratio = uniform(n, math.log(self.ratio[0]), math.log(self.ratio[1]), generator).exp() * (shape[1] / shape[2])
        width, height = ((area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1))
        left, top = uniform(n, 0, 1, generator) * (1 - width), uniform(n, 0, 1, generator) * (1 - height)
        flip = coin(n, generator)
        return left, top, width, height, flip if self.flip else torch.zeros_like(flip)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        left, top, width, height, flip = drawn
        return resized_crop(x, torch.where(flip, left + width, left), top, torch.where(flip, -width, width), height)

    __call__ = augmented


@dataclass(frozen=True)
class Sequential:
    """Augmentations applied in order."""

    steps: tuple[Augment, ...]

    @property
    def draws(self) -> int:
        return sum(step.draws for step in self.steps)

    def draw(self, n: int, generator: torch.Generator, shape: Sequence[int]) -> Drawn:
        return tuple(numbers for step in self.steps for numbers in step.draw(n, generator, shape))

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        for step in self.steps:
            x, drawn = step.apply(x, *drawn[: step.draws]), drawn[step.draws :]
        return x

    @property
    def mixes(self) -> bool:
        """Whether inputs are mixed, so that their labels must be mixed too."""
        return any(isinstance(step, mixup) for step in self.steps)

    def mix_targets(self, targets: Tensor, *drawn: Tensor) -> Tensor:
        """Soft labels (n, ..., K), mixed as `apply` mixes the inputs with the same random numbers."""
        for step in self.steps:
            if isinstance(step, mixup):
                targets = step.apply(targets, *drawn[: step.draws])
            drawn = drawn[step.draws :]
        return targets

    __call__ = augmented


AUGMENTATIONS: dict[str, type[Augment]] = {
    "none": none,
    "crop_flip": crop_flip,
    "translate": translate,
    "gaussian_noise": gaussian_noise,
    "random_resized_crop": random_resized_crop,
    "rand_augment": rand_augment,
    "cutout": cutout,
    "corrupt": corrupt,
    "mixup": mixup,
}


def create_augment(specs: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]) -> Sequential:
    """The augmentations that the specs name, in this order: `create_augment(["translate", {"name": "gaussian_noise"}])`."""
    given = [specs] if isinstance(specs, str | Mapping) else specs
    return Sequential(tuple(create_spec(AUGMENTATIONS, "augmentation", as_spec(spec)) for spec in given))


def check_span(name: str, value: Sequence[float]) -> tuple[float, float]:
    """Validate a range (low, high)."""
    if not isinstance(value, list | tuple) or len(value) != 2 or not 0 < value[0] <= value[1]:
        raise ValueError(f"{name} must be two positive numbers, the smaller first, got {value!r}")
    return float(value[0]), float(value[1])
