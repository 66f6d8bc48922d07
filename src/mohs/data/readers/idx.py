"""MNIST and Fashion-MNIST in the published format: four idx files, plain or gzipped, in one folder.

An idx file: two zero bytes, the type (8: unsigned byte), the number of dimensions, each dimension as a big-endian 32-bit
number, then the values. Y. LeCun, C. Cortes & C. Burges, "The MNIST database of handwritten digits".
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples

FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
DIGITS = list(range(10))
FILES = {"train": ("train-images", "train-labels"), "test": ("t10k-images", "t10k-labels")}
UNSIGNED_BYTE = 8


def mnist(folder: str | Path, *, classes: Sequence[Any] | None = None, name: str = "mnist") -> Data:
    """Images (N, 1, H, W) and labels of the four files in a folder (or in its folder `raw`, where torchvision puts them)."""
    folder = Path(folder)
    home = folder / "raw" if find_file(folder, FILES["train"][0]) is None and (folder / "raw").is_dir() else folder
    parts: dict[str, Examples] = {}
    for split, (images, labels) in FILES.items():
        x, y = (_file(home, stem) for stem in (images, labels))
        pixels, numbers = read_idx(x), read_idx(y)
        if pixels.dim() != 3 or numbers.dim() != 1 or len(pixels) != len(numbers):
            raise DataError(
                f"{x} holds {tuple(pixels.shape)}, {y} {tuple(numbers.shape)}: images (N, H, W) and labels (N,) are expected"
            )
        names = list(range(int(numbers.max()) + 1)) if classes is None else list(classes)
        parts[split] = Examples(pixels[:, None], numbers.long(), parts["train"].classes if parts else names, name=name)
    return Data(parts["train"], test=parts["test"])


def fashion_mnist(folder: str | Path) -> Data:
    """Fashion-MNIST (Xiao et al., 2017), with its class names."""
    return mnist(folder, classes=FASHION, name="fashion-mnist")


def read_idx(path: Path) -> Tensor:
    """The array of unsigned bytes in an idx file."""
    try:
        raw = path.read_bytes()
        content = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE:
        raise DataError(f"{path}: not an idx file of unsigned bytes: it begins with {content[:4].hex() or 'nothing'}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{path}: truncated within its header")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    size = int(np.prod(shape, dtype=object))
    if len(content) - start != size:
        raise DataError(f"{path}: its header says {size} values {shape}, it holds {len(content) - start}: download it again")
    return torch.from_numpy(np.frombuffer(bytearray(content), np.uint8)[start:].reshape(shape))


def find_file(folder: Path, stem: str) -> Path | None:
    """The file of this name, gzipped or not, with a dash or a dot before its type."""
    return next((file for ending in ("", ".gz") for file in folder.glob(f"{stem}[-.]idx?-ubyte{ending}")), None)


def _file(folder: Path, stem: str) -> Path:
    found = find_file(folder, stem)
    if found is None:
        names = ", ".join(f"{name}-idx{3 if 'images' in name else 1}-ubyte[.gz]" for pair in FILES.values() for name in pair)
        raise DataError(f"{folder}: {stem} is missing; the four files are {names}")
    return found
