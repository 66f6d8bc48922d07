"""USPS: 9,298 digits of 16 × 16 from envelopes; levels 0..2000 become 0..255. J. J. Hull, IEEE TPAMI 16(5), 1994."""

from __future__ import annotations

from pathlib import Path

from mohs._core.errors import DataError
from mohs.data.examples import Data
from mohs.data.readers.arrays import npz


def usps(file: str | Path) -> Data:
    """Images (N, 1, 16, 16) uint8 of a .npz file with train_x, train_y, test_x, test_y, or of its folder."""
    file = Path(file) / "usps.npz" if Path(file).is_dir() else Path(file)
    data = npz(file, name="usps")
    if data.test is None or data.train.kind != "images":
        raise DataError(f"{file}: train_x, train_y, test_x and test_y with images (N, 16, 16) are expected")
    return data
