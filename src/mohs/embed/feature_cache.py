"""Features on disk, written block by block: an interrupted embedding resumes, and features may be larger than memory.

KEY/about.json       inputs and embedder; KEY is a hash of the inputs and of the embedder's version
KEY/features.npy     (N, D), float32, or float16 beyond 2²⁹ entries; read memory-mapped
KEY/progress.json    number of rows that are on disk and their CRC-32, while the embedding is unfinished
KEY/checksums.json   checksums of the other files; damaged features are computed again
KEY/DONE             the features are complete
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.checksums import list_file, read_json, reading, refuse_folder, remove_file, unlist_file
from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs._core.folders import claimed
from mohs._core.forward import row_slices

FOLDER = "MOHS_CACHE"  # environment variable: folder of all cached features
DEFAULT = "~/.cache/mohs/embeddings"
HALF_FROM = 2**29  # features with more entries are kept in float16
BLOCK_SECONDS = 10.0  # seconds between two saves
LARGEST = 65_504.0  # largest float16
Array = np.ndarray[Any, Any]
Blocks = Callable[[int], Iterable[Tensor]]  # first row -> features of consecutive rows from there on


def cache_folder() -> Path:
    """The folder of cached features: MOHS_CACHE, or ~/.cache/mohs/embeddings."""
    return Path(os.environ.get(FOLDER) or DEFAULT).expanduser()


def open_features(folder: Path) -> Tensor | None:
    """Finished features, memory-mapped (copy on write); None if there are none, or if they are damaged."""
    file = folder / "features.npy"
    if not (folder / "DONE").exists():
        return None
    try:
        with reading(file, lost="the features are lost", repair="they are computed again"):
            return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except DataError:
        return None


def write_features(folder: Path, rows: int, about: Mapping[str, Any], blocks: Blocks) -> Tensor:
    """Write features (rows, D) that come in blocks, from the first row that is not on disk yet."""
    with claimed(folder, "about.json", about, kind="embedding"):
        done = open_features(folder)
        if done is not None and len(done) == rows:  # another process finished it in the meantime
            return done
        (folder / "DONE").unlink(missing_ok=True)
        refuse_folder(folder / "features.npy")
        unlist_file(folder / "features.npy")
        at, features, crc = _resume(folder, rows)
        saved = time.monotonic()
        for block in blocks(at):
            if features is None:
                features = _create(folder / "features.npy", rows, block.shape[1])
            features[at : at + len(block)] = _as_stored(block.numpy(), features.dtype)
            crc = zlib.crc32(np.ascontiguousarray(features[at : at + len(block)]).data, crc)
            at += len(block)
            if time.monotonic() - saved > BLOCK_SECONDS:
                _save(folder, features, at, crc)
                saved = time.monotonic()
        if features is not None:
            _save(folder, features, at, crc)
            list_file(folder / "features.npy")
        (folder / "DONE").touch()
        remove_file(folder / "progress.json")
    found = open_features(folder)
    assert found is not None
    return found


def collect_features(rows: int, blocks: Blocks) -> Tensor:
    """Collect features in memory, without a cache."""
    found: Tensor | None = None
    at = 0
    for block in blocks(0):
        if found is None:
            found = torch.empty(rows, block.shape[1])
        found[at : at + len(block)] = block
        at += len(block)
    return torch.empty(0, 0) if found is None else found


def _resume(folder: Path, rows: int) -> tuple[int, Array | None, int]:
    """The number of rows on disk, the array to continue with, and the CRC of these rows; (0, None, 0) if none are usable."""
    try:
        kept = read_json(folder / "progress.json", lost="the rows so far are lost", repair="they are computed again")
        at, crc = int(kept["rows"]), int(kept["crc"])
        features: Array = np.lib.format.open_memmap(folder / "features.npy", mode="r+")
    except (OSError, ValueError, KeyError, TypeError):
        return 0, None, 0
    usable = features.ndim == 2 and len(features) == rows and 0 <= at <= rows
    return (at, features, crc) if usable and _crc(features[:at]) == crc else (0, None, 0)


def _crc(rows: Array) -> int:
    crc = 0
    for part in row_slices(len(rows), 4096):
        crc = zlib.crc32(np.ascontiguousarray(rows[part]).data, crc)
    return crc


def _create(file: Path, rows: int, width: int) -> Array:
    dtype = np.float16 if rows * width > HALF_FROM else np.float32
    created: Array = np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=(rows, width))
    return created


def _as_stored(block: Array, dtype: Any) -> Array:
    return np.clip(block, -LARGEST, LARGEST).astype(dtype) if dtype == np.float16 else block


def _save(folder: Path, features: Any, rows: int, crc: int) -> None:
    features.flush()
    with written_whole(folder / "progress.json") as part:
        part.write_text(json.dumps({"rows": rows, "crc": crc}))
