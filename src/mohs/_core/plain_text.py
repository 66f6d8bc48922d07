"""Names from outside as text that a page can show and a spreadsheet can hold: nothing in them runs, hides or turns round.

Control, format and bidirectional characters and lone surrogates (file names that are not UTF-8 hold them) become visible
signs. JSON for a page has no `<`, `>`, `&`, nothing outside ASCII and no NaN. A cell of a CSV file that a spreadsheet would
take for a formula gets an apostrophe in front, as does one that begins with an apostrophe, so that it can be taken off again.
"""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any

HIDDEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # within words of Persian or Hindi, and within emoji: they hide nothing
FORMULA = "=+-@\t\r\n'＝＋－＠"
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def visible(text: Any) -> str:
    """The text with every character that cannot be seen written as a sign: ␀, ␛, ⟨U+202E⟩."""
    text = str(text)
    return text if text.isascii() and text.isprintable() else "".join(map(_seen, text))


def shorten(text: Any, length: int = 48) -> str:
    """`visible`, with the middle left out where it is longer: beginnings and endings tell names apart."""
    shown = visible(text) or "(empty)"
    keep = (length - 1) // 2
    return shown if len(shown) <= length else f"{shown[: length - 1 - keep]}…{shown[-keep:]}"


def page_json(value: Any) -> str:
    """JSON that may stand in a script element; NaN and infinity become null."""
    text = json.dumps(finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign, escape in ESCAPES.items():
        text = text.replace(sign, escape)
    return text


def finite(value: Any) -> Any:
    """The same made of plain Python, with None for every NaN and infinity and text for what JSON does not know."""
    if hasattr(value, "tolist"):  # an array, a tensor, a number of theirs
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def from_cell(cell: str) -> str:
    """A cell of decisions.csv as it was before its apostrophe."""
    return cell[1:] if cell.startswith("'") else cell


def to_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula; `from_cell` gives it back. The page's script does the same."""
    return f"'{text}" if text[:1] and text[0] in FORMULA else text


def _seen(sign: str) -> str:
    code = ord(sign)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(sign) in HIDDEN and sign not in JOINERS:
        return f"⟨U+{code:04X}⟩"
    return sign
