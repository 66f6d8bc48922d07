"""Images of any format as pixels (C, H, W) uint8, C = 3 (RGB) or, where every image is gray, C = 1.

An image is rotated by its EXIF orientation, composed on white where it is transparent, scaled to cover the requested size, and
center-cropped. Sixteen-bit gray is rounded to 256 levels. Images of several sizes become, by default, squares of the median
shorter side, at most 224. Only the first frame of an animation is read.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

GRAY = ("1", "L", "I;16", "I;16B", "I;16L", "I;16N", "I")
DEEP = GRAY[2:]
CLEAR = ("LA", "La", "PA", "RGBA", "RGBa")
COMMON = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "PPM", "TIFF")  # tried first
CAP = 224  # largest default size
KEPT = 64  # images of one size up to this many pixels per side keep their shape
FINER = 2  # a JPEG is decoded at no less than this many times the requested size
UPRIGHT = 1
OTHERS = {  # formats of photos that Pillow does not read, by file extension
    **dict.fromkeys((".heic", ".heif"), "a HEIC image"),
    **dict.fromkeys((".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".raf", ".rw2"), "a raw photo"),
    ".svg": "a vector image",
}
TURNED = (5, 6, 7, 8)  # EXIF orientations that swap height and width
Size = tuple[int, int]


@dataclass(frozen=True)
class Header:
    """Size and mode of an image, known before its pixels are decoded."""

    height: int
    width: int
    gray: bool


@cache
def formats() -> list[str]:
    """Formats that Pillow reads itself; EPS is excluded, as it would start another program (Ghostscript)."""
    Image.init()
    return [*COMMON, *(name for name in Image.ID if name not in (*COMMON, "EPS"))]


@cache
def image_endings() -> frozenset[str]:
    """Endings of the files of these formats: ".jpg", ".png", ..."""
    return frozenset(ending for ending, one in Image.registered_extensions().items() if one in formats() and one in Image.OPEN)


def is_image_name(name: str) -> bool:
    """Whether the name of a file ends as one of an image."""
    return PurePath(name).suffix.lower() in image_endings()


@contextlib.contextmanager
def strictly() -> Iterator[None]:
    """Raise for a decompression bomb, which Pillow only warns of; ignore its other warnings (odd metadata)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def header(image: Image.Image) -> Header:
    """Height and width after rotation, and whether the image is gray."""
    turned = _orientation(image) in TURNED
    width, height = (image.height, image.width) if turned else (image.width, image.height)
    return Header(height, width, image.mode in GRAY and "transparency" not in image.info)


def pixels(image: Image.Image, mode: str, size: Size) -> np.ndarray[Any, Any]:
    """An image -> (C, H, W) uint8; mode is "L" or "RGB", size (H, W)."""
    image.draft(None, (FINER * max(size), FINER * max(size)))  # a large JPEG is decoded at a fraction of its size
    if _orientation(image) != UPRIGHT:
        with contextlib.suppress(Exception):  # the pixels may be valid even if the EXIF block is broken
            image = ImageOps.exif_transpose(image)
    image = _flat(image).convert(mode)
    if (image.height, image.width) != size:
        image = ImageOps.fit(image, (size[1], size[0]), method=Image.Resampling.BICUBIC)
    array = np.asarray(image, dtype=np.uint8)
    return array[None] if mode == "L" else array.transpose(2, 0, 1)


def why(error: BaseException, path: str = "", size: int | None = None) -> str:
    """The reason why the image at this path, of this size in bytes, cannot be read."""
    if isinstance(error, UnidentifiedImageError):
        if size == 0:
            return "the file is empty"
        other = OTHERS.get(PurePath(path).suffix.lower())
        return f"{other}, which Pillow cannot read: convert it to JPEG or PNG" if other else "not an image that Pillow can read"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"over {Image.MAX_IMAGE_PIXELS:,} pixels (a decompression bomb, or a very large image): scale it down"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    kind = "" if isinstance(error, OSError | ValueError) and str(error) else f"{type(error).__name__}: "
    return f"{kind}{error}".replace("\n", " ")


def choose_mode(headers: Sequence[Header]) -> str:
    """ "L" where every image is gray, else "RGB"."""
    return "L" if all(one.gray for one in headers) else "RGB"


def choose_size(headers: Sequence[Header], image_size: int | Size | None) -> tuple[Size, list[str]]:
    """(H, W) for all images, and notes."""
    sizes = {(one.height, one.width) for one in headers}
    if image_size is not None:
        return as_size(image_size), []
    if len(sizes) == 1 and max(next(iter(sizes))) <= KEPT:
        return next(iter(sizes)), []
    side = min(CAP, max(1, int(np.median([min(one.height, one.width) for one in headers]))))
    if sizes == {(side, side)}:
        return (side, side), []
    what = "of several sizes" if len(sizes) > 1 else "of {} × {}".format(*next(iter(sizes)))
    return (side, side), [
        f"images {what} were scaled and center-cropped to {side} × {side}: set image_size (--image-size) for another size"
    ]


def as_size(image_size: int | Size) -> Size:
    """(H, W) of one side length or both."""
    sides = tuple(image_size) if isinstance(image_size, tuple | list) else (image_size, image_size)
    if len(sides) != 2 or not all(isinstance(side, int) and 0 < side <= 65_536 for side in sides):
        raise ValueError(f"image_size (--image-size) must be a number of pixels or (height, width), got {image_size!r}")
    return (sides[0], sides[1])


def _flat(image: Image.Image) -> Image.Image:
    """Without transparency, and with 8 bits per channel."""
    if image.mode in DEEP:
        levels = np.asarray(image).astype(np.int64)
        if levels.min() < 0 or levels.max() > 65_535:
            raise ValueError("gray levels outside 0..65535 have no known range: convert it to 8 or 16 bits")
        return Image.fromarray(((levels + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range: convert it to 8 or 16 bits")
    if image.mode in CLEAR or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image


def _orientation(image: Image.Image) -> int:
    with contextlib.suppress(Exception):
        return int(image.getexif().get(ExifTags.Base.Orientation, UPRIGHT))
    return UPRIGHT
