"""Validation of arguments: errors name the argument, the value it got, and what it may be.

`check_fields` validates the values for a dataclass by the types of its fields, before it is created:

    int       a whole number of 32 bits; of 64 bits for `ignore_index`; a seed is from 0 to 2³² − 1
    float     a finite number that float32 can hold
    Tensor    a tensor, an array, or nested lists of numbers
    others    as annotated: bool, str, None, Sequence[...], Mapping[...], unions of these
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

INF = math.inf
SEEDS = 2**32  # NumPy's seeds are smaller
LARGEST_INTEGER, LARGEST_FLOAT = 2**31 - 1, 3e38
WIDE = ("ignore_index", "memory_limit")  # integers of 64 bits
SHOWN = 60  # characters of a wrong value that an error shows


def check_fields(cls: type, values: Mapping[str, Any], *, where: str = "") -> None:
    """Validate values for fields of a dataclass by the types of the fields.

    Args:
        cls: The dataclass.
        values: Values by field; other names are left to the caller.
        where: What the fields belong to, in errors.

    Raises:
        ValueError: A value has another type than its field, or is out of range.
    """
    kinds = _kinds(cls)
    for name, value in values.items():
        if name in kinds:
            check_type(f"{where}: {name}" if where else name, value, kinds[name])


def check_type(name: str, value: Any, kind: Any) -> None:
    """Raise ValueError unless the value has the type that an annotation names; names that end in "seed" are seeds."""
    if not _fits(name.rpartition(" ")[2].rpartition(".")[2], value, kind):
        shown = repr(value)
        shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"
        raise ValueError(f"{name} must be {_describe(name, kind, value)}, got {shown}")


@cache
def _kinds(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _fits(name: str, value: Any, kind: Any) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return any(_fits(name, value, one) for one in get_args(kind))
    if kind is Any:
        return True
    if kind is None or kind is type(None):
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        low, high = _range(name)
        return isinstance(value, Integral) and not isinstance(value, bool) and low <= int(value) <= high
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool) and bool(-LARGEST_FLOAT <= value <= LARGEST_FLOAT)  # type: ignore[operator]
    if getattr(kind, "__name__", "") == "Tensor":
        return hasattr(value, "shape") or _is_numbers(value)
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Sequence:
        whole = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return whole and all(_fits(name, one, inner[0]) for one in value if inner)
    if origin is tuple:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str | bytes)
            and len(value) == len(inner)
            and all(_fits(name, one, each) for one, each in zip(value, inner, strict=True))
        )
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(name, key, inner[0]) and _fits(name, one, inner[1]) for key, one in value.items() if inner
        )
    return not isinstance(origin, type) or isinstance(value, origin)


def _is_numbers(value: Any) -> bool:
    """Whether the value is a list of numbers, or of such lists."""
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(_fits("", one, float) for one in value) or all(_is_numbers(one) for one in value)


def _range(name: str) -> tuple[int, int]:
    if name.endswith("seed"):
        return 0, SEEDS - 1
    return (-(2**63), 2**63 - 1) if name in WIDE else (-LARGEST_INTEGER, LARGEST_INTEGER)


def _describe(name: str, kind: Any, value: Any = None) -> str:
    """What a value of this kind is; the range of integers only for an integer that is outside it."""
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_describe(name, one, value) for one in get_args(kind)))
    if kind is int:
        low, high = _range(name.rpartition(" ")[2].rpartition(".")[2])
        return f"an integer from {low} to {high}" if isinstance(value, int) and not isinstance(value, bool) else "an integer"
    named = {None: "None", type(None): "None", bool: "True or False", float: "a finite number", str: "text"}
    if kind in named:
        return named[kind]
    if getattr(kind, "__name__", "") == "Tensor":
        return "a list of numbers"
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Sequence, tuple):
        return f"a list of {_plural(name, inner[0])}" if inner else "a list"
    return "a mapping" if origin is Mapping else str(getattr(origin, "__name__", origin))


def _plural(name: str, kind: Any) -> str:
    named = {int: "integers", float: "numbers", str: "texts", bool: "True or False", Any: "values"}
    return named.get(kind) or f"{_describe(name, kind)} each"


def check_between(name: str, value: float, low: float, high: float = INF, *, ends: str = "[]") -> None:
    """Raise ValueError unless value is a number from low to high; ends: "[" and "]" include the bound, "(" and ")" exclude it."""
    over, under = ends[0] == "(", ends[1] == ")"
    if isinstance(value, int | float) and (low < value if over else low <= value) and (value < high if under else value <= high):
        return
    span = f"{'over' if over else 'at least'} {low:g}"
    if high < INF:
        span = f"between {low:g} and {high:g}" if ends == "[]" else f"{span} and {'under' if under else 'at most'} {high:g}"
    raise ValueError(f"{name} must be {span}, got {value!r}")


def check_whole(name: str, value: Any, low: int = 1) -> None:
    """Raise ValueError unless value is an integer of at least `low`."""
    if not _fits(name, value, int) or value < low:
        raise ValueError(f"{name} must be an integer of at least {low}, got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ValueError unless value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
