"""Metrics of an explanation map: its size and concentration, and whether the model agrees with it.

    area       share of pixels at or above half of the map's maximum          entropy   −Σ m log m / log(HW), m the map at sum 1
    deletion   area under the class's probability as pixels are removed, most important first: low is good
    insertion  area under it as they are added to a blurred image: high is good
    inside     share of the map's mass on the object, if its mask is known

A map of 0 has no area and no entropy (NaN). Deletion paints the image's mean color, insertion starts from a Gaussian blur;
areas are trapezoids over `steps` equal steps. Both show the model images unlike its training data: they rank maps and models
on the same data, and mean little by themselves.
Petsiuk, Das & Saenko, "RISE" (BMVC 2018), section 3.3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mohs._core.eval_mode import eval_mode
from mohs._core.validation import check_between
from mohs.data.degrade import gaussian_filter
from mohs.evaluate.outputs import Model, logits_of


def area(maps: Tensor, *, level: float = 0.5) -> Tensor:
    """maps (N, H, W) -> share of pixels at or above `level` of the maximum (N,)."""
    check_between("level", level, 0, 1, ends="(]")
    flat = _flat(maps)
    top = flat.amax(1, keepdim=True)
    return (flat >= level * top).to(flat.dtype).mean(1).masked_fill(top.squeeze(1) == 0, torch.nan)


def map_entropy(maps: Tensor) -> Tensor:
    """maps (N, H, W) -> entropy (N,), 0 for one pixel and 1 for a uniform map."""
    flat = _flat(maps)
    mass = flat / flat.sum(1, keepdim=True)  # 0/0 = NaN
    entropy: Tensor = torch.special.entr(mass).sum(1) / math.log(flat.shape[1])
    return entropy


def inside(maps: Tensor, masks: Tensor) -> Tensor:
    """maps (N, H, W), masks (N, H, W) of 0 and 1 -> share of the mass where the mask is 1 (N,)."""
    if masks.shape != maps.shape:
        raise ValueError(f"masks must have the maps' shape {tuple(maps.shape)}, got {tuple(masks.shape)}")
    flat = _flat(maps)
    return (flat * masks.flatten(1)).sum(1) / flat.sum(1)


def deletion(model: Model, images: Tensor, maps: Tensor, classes: Tensor, *, steps: int = 20) -> Tensor:
    """images (n, C, H, W), maps (n, H, W), classes (n,) -> area under the class's probability (n,) as pixels are removed."""
    plain = images.mean((2, 3), keepdim=True).expand_as(images)
    return _area_under(model, images, plain, maps, classes, steps)


def insertion(model: Model, images: Tensor, maps: Tensor, classes: Tensor, *, steps: int = 20) -> Tensor:
    """The same as pixels are added to a blurred image."""
    return _area_under(model, blurred(images), images, maps, classes, steps)


def blurred(images: Tensor) -> Tensor:
    """images (n, C, H, W) blurred by a Gaussian with an SD of a tenth of the shorter side: shapes vanish, colors stay."""
    sd = max(0.5, min(images.shape[-2:]) / 10)
    reach = min(math.ceil(3 * sd), min(images.shape[-2:]) - 1)
    return gaussian_filter(images, sd, reach=reach, edge="reflect")


@torch.no_grad()
def _area_under(model: Model, before: Tensor, after: Tensor, maps: Tensor, classes: Tensor, steps: int) -> Tensor:
    """Area under the class's probability from all of `before` to all of `after`, the most important pixels first."""
    check_between("steps", steps, 1)
    flat = _flat(maps)
    rank = flat.argsort(dim=1, descending=True, stable=True).argsort(dim=1).view(maps.shape).unsqueeze(1)  # (n, 1, H, W)
    shares = []
    with eval_mode(model):
        for step in range(steps + 1):
            mixed = torch.where(rank < round(step / steps * flat.shape[1]), after, before)
            probs = logits_of(model(mixed)).softmax(1)
            shares.append(probs.gather(1, classes.unsqueeze(1)).squeeze(1))
    curve = torch.stack(shares)  # (steps + 1, n)
    return (curve[1:] + curve[:-1]).mean(0) / 2


def _flat(maps: Tensor) -> Tensor:
    if maps.dim() != 3:
        raise ValueError(f"maps must have shape (N, H, W), got {tuple(maps.shape)}")
    return maps.flatten(1)
