"""Images in memory at another size: scaled (bicubic, antialiased) to cover it, and center-cropped.

Files are resized by `decode.py`, which may crop between pixels; here a crop falls on whole pixels.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mohs._core.errors import DataError
from mohs.data.decode import Size
from mohs.data.examples import Data, Examples

CHUNK_ENTRIES = 2**24  # pixels resized at a time, in float32


def resize_images(images: Tensor, size: Size) -> Tensor:
    """Images (N, C, H, W), uint8 or floats from 0 to 1 -> (N, C, *size) of the same type."""
    height, width = images.shape[-2:]
    if (height, width) == size:
        return images
    scale = max(size[0] / height, size[1] / width)
    cover = (max(size[0], round(height * scale)), max(size[1], round(width * scale)))
    top, left = (cover[0] - size[0]) // 2, (cover[1] - size[1]) // 2
    found = torch.empty(*images.shape[:2], *size, dtype=images.dtype)
    chunk = max(1, CHUNK_ENTRIES // max(1, images[0].numel() + images.shape[1] * cover[0] * cover[1])) if len(images) else 1
    for start in range(0, len(images), chunk):
        part = images[start : start + chunk].float()
        part = interpolate(part, cover, mode="bicubic", antialias=True)[..., top : top + size[0], left : left + size[1]]
        whole = images.dtype == torch.uint8
        found[start : start + chunk] = part.round().clamp(0, 255).to(torch.uint8) if whole else part.to(images.dtype)
    return found


def resized_data(data: Data, size: Size) -> Data:
    """The data with all images of this size; an error for other inputs, and for images that are decoded on access."""
    parts = {name: _resized(examples, size) for name, examples in data.splits.items()}
    return Data(parts["train"], parts.get("val"), parts.get("test"))


def _resized(examples: Examples, size: Size) -> Examples:
    if examples.kind != "images":
        raise DataError(
            f"{examples.name}: image_size (--image-size) is for images; these are {examples.kind} of shape {examples.shape}"
        )
    if examples.shape[1:] == size:
        return examples
    if not isinstance(examples.inputs, Tensor):
        raise DataError(
            f"{examples.name}: images of {examples.shape[1:]} are not in memory: open them with image_size={size} (--image-size)"
        )
    return replace(examples, inputs=resize_images(examples.inputs, size))
