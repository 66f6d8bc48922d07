from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mohs._core.arrays import read_arrays
from mohs._core.errors import DataError


def test_arrays_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=[1, 2], y=[3])
    assert {name: array.tolist() for name, array in read_arrays(tmp_path / "a.npz").items()} == {"x": [1, 2], "y": [3]}
    assert list(read_arrays(str(tmp_path / "a.npz"), only=("y",))) == ["y"]
    np.save(tmp_path / "b.npy", [4, 5])
    assert read_arrays(tmp_path / "b.npy", single="weight")["weight"].tolist() == [4, 5]
    content = (tmp_path / "b.npy").read_bytes()
    assert read_arrays("inside.zip/b.npy", content=content)["array"].tolist() == [4, 5]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "pickled.npz", y=np.array([{}], object))
    (tmp_path / "broken.npz").write_bytes(b"PK\3\4 broken")
    (tmp_path / "empty.npy").write_bytes(b"")
    for name in ("pickled.npz", "broken.npz", "empty.npy", "missing.npz"):
        with pytest.raises(DataError, match=rf"{name}: cannot be read as \.npz or \.npy .*pickled objects are not loaded"):
            read_arrays(tmp_path / name)
