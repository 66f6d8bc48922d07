"""A figure: the numbers behind one chart and the sentence that says what it means; and tables of class pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mohs._core.plain_text import shorten

PAIRED = 20  # classes of a table of pairs, at the most
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """One chart: its data, the sentence that says what it means, and the name of what draws it (see `drawings`)."""

    key: str
    section: str
    drawn_by: str
    title: str
    meaning: str
    rows: Rows = field(repr=False)


def pair_rows(pairs: Counter[tuple[Any, Any]], words: tuple[str, str]) -> Rows:
    """All pairs of the classes in the commonest ones, zeros too, so that the picture is square."""
    most: dict[Any, None] = {}
    for pair, _ in pairs.most_common():
        if len(most.keys() | set(pair)) > PAIRED:
            break
        most |= dict.fromkeys(pair)
    names = sorted(most, key=lambda name: (isinstance(name, str), name))
    shown = dict(zip(names, distinct(names), strict=True))
    return [{words[0]: shown[a], words[1]: shown[b], "examples": pairs[a, b]} for a in shown for b in shown]


def cut_words(pairs: Counter[tuple[Any, Any]]) -> str:
    """A sentence where not every class that occurs can be drawn."""
    number = len({name for pair in pairs for name in pair})
    return f" Of {number:,} classes those in the commonest pairs." if number > PAIRED else ""


def distinct(names: Sequence[Any]) -> list[str]:
    """Names as they are shown, numbered where two would look alike."""
    shown: list[str] = []
    for name in names:
        text = shorten(name, 28)
        shown.append(text if text not in shown else f"{text} ({len(shown)})")
    return shown
