"""Features on disk, written block by block: an interrupted embedding resumes, and features may be larger than memory.

KEY/about.json       inputs and embedder; KEY is a hash of the inputs and of the embedder's version
KEY/features.npy     (N, D), float32, or float16 beyond 2²⁹ entries; read memory-mapped
KEY/progress.json    number of rows that are on disk, while the embedding is unfinished
KEY/DONE             the features are complete
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.files import written_whole
from mohs._core.folders import claimed

FOLDER = "MOHS_CACHE"  # variable that names the folder of all cached features
DEFAULT = "~/.cache/mohs/embeddings"
HALF_FROM = 2**29  # entries from which on features are kept in float16
BLOCK_SECONDS = 10.0  # between two saves
LARGEST = 65_504.0  # of float16
Array = np.ndarray[Any, Any]
Blocks = Callable[[int], Iterable[Tensor]]  # first row -> features of consecutive rows from there on


def cache_folder() -> Path:
    """The folder of cached features: MOHS_CACHE, or ~/.cache/mohs/embeddings."""
    return Path(os.environ.get(FOLDER) or DEFAULT).expanduser()


def open_features(folder: Path) -> Tensor | None:
    """Finished features, memory-mapped (copy on write); None if there are none."""
    if not (folder / "DONE").exists():
        return None
    return torch.from_numpy(np.load(folder / "features.npy", mmap_mode="c", allow_pickle=False))


def write_features(folder: Path, rows: int, about: Mapping[str, Any], blocks: Blocks) -> Tensor:
    """Write features (rows, D) that come in blocks, from the first row that is not on disk yet."""
    with claimed(folder, "about.json", about, kind="embedding"):
        done = open_features(folder)
        if done is not None:  # another process finished it in the meantime
            return done
        at, features = _resume(folder, rows)
        saved = time.monotonic()
        for block in blocks(at):
            if features is None:
                features = _create(folder / "features.npy", rows, block.shape[1])
            features[at : at + len(block)] = _as_stored(block.numpy(), features.dtype)
            at += len(block)
            if time.monotonic() - saved > BLOCK_SECONDS:
                _save(folder, features, at)
                saved = time.monotonic()
        if features is not None:
            _save(folder, features, at)
        (folder / "DONE").touch()
        (folder / "progress.json").unlink(missing_ok=True)
    found = open_features(folder)
    assert found is not None
    return found


def collect_features(rows: int, blocks: Blocks) -> Tensor:
    """The same in memory, without a cache."""
    found: Tensor | None = None
    at = 0
    for block in blocks(0):
        if found is None:
            found = torch.empty(rows, block.shape[1])
        found[at : at + len(block)] = block
        at += len(block)
    return torch.empty(0, 0) if found is None else found


def _resume(folder: Path, rows: int) -> tuple[int, Array | None]:
    """The number of rows on disk and the array to continue with; (0, None) if nothing usable exists."""
    try:
        at = int(json.loads((folder / "progress.json").read_text())["rows"])
        features: Array = np.lib.format.open_memmap(folder / "features.npy", mode="r+")
    except (OSError, ValueError, KeyError, TypeError):
        return 0, None
    return (at, features) if features.ndim == 2 and len(features) == rows and 0 <= at <= rows else (0, None)


def _create(file: Path, rows: int, width: int) -> Array:
    dtype = np.float16 if rows * width > HALF_FROM else np.float32
    created: Array = np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=(rows, width))
    return created


def _as_stored(block: Array, dtype: Any) -> Array:
    return np.clip(block, -LARGEST, LARGEST).astype(dtype) if dtype == np.float16 else block


def _save(folder: Path, features: Any, rows: int) -> None:
    features.flush()
    with written_whole(folder / "progress.json") as part:
        part.write_text(json.dumps({"rows": rows}))
