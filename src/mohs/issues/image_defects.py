"""Which images are dark, bright, blurry, almost empty, gray among colored ones, or of an odd size or shape.

    dark               1 − 99th percentile of the gray levels, from 0 (black) to 1 (white)
    bright             1st percentile of the gray levels
    low_information    1 − log₂(1 + standard deviation of the gray levels) / 7: 0 for half black and half white, 1 for one color
    blurry             share of the differences between neighboring pixels that survive another blur, of the sharper axis
    grayscale          share of the pixels whose channels differ by at most 4 levels
    odd_size           1 − min(r, 1/r), r = √(height · width) over its median
    odd_aspect         the same, r = width / height over its median

Each score is from 0 to 1, higher is worse. An image is flagged if its score is high in itself (LIMITS) and beyond what is usual
in these data (`upper_fence`): photos taken at night, or digits on black, are not all dark. The measure of blur is that of Crete
et al., "The blur effect" (SPIE 2007), with a width that grows with the image; it depends neither on contrast nor on exposure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs.issues.found import Array, Found
from mohs.issues.unusual import upper_fence

LIMITS = {
    "dark": 0.68,
    "bright": 0.75,
    "low_information": 0.55,
    "blurry": 0.75,
    "grayscale": 0.999,
    "odd_size": 2 / 3,
    "odd_aspect": 0.6,
}
BATCH_PIXELS = 2**19  # pixels measured at a time
LINES = 48  # rows and columns of a large image, at least, that are measured
LEVELS = 256
GRAY = (0.299, 0.587, 0.114)  # of red, green and blue
CHANNELS_DIFFER = 4  # levels; JPEG changes the channels of a gray image by fewer
COLORED = 0.9  # median share of gray pixels above which data are not colored


def image_defects(images: Any, sizes: Any = None, *, device: torch.device | str = "cpu") -> dict[str, Found]:
    """Defects of images.

    Args:
        images: (N, C, H, W) uint8, a tensor or anything that gives one for a tensor of rows.
        sizes: height and width (N, 2) of each image as it was stored, if that differs.
        device: Where to measure.

    Returns:
        Score and flag of each image by the name of the defect; `grayscale` for colored data only, size and shape with `sizes`.
    """
    measured = measure_images(images, device=device)
    if measured["grayscale"].size and np.median(measured["grayscale"]) > COLORED:
        del measured["grayscale"]
    if sizes is not None:
        height, width = np.asarray(sizes, dtype=np.float64).reshape(-1, 2).T
        measured["odd_size"] = oddness(np.sqrt(height * width))
        measured["odd_aspect"] = oddness(width / height)
    return {name: Found(score, (score > LIMITS[name]) & (score > upper_fence(score))) for name, score in measured.items()}


def oddness(values: Array) -> Array:
    """Positive values (N,) -> 1 − min(r, 1/r) of their ratio r to the median: 0 if usual, 1/2 if twice or half."""
    ratio = values / np.median(values)
    odd: Array = 1 - np.minimum(ratio, 1 / ratio)
    return odd


@torch.no_grad()
def measure_images(images: Any, *, device: torch.device | str = "cpu") -> dict[str, Array]:
    """The five measures that need pixels, each (N,); of large images LINES rows and columns are measured."""
    count, _, height, width = images.shape
    made: dict[str, list[Tensor]] = {name: [] for name in ("dark", "bright", "low_information", "blurry", "grayscale")}
    across, down = (slice(side // LINES // 2, None, max(1, side // LINES)) for side in (height, width))
    for rows in torch.split(torch.arange(count), max(1, BATCH_PIXELS // (height * width))):
        batch = torch.as_tensor(images[rows]).to(device)
        lines = batch[:, :, across]
        gray = gray_levels(lines)
        low, high, spread = levels(gray)
        made["dark"].append(1 - high / (LEVELS - 1))
        made["bright"].append(low / (LEVELS - 1))
        made["low_information"].append(1 - torch.log2(1 + spread) / 7)
        made["blurry"].append(torch.minimum(blur_effect(gray), blur_effect(gray_levels(batch[..., down]).transpose(1, 2))))
        made["grayscale"].append(((lines.amax(1) - lines.amin(1)) <= CHANNELS_DIFFER).float().mean((1, 2)))
    return {name: torch.cat(parts).cpu().numpy() if parts else np.empty(0, np.float32) for name, parts in made.items()}


def gray_levels(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, H, W) from 0 to 255; the mean of the channels unless there are three."""
    weights = GRAY if images.shape[1] == 3 else [1 / images.shape[1]] * images.shape[1]
    gray = images[:, 0] * weights[0]
    for channel, weight in zip(images.unbind(1)[1:], weights[1:], strict=True):
        gray.add_(channel, alpha=weight)
    return gray


def levels(gray: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, H, W) -> 1st and 99th percentile and standard deviation of the gray levels, each (B,)."""
    pixels = gray.flatten(1)
    places = pixels.round().long()
    counts = torch.zeros(len(pixels), LEVELS, device=gray.device).scatter_add_(1, places, torch.ones_like(pixels))
    below = counts.cumsum(1)
    low, high = ((below < share * pixels.shape[1]).sum(1).float() for share in (0.01, 0.99))
    return low, high, pixels.std(1, correction=0)


def blur_effect(lines: Tensor) -> Tensor:
    """Lines of pixels (B, L, W) -> how little another blur changes them (B,): near 0 if sharp, 1 if blurred or of one color."""
    width = min(9, max(3, lines.shape[2] // 24 * 2 + 1))  # odd; images of 32 pixels: 3, of 96 and more: 9
    if lines.shape[2] <= width:
        return lines.new_zeros(len(lines))
    sums = lines.cumsum(2)
    smooth = (sums[..., width:] - sums[..., :-width]).diff(dim=2).abs_() / width
    steps = lines[..., width // 2 + 1 : width // 2 + 2 + smooth.shape[2]].diff(dim=2).abs_()
    whole = steps.sum((1, 2))
    lost = steps.sub_(smooth).clamp_(min=0).sum((1, 2))
    return torch.where(whole > 0, 1 - lost / whole.clamp(min=1e-9), 1.0)
