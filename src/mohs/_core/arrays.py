"""Arrays from tensors and from .npz and .npy files: by name, no pickled objects, and errors that name the file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from mohs._core.errors import DataError


def as_array(values: Any) -> np.ndarray[Any, Any]:
    """An array or tensor as an array; half precision as float32."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values  # NumPy has no bfloat16
    return np.asarray(values)


def read_arrays(
    path: str | Path, *, only: Collection[str] | None = None, single: str = "array", content: bytes | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a .npz file by name; a .npy file gives its one array under the name `single`.

    Args:
        path: the file, which errors name.
        only: names of the arrays to load; others stay unread.
        single: name of the array of a .npy file.
        content: bytes of the file, where it is part of an archive.

    Raises:
        DataError: the file is missing, damaged, of another format, or holds pickled objects.
    """
    try:
        with Path(path).open("rb") if content is None else io.BytesIO(content) as file:  # closed in every case
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {single: loaded}
            return {name: loaded[name] for name in loaded.files if only is None or name in only}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as .npz or .npy ({error}); pickled objects are not loaded") from error
