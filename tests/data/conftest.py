from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Save = Callable[..., Path]


@pytest.fixture
def save() -> Save:
    """save(path, color=, size=, mode=): write a small image, its folders too."""

    def write(path: Path, *, color: object = None, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        if color is None:
            seed = sum(path.name.encode("utf-8", "surrogateescape"))
            pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).save(path)
        else:
            Image.new(mode, size, color).save(path)
        return path

    return write
