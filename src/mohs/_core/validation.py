"""Validation of arguments: errors name the argument, the value it got, and what it may be."""

from __future__ import annotations

import math
from collections.abc import Sequence

INF = math.inf


def check_between(name: str, value: float, low: float, high: float = INF, *, ends: str = "[]") -> None:
    """Raise ValueError unless value is a number from low to high; ends: "[" and "]" include the bound, "(" and ")" exclude it."""
    over, under = ends[0] == "(", ends[1] == ")"
    if isinstance(value, int | float) and (low < value if over else low <= value) and (value < high if under else value <= high):
        return
    span = f"{'over' if over else 'at least'} {low:g}"
    if high < INF:
        span = f"between {low:g} and {high:g}" if ends == "[]" else f"{span} and {'under' if under else 'at most'} {high:g}"
    raise ValueError(f"{name} must be {span}, got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ValueError unless value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
