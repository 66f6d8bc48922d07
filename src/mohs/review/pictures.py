"""Pictures of examples by their row, resized and cached; the path is the table's, never the request's.

The first that has the picture: the file that the table names, the audit's thumbnails, the data themselves (`original`). Files
are decoded as in `mohs.data`, with its limit on pixels. With a folder of images, files outside of it are not read.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from mohs._core.checksums import check_file
from mohs.audit.file_names import PICTURES, REPAIR
from mohs.audit.thumbnails import SIDE, stored_pictures
from mohs.data.decode import formats, strictly
from mohs.review.database import Database
from mohs.review.original import Original

SIZES = (160, 320, 1024)  # longer side in pixels
TINY = 64  # longer side of images that are sent unscaled, for the page to enlarge
QUALITY = 82
MOST_PATHS = 100_000  # kept in memory
CACHE = 96 * 2**20  # bytes of encoded pictures kept in memory
Encoded = tuple[bytes, str]  # and its media type


class Pictures:
    """Encoded pictures by row and size; `of` may be called from several threads."""

    def __init__(self, database: Database, original: Original) -> None:
        self.database, self.original, self.source = database, original, database.source
        self._root = None if self.source.images is None else self.source.images.resolve()
        self._kept: OrderedDict[tuple[int, int], Encoded] = OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()
        self._stored: Any = None
        self._paths: dict[int, str | None] = {}

    def remember(self, cards: Iterable[Mapping[str, Any]]) -> None:
        """Keep the paths of examples that are about to be shown."""
        if len(self._paths) > MOST_PATHS:
            self._paths = {}
        self._paths |= {card["row"]: card.get("path") for card in cards}

    def of(self, row: int, size: int) -> Encoded | None:
        """The picture of a row, at most `size` pixels long; None if there is none or it cannot be read."""
        with self._lock:
            if (row, size) in self._kept:
                self._kept.move_to_end((row, size))
                return self._kept[row, size]
        image = self._image(row, size)
        if image is None:
            return None
        made = encode(image, size)
        with self._lock:
            self._kept[row, size] = made
            self._bytes += len(made[0])
            while self._bytes > CACHE:
                _, (old, _) = self._kept.popitem(last=False)
                self._bytes -= len(old)
        return made

    def _image(self, row: int, size: int) -> Image.Image | None:
        image = self._from_file(row, size)
        small = self._thumbnail(row) if image is None else None
        if image is None and small is not None and (max(small.size) < SIDE or size <= SIZES[0]):  # it is exact, or large enough
            return small
        if image is None and self.source.kind == "images":
            image = self.original.picture(row)
        return small if image is None else image

    def _from_file(self, row: int, size: int) -> Image.Image | None:
        if row not in self._paths:
            self.remember(self.database.fetch([row], ["path"]))
        path = self._paths.get(row)
        file = None if not path else self._inside(path)
        if file is None:
            return None
        try:
            with strictly(), Image.open(file, formats=formats()) as image:
                image.draft("RGB", (size, size))
                return upright(image)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
            return None

    def _inside(self, path: str) -> Path | None:
        """The file, unless it lies outside the folder of images or is not a plain file."""
        with contextlib.suppress(OSError, ValueError):
            file = Path(path) if self._root is None else (self._root / path).resolve()
            if file.is_file() and (self._root is None or file.is_relative_to(self._root)):
                return file
        return None

    def _thumbnail(self, row: int) -> Image.Image | None:
        file = self.source.file(PICTURES)
        if file is None:
            return None
        with self._lock:
            if self._stored is None:
                about = {"lost": "the thumbnails are lost", "repair": REPAIR}
                check_file(file, **about)
                self._stored = stored_pictures(file, **about)
        found: Image.Image | None = self._stored([row])[0]
        return found


def upright(image: Image.Image) -> Image.Image:
    """Rotated by its EXIF orientation, in gray, RGB or RGBA with 8 bits per channel."""
    with contextlib.suppress(Exception):  # the pixels may be valid even if the EXIF block is broken
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        image = image.point(lambda level: level / 256).convert("L")
    if image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("RGBA" if image.mode in ("LA", "PA", "P") and "transparency" in image.info else "RGB")
    image.load()
    return image


def encode(image: Image.Image, size: int) -> Encoded:
    """Tiny or transparent images as PNG, others as JPEG, the longer side at most `size`."""
    image = image.copy()
    image.thumbnail((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
    out, exact = io.BytesIO(), max(image.size) <= TINY or image.mode == "RGBA"
    image.save(out, "png" if exact else "jpeg", **({} if exact else {"quality": QUALITY}))
    return out.getvalue(), "image/png" if exact else "image/jpeg"
