"""How alike two images are after the best alignment: mirrored, moved, cropped or scaled.

An image is reduced to 16 × 16 gray levels. The middle 12 × 12 of one, and of its mirror image, is searched in the other at three
scales (the other reduced to 16, 18 and 20 pixels), at every offset. The distance is √(2 − 2c), where c is the largest normalized
correlation of the two patches, in both directions of the search.

Candidates are the nearest neighbors in feature space, and those of the 16 × 16 gray levels and of their mirror image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from mohs.hardness.neighbor_index import can_search, nearest_of
from mohs.hardness.neighbors import directions_of
from mohs.issues.duplicates import View
from mohs.issues.found import Array
from mohs.issues.image_defects import BATCH_PIXELS, gray_levels

SIDE, PATCH, SCALES = 16, 12, (16, 18, 20)
NEAREST = 3  # candidates by gray levels and by those of the mirror image; twice as many by features
KEPT = 10
BATCH = 256
LEAST_NORM = 4.0  # gray levels; a flat patch has no pattern to compare


@torch.no_grad()
def aligned_view(images: Any, rows: Any = None, *, device: torch.device) -> View | None:
    """The nearest examples of each by their aligned pixels.

    Args:
        images: (N, C, H, W) uint8, a tensor or anything that gives one for a tensor of rows.
        rows: (N, k) the nearest examples by features, if there are features; −1 where there are fewer.
        device: Where to compare.

    Returns:
        The view; None without candidates: many images, no features, and no index (extra `neighbors`).
    """
    scaled = _scaled(images, device)
    gray = scaled[SIDE]
    flat, mirrored = (directions_of((one - one.mean((1, 2), keepdim=True)).flatten(1))[0] for one in (gray, gray.flip(2)))
    every = torch.arange(len(flat), device=device)
    found = [nearest_of(one, flat, every, k=NEAREST)[0] for one in (flat, mirrored)] if can_search(len(flat), device) else []
    found += [] if rows is None else [torch.as_tensor(rows)[:, : 2 * NEAREST]]
    if not found:
        return None
    near = torch.cat([one.to(device) for one in found], 1)
    edge = (SIDE - PATCH) // 2
    middle = slice(edge, edge + PATCH)
    patches = torch.stack([_normalized(one[:, middle, middle].flatten(1)) for one in (gray, gray.flip(2))], 1)
    correlation = torch.empty(near.shape, device=device)
    for part in torch.split(every, BATCH):
        places = torch.cat([_windows(scaled[side][part]) for side in SCALES], 1)  # (B, P, 144)
        wanted = patches[near[part].clamp(min=0)].flatten(1, 2)  # (B, 2k, 144)
        best = (_normalized(places) @ wanted.transpose(1, 2)).amax(1)
        correlation[part] = best.view(len(part), -1, 2).amax(2)
    return _both_ways(near.cpu().numpy(), correlation.cpu().numpy())


def _scaled(images: Any, device: torch.device) -> dict[int, Tensor]:
    """Gray levels (N, side, side) of all images at each scale."""
    count, _, height, width = images.shape
    made: dict[int, list[Tensor]] = {side: [] for side in SCALES}
    for rows in torch.split(torch.arange(count), max(1, BATCH_PIXELS // (height * width))):
        gray = gray_levels(torch.as_tensor(images[rows]).to(device)).unsqueeze(1)
        if min(height, width) > 4 * max(SCALES):  # a coarse mean first: the fine one costs more than all the rest
            gray = avg_pool2d(gray, min(height, width) // (2 * max(SCALES)))
        for side in SCALES:
            made[side].append(interpolate(gray, size=(side, side), mode="bilinear", antialias=True).squeeze(1))
    return {side: torch.cat(parts) if parts else torch.empty(0, side, side, device=device) for side, parts in made.items()}


def _windows(gray: Tensor) -> Tensor:
    """Gray levels (B, side, side) -> every patch of PATCH × PATCH of them, (B, P, PATCH²)."""
    return gray.unfold(1, PATCH, 1).unfold(2, PATCH, 1).flatten(3).flatten(1, 2)


def _normalized(patches: Tensor) -> Tensor:
    """Patches (..., D) with mean 0 and length 1; one of a single gray level becomes 0."""
    centered = patches - patches.mean(-1, keepdim=True)
    lengths: Tensor = centered.norm(dim=-1, keepdim=True)
    return centered / lengths.clamp(min=LEAST_NORM)


def _both_ways(rows: Array, correlation: Array) -> View:
    """Directed candidates (N, k) and their correlations -> the nearest KEPT of each, whichever found the other."""
    count = len(rows)
    own, other, value = np.repeat(np.arange(count), rows.shape[1]), rows.ravel(), correlation.ravel().astype(np.float64)
    there = other >= 0
    own, other, value = own[there], other[there], value[there]
    key = np.r_[own * count + other, other * count + own]
    value = np.r_[value, value]
    order = np.lexsort((-value, key))
    key, value = key[order], value[order]
    once = np.r_[True, key[1:] != key[:-1]] if len(key) else np.empty(0, bool)
    key, value = key[once], value[once]
    order = np.lexsort((-value, key // count))
    own, other, value = key[order] // count, key[order] % count, value[order]
    rank = np.arange(len(own)) - np.searchsorted(own, own)
    kept = rank < KEPT
    near = np.full((count, KEPT), -1)
    distances = np.full((count, KEPT), np.inf)
    near[own[kept], rank[kept]] = other[kept]
    distances[own[kept], rank[kept]] = np.sqrt(np.maximum(0, 2 - 2 * value[kept]))
    return View(near, distances)
