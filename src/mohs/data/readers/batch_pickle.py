"""A safe reader of the pickles in which CIFAR is published; it returns only plain values and NumPy arrays.

A pickle may name any function and have it called. This reader knows the four names that the official batches use (one of
them at NumPy's old and new address), replaces them by its own stand-ins, and rejects a file with any other name.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from mohs._core.errors import DataError

NUMBERS = ("u1", "i1", "i2", "i4", "i8", "f4", "f8", "b1")


class PickledType:
    """Stands in for numpy.dtype: one of a few types of numbers."""

    def __init__(self, code: bytes | str, *rest: object) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else code
        if text not in NUMBERS:
            raise pickle.UnpicklingError(f"an array of {text!r} is not allowed")
        self.code = text

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        self.code = f">{self.code}" if order == ">" else self.code


class PickledArray:
    """Stands in for numpy.ndarray, until its state brings shape, type and bytes."""

    array: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, columns_first, raw = state
        if not isinstance(kind, PickledType) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array that does not hold numbers")
        self.array = np.frombuffer(raw, np.dtype(kind.code)).reshape(shape, order="F" if columns_first else "C")


def _empty_array(*_: object) -> PickledArray:
    return PickledArray()


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for the older protocols; no other codec is allowed."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not allowed")
    return text.encode("latin1")


KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledType,
    ("_codecs", "encode"): _encode,
}


class PlainUnpickler(pickle.Unpickler):
    """Reads numbers, text, bytes, lists, tuples, dicts and arrays of numbers."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which a CIFAR batch does not")
        return KNOWN[module, name]


def read_batch(path: Path) -> dict[str, Any]:
    """The dictionary of a batch file, with keys as strings and NumPy arrays."""
    try:
        found = PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise any error
        raise DataError(f"{path}: cannot be read as a CIFAR batch: {error}; nothing in it was run") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a dictionary, got {type(found).__name__}")
    plain = {key.decode() if isinstance(key, bytes) else str(key): value for key, value in found.items()}
    return {key: value.array if isinstance(value, PickledArray) else value for key, value in plain.items()}
