"""Thumbnails of examples: WebP images of at most 160 pixels, stored in one Parquet file and embedded in the page as data URLs.

The page has them at quality 70, and images of 16 pixels or less, which it enlarges, losslessly. The file has images that did not
have to be reduced losslessly, and the others at quality 90.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mohs.hardness.table import read_parquet, write_table

if TYPE_CHECKING:
    from PIL.Image import Image

    from mohs.data.examples import Examples

SIDE, TINY = 160, 16  # longer side in pixels
PAGE_QUALITY, FILE_QUALITY = 70, 90
Thumbnails = Callable[[Sequence[int]], "Sequence[Image | None]"]


def thumbnails_of(examples: Examples) -> Thumbnails | None:
    """A function from rows to images of these examples; None if they are not images."""
    if examples.kind != "images":
        return None

    def pictures(rows: Sequence[int]) -> list[Image | None]:
        return [_read(examples, row) for row in rows]  # one at a time, since a file may be large

    return pictures


def picture(pixels: object) -> Image:
    """Convert a tensor (C, H, W), uint8 or float in [0, 1], to an image; unless C is 1, 3 or 4, only the first channel counts."""
    import numpy as np
    import torch
    from PIL import Image

    x = torch.as_tensor(pixels)
    x = x if x.dtype == torch.uint8 else (x.float().nan_to_num(0).clamp(0, 1) * 255).round().to(torch.uint8)
    x = x if x.shape[0] in (3, 4) else x[:1]
    values = x.permute(1, 2, 0).cpu().numpy()  # (H, W, C)
    return Image.fromarray(np.ascontiguousarray(values.squeeze(2) if values.shape[2] == 1 else values))


def shrink(image: Image, side: int = SIDE) -> Image:
    """A copy in gray, RGB or RGBA whose longer side is at most `side`."""
    image = image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGBA" if "transparency" in image.info else "RGB")
    small = image.copy()
    small.thumbnail((side, side))
    return small


def webp(image: Image, *, lossless: bool = False, quality: int = PAGE_QUALITY) -> bytes:
    """Encode as WebP; tiny images are always lossless."""
    out = io.BytesIO()
    image.save(out, "webp", quality=quality, lossless=lossless or max(image.size) <= TINY, method=4)
    return out.getvalue()


def data_address(image: Image) -> str:
    """The thumbnail as a data URL for an img element."""
    return f"data:image/webp;base64,{base64.b64encode(webp(shrink(image))).decode()}"


def store_pictures(rows: Sequence[int], images: Sequence[Image | None], path: Path) -> None:
    """Store the thumbnails in one Parquet file; rows whose image is None are skipped."""
    kept = [
        (row, webp(shrink(image), lossless=max(image.size) <= SIDE, quality=FILE_QUALITY))
        for row, image in zip(rows, images, strict=True)
        if image is not None
    ]
    table = pa.table({"row": pa.array([r for r, _ in kept], pa.int64()), "webp": pa.array([b for _, b in kept], pa.binary())})
    write_table(table, path)


def stored_pictures(path: Path, *, lost: str, repair: str) -> Thumbnails:
    """A function from rows to the images that `store_pictures` stored; None for a row that is missing or unreadable.

    lost, repair: For the error if the file is damaged (`check_file`).
    """
    table = read_parquet(path, lost=lost, repair=repair)
    kept = dict(zip(table.column("row").to_pylist(), table.column("webp").to_pylist(), strict=True))

    def pictures(rows: Sequence[int]) -> list[Image | None]:
        return [_opened(kept.get(row)) for row in rows]

    return pictures


def _read(examples: Examples, row: int) -> Image | None:
    import torch

    from mohs._core.errors import DataError

    try:
        return picture(examples.inputs[torch.tensor([row])][0])
    except (DataError, OSError):  # the file is gone: the report shows no picture for the example
        return None


def _opened(data: bytes | None) -> Image | None:
    from PIL import Image, UnidentifiedImageError

    if data is None:
        return None
    try:
        image = Image.open(io.BytesIO(data), formats=["webp"])
        image.load()
    except (UnidentifiedImageError, OSError):
        return None
    return image
