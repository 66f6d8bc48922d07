"""Images read from a store: into one tensor where they fit into memory, else decoded on access.

Every image is decoded once at the start, so that unreadable ones are known, with the reason, before any training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import UnidentifiedImageError
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.decode import Header, Size, choose_mode, choose_size, header, pixels, strictly, why
from mohs.data.examples import Inputs, LeftOut
from mohs.data.image_stores import Store

MEMORY_LIMIT = 2 * 10**9  # bytes of pixels held in memory
Result = TypeVar("Result")


class ImageFiles:
    """Inputs (N, C, H, W) uint8, decoded on access."""

    def __init__(self, store: Store, names: Sequence[Any], *, mode: str, size: Size) -> None:
        self.store, self.names, self.mode, self.size = store, names, mode, size

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> Sequence[int]:
        return (len(self.names), 1 if self.mode == "L" else 3, *self.size)

    def __getitem__(self, places: Tensor) -> Tensor:
        names = [self.names[i] for i in torch.as_tensor(places).flatten().tolist()]
        found = over_names(self.store, names, lambda name: _pixels(self.store, name, self.mode, self.size))
        for name, one in zip(names, found, strict=True):
            if isinstance(one, LeftOut):
                raise DataError(f"{self.store.path(name)}: can no longer be read: {one.reason}")
        return torch.from_numpy(np.stack(found)) if found else torch.empty(0, *self.shape[1:], dtype=torch.uint8)  # type: ignore[arg-type]

    def take(self, places: Tensor, /) -> ImageFiles:
        """The images at these places."""
        return ImageFiles(self.store, [self.names[i] for i in places.tolist()], mode=self.mode, size=self.size)

    def fingerprint(self) -> str:
        """A hash of the names, sizes in bytes, mode and image size."""
        digest = hashlib.sha256(repr((self.mode, self.size)).encode())
        for name in self.names:
            digest.update(repr((name, self.store.size(name))).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} of {tuple(self.shape[1:])})"


@dataclass(frozen=True)
class ReadImages:
    """Images as inputs, the places of the readable ones among the names, the skipped ones, notes, and sizes (N, 2) as stored."""

    inputs: Inputs | Tensor
    kept: list[int]
    left_out: dict[int, LeftOut]
    notes: list[str]
    sizes: Tensor


def read_images(
    store: Store, names: Sequence[Any], *, image_size: int | Size | None = None, memory_limit: int = MEMORY_LIMIT
) -> ReadImages:
    """Read the images of these names, all in one mode and size."""
    with strictly():
        heads = over_names(store, names, lambda name: _header(store, name))
        left_out = {i: one for i, one in enumerate(heads) if isinstance(one, LeftOut)}
        sound = [i for i, one in enumerate(heads) if isinstance(one, Header)]
        known = [one for one in heads if isinstance(one, Header)]
        if not known:
            return ReadImages(torch.empty(0, 3, 1, 1, dtype=torch.uint8), [], left_out, [], torch.empty(0, 2, dtype=torch.int64))
        mode, (size, notes) = choose_mode(known), choose_size(known, image_size)
        shape = (len(sound), 1 if mode == "L" else 3, *size)
        fits = int(np.prod(shape, dtype=np.int64)) <= memory_limit
        whole = np.empty(shape if fits else (0,), np.uint8)

        def decode(at: int) -> LeftOut | None:
            found = _pixels(store, names[sound[at]], mode, size)
            if isinstance(found, LeftOut):
                return found
            if fits:
                whole[at] = found
            return None

        failed = over_names(store, range(len(sound)), decode)
    left_out |= {sound[at]: one for at, one in enumerate(failed) if one is not None}
    good = [at for at, one in enumerate(failed) if one is None]
    kept = [sound[at] for at in good]
    sizes = torch.tensor([(known[at].height, known[at].width) for at in good], dtype=torch.int64).view(-1, 2)
    if not fits:
        return ReadImages(ImageFiles(store, [names[i] for i in kept], mode=mode, size=size), kept, left_out, notes, sizes)
    return ReadImages(torch.from_numpy(whole if len(good) == len(whole) else whole[good]), kept, left_out, notes, sizes)


def over_names(store: Store, names: Sequence[Any], work: Callable[[Any], Result]) -> list[Result]:
    """The results of the work for each name, in order, with as many threads as the store allows."""
    if store.threads < 2 or len(names) < 2:
        return [work(name) for name in names]
    with ThreadPoolExecutor(store.threads) as pool:
        return list(pool.map(work, names, chunksize=1))


def _header(store: Store, name: Any) -> Header | LeftOut:
    try:
        with store.image(name) as image:
            return header(image)
    except Exception as error:  # decoders raise any error; it is listed with the file's name
        return _left_out(store, name, error)


def _pixels(store: Store, name: Any, mode: str, size: Size) -> np.ndarray[Any, Any] | LeftOut:
    try:
        with store.image(name) as image:
            return pixels(image, mode, size)
    except Exception as error:  # likewise
        return _left_out(store, name, error)


def _left_out(store: Store, name: Any, error: Exception) -> LeftOut:
    path = store.path(name)
    return LeftOut(path, why(error, path, store.size(name) if isinstance(error, UnidentifiedImageError) else None))
