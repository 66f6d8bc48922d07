"""Olivetti faces: 400 photographs of 64 × 64, ten of each of 40 people (AT&T Laboratories Cambridge, 1992 to 1994)."""

from __future__ import annotations

from pathlib import Path

from mohs._core.arrays import read_arrays
from mohs._core.errors import DataError
from mohs.data.examples import Data
from mohs.data.readers.arrays import from_mapping


def olivetti(file: str | Path) -> Data:
    """Images (400, 1, 64, 64) uint8 of a .npz file with faces (N, 64, 64) and subject (N,), or of its folder."""
    file = Path(file) / "olivetti.npz" if Path(file).is_dir() else Path(file)
    arrays = read_arrays(file)
    if not {"faces", "subject"} <= set(arrays):
        raise DataError(f"{file}: faces (N, 64, 64) and subject (N,) are expected, found {', '.join(arrays)}")
    return from_mapping({"images": arrays["faces"], "labels": arrays["subject"]}, name="olivetti")
