"""Shifts and crops of a batch of images, each by its own amount, on their device: the operations of augmentation.

    shifted       by whole pixels, with optional mirroring: exact, for uint8 and floating point
    resized_crop  a box enlarged to the whole image by interpolation: floating point

Both are pure functions of tensors without randomness or host synchronization, and may be captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grid_sample


def shifted(x: Tensor, down: Tensor, right: Tensor, flip: Tensor | None = None, *, mode: str = "constant") -> Tensor:
    """Image n moved down[n] and right[n] pixels, then mirrored where flip[n].

    Padding is 0 or, for "reflect", the image mirrored at its edge without repeating it.
    x (N, C, H, W), down, right (N,) integers, flip (N,) bool -> (N, C, H, W).
    """
    n, _, height, width = x.shape
    rows = torch.arange(height, device=x.device) - down.view(-1, 1)  # (N, H): the source of each row
    across = torch.arange(width, device=x.device).expand(n, -1)
    if flip is not None:
        across = torch.where(flip.view(-1, 1), width - 1 - across, across)
    columns = across - right.view(-1, 1)  # (N, W)
    near_rows, near_columns = (
        (mirrored(rows, height), mirrored(columns, width))
        if mode == "reflect"
        else (rows.clamp(0, height - 1), columns.clamp(0, width - 1))
    )
    image = torch.arange(n, device=x.device).view(-1, 1, 1)
    moved = x[image, :, near_rows.unsqueeze(2), near_columns.unsqueeze(1)].permute(0, 3, 1, 2)  # (N, C, H, W)
    if mode == "reflect":
        return moved
    inside = (near_rows == rows).unsqueeze(2) & (near_columns == columns).unsqueeze(1)  # (N, H, W)
    return moved * inside.unsqueeze(1)


def mirrored(places: Tensor, size: int) -> Tensor:
    """Indices beyond 0..size−1 reflected at the ends without repeating them."""
    return size - 1 - (size - 1 - places.abs()).abs()


def resized_crop(x: Tensor, left: Tensor, top: Tensor, width: Tensor, height: Tensor) -> Tensor:
    """The box of each image, in fractions of its sides (N,), enlarged to the whole image by bilinear interpolation.

    Pixel centers as in `F.interpolate(align_corners=False)`; the edge is repeated beyond the image.
    """
    n, _, rows, columns = x.shape
    across = (left.view(-1, 1) + width.view(-1, 1) * centers(columns, x.device)).unsqueeze(1)  # (N, 1, W), fractions of the side
    down = (top.view(-1, 1) + height.view(-1, 1) * centers(rows, x.device)).unsqueeze(2)  # (N, H, 1)
    grid = 2 * torch.stack([across.expand(n, rows, columns), down.expand(n, rows, columns)], 3) - 1  # (N, H, W, 2), −1 to 1
    return grid_sample(as_floats(x), grid, mode="bilinear", padding_mode="border", align_corners=False)


def centers(size: int, device: torch.device) -> Tensor:
    """The centers of `size` pixels, in fractions of the side."""
    return (torch.arange(size, device=device) + 0.5) / size


def as_floats(x: Tensor) -> Tensor:
    """uint8 becomes 0 to 1; floating point stays."""
    return x.float() / 255 if x.dtype == torch.uint8 else x
