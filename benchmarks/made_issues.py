"""Issues made on purpose, so that it is known which examples have them: copies of images and texts, and defects of images."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

Array = np.ndarray[Any, Any]
Random = np.random.Generator
Change = Callable[[Image.Image, Random], Image.Image]


def crop(image: Image.Image, rng: Random) -> Image.Image:
    """A part of 80 to 95 % of each side, scaled back."""
    width, height = image.size
    w, h = (max(2, round(side * rng.uniform(0.8, 0.95))) for side in (width, height))
    left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
    return image.resize((width, height), Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))


def recompress(image: Image.Image, rng: Random) -> Image.Image:
    """JPEG of quality 20 to 60."""
    out = io.BytesIO()
    image.save(out, "jpeg", quality=int(rng.integers(20, 61)))
    return Image.open(out).convert(image.mode)


def flip(image: Image.Image, rng: Random) -> Image.Image:
    """The mirror image."""
    return ImageOps.mirror(image)


def shift(image: Image.Image, rng: Random) -> Image.Image:
    """Moved by 3 to 10 % of each side; the border is repeated."""
    array = np.asarray(image)
    dy, dx = (int(np.ceil(side * rng.uniform(0.03, 0.1))) * int(rng.choice([-1, 1])) for side in array.shape[:2])
    pad = [(max(dy, 0), max(-dy, 0)), (max(dx, 0), max(-dx, 0))] + [(0, 0)] * (array.ndim - 2)
    whole = np.pad(array, pad, mode="edge")
    return Image.fromarray(whole[max(-dy, 0) :, max(-dx, 0) :][: array.shape[0], : array.shape[1]])


COPIES: dict[str, Change] = {"crop": crop, "recompress": recompress, "flip": flip, "shift": shift}


def darken(image: Image.Image, rng: Random) -> Image.Image:
    """A tenth to a quarter of the light."""
    share = rng.uniform(0.05, 0.25)
    return image.point(lambda level: level * share)


def brighten(image: Image.Image, rng: Random) -> Image.Image:
    """Overexposed: three quarters to nearly all of the way to white."""
    share = rng.uniform(0.75, 0.95)
    return image.point(lambda level: level + (255 - level) * share)


def blur(image: Image.Image, rng: Random) -> Image.Image:
    """A Gaussian of 3 to 8 % of the shorter side."""
    return image.filter(ImageFilter.GaussianBlur(min(image.size) * rng.uniform(0.03, 0.08)))


def blank(image: Image.Image, rng: Random) -> Image.Image:
    """One color of the image with a little noise, as of a covered lens or a failed download."""
    color = np.asarray(image.resize((1, 1)), dtype=float)
    level = rng.normal(0, rng.uniform(0, 3), np.asarray(image).shape)
    return Image.fromarray((color + level).clip(0, 255).astype(np.uint8))


def desaturate(image: Image.Image, rng: Random) -> Image.Image:
    """Gray, stored as color."""
    return image.convert("L").convert(image.mode)


def resize(image: Image.Image, rng: Random) -> Image.Image:
    """A fifth to a half of each side, or three to eight times."""
    factor = rng.uniform(0.08, 0.2) if rng.random() < 0.5 else rng.uniform(5, 8)
    return image.resize([max(3, round(side * factor)) for side in image.size])  # type: ignore[arg-type]


def strip(image: Image.Image, rng: Random) -> Image.Image:
    """A strip three to eight times longer than wide."""
    width, height = image.size
    narrow = max(3, round(min(width, height) / rng.uniform(3, 8)))
    return image.crop((0, 0, width, narrow) if rng.random() < 0.5 else (0, 0, narrow, height))


DEFECTS: dict[str, Change] = {
    "dark": darken, "bright": brighten, "blurry": blur, "low_information": blank, "grayscale": desaturate, "odd_size": resize,
    "odd_aspect": strip,
}  # fmt: skip


def swap_words(text: str, rng: Random) -> str:
    """Two neighboring words change places, twice."""
    words = text.split()
    for _ in range(2):
        if len(words) > 1:
            at = int(rng.integers(len(words) - 1))
            words[at], words[at + 1] = words[at + 1], words[at]
    return " ".join(words)


def mistype(text: str, rng: Random) -> str:
    """Two to four letters dropped, doubled or exchanged."""
    letters = list(text)
    for _ in range(int(rng.integers(2, 5))):
        at = int(rng.integers(len(letters) - 1))
        how = rng.integers(3)
        letters[at : at + 2] = [letters[at]] if how == 0 else [letters[at]] * 2 if how == 1 else letters[at : at + 2][::-1]
    return "".join(letters)


def drop_word(text: str, rng: Random) -> str:
    """One word left out."""
    words = text.split()
    return " ".join(words[:at] + words[at + 1 :]) if (at := int(rng.integers(len(words)))) >= 0 and len(words) > 1 else text


REWRITES: dict[str, Callable[[str, Random], str]] = {"swap": swap_words, "typo": mistype, "drop": drop_word}


def changed(images: Array, rng: Random, changes: dict[str, Change]) -> tuple[Array, list[str]]:
    """Images (N, C, H, W) uint8, each changed in one of these ways, in turn, and the ways."""
    names = [list(changes)[i % len(changes)] for i in range(len(images))]
    made = [as_array(changes[name](as_image(one), rng)) for one, name in zip(images, names, strict=True)]
    return np.stack(made), names


def as_image(pixels: Array) -> Image.Image:
    """(C, H, W) uint8 as a picture."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def as_array(image: Image.Image) -> Array:
    """A picture as (C, H, W) uint8."""
    array = np.asarray(image, dtype=np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
