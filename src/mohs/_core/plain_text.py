"""Untrusted text, made safe for HTML pages and spreadsheets.

Control, format and bidirectional characters and lone surrogates (from file names that are not UTF-8) become visible symbols.
JSON for a page has no `<`, `>`, `&`, is ASCII and has no NaN. A CSV cell that a spreadsheet would read as a formula gets a
leading apostrophe, as does one that begins with an apostrophe, so that it can be removed again.
"""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any

HIDDEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # used in Persian and Hindi words and in emoji, so not suspicious
FORMULA = "=+-@\t\r\n'＝＋－＠"
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def visible(text: Any) -> str:
    """The text with every invisible character replaced by a symbol: ␀, ␛, ⟨U+202E⟩."""
    text = str(text)
    return text if text.isascii() and text.isprintable() else "".join(map(_symbol, text))


def shorten(text: Any, length: int = 48) -> str:
    """`visible`, with the middle omitted if it is longer: names differ at their beginnings and endings."""
    shown = visible(text) or "(empty)"
    keep = (length - 1) // 2
    return shown if len(shown) <= length else f"{shown[: length - 1 - keep]}…{shown[-keep:]}"


def page_json(value: Any) -> str:
    """JSON that is safe in a script element; NaN and infinity become null."""
    text = json.dumps(finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign, escape in ESCAPES.items():
        text = text.replace(sign, escape)
    return text


def finite(value: Any) -> Any:
    """The value as plain Python: None for NaN and infinity, text for types that JSON lacks."""
    if hasattr(value, "tolist"):  # an array, a tensor, or one of their scalars
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def from_cell(cell: str) -> str:
    """A CSV cell without its leading apostrophe."""
    return cell[1:] if cell.startswith("'") else cell


def to_cell(text: str) -> str:
    """The text as a cell that no spreadsheet reads as a formula; `from_cell` undoes it. The page's script does the same."""
    return f"'{text}" if text[:1] and text[0] in FORMULA else text


def _symbol(sign: str) -> str:
    code = ord(sign)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(sign) in HIDDEN and sign not in JOINERS:
        return f"⟨U+{code:04X}⟩"
    return sign
