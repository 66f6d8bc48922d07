"""Cells of a table as numbers and dates: thousands separators, decimal commas, units, the usual forms of dates."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]

PARSED = 0.98  # share of the cells that must follow a format for it to be the column's
DATES = (
    "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d", "%d %b %Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%Y%m%d", "%Y-%m",
)  # fmt: skip
TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
EPOCH = dt.datetime(1970, 1, 1)
YEARS = (1800, 2200)
MOST_FORMS = 5  # maximum number of separator patterns in a column of dates
DAY = 86_400  # seconds
LARGEST = float(np.finfo(np.float32).max)  # classifiers compute in float32, where larger numbers are infinite
SAMPLED = 2000  # rows that determine whether a table has decimal commas
PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMMA = re.compile(r"[+-]?(\d+|\d{1,3}([.\s'’]\d{3})+|),\d+([eE][+-]?\d+)?")  # 3,14 or 1.234,5
POINT = re.compile(r"[+-]?\d{1,3}([,\s'’]\d{3})+(\.\d*)?")  # 1,234.5
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}([.,\s'’]\d{3})+")  # 1,234 or 1.234: a thousand or a decimal
UNIT = re.compile(r"^[$€£¥]\s*|\s*[%$€£¥]$")
TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?(?:\s*([ap])\.?m\.?)?", re.IGNORECASE)
MEASURED = re.compile(r"([+-]?[\d.,\s'’]*\d)\s*([^\W\d_][^\d,;]{0,15}[²³]?)")  # 170 cm: a number and a unit
PADDED = re.compile(r"[+-]?0\d")
ZONE = re.compile(r"(?<=:\d\d)(\.\d+)?\s*(Z|UTC|[+-]\d\d:?\d\d)$")


def has_decimal_commas(table: pa.Table) -> bool:
    """Whether numbers in columns of text are written 3,14: more cells are valid only with a comma than only with a point."""
    comma = point = 0
    for column in table.columns:
        if not is_text(column.type):
            continue
        written = {str(cell).strip() for cell in column.slice(0, SAMPLED).to_pylist() if cell}
        cells = [UNIT.sub("", cell) for cell in _without_unit(sorted(written))]
        if sum(any(form.fullmatch(cell) for form in (PLAIN, COMMA, POINT)) for cell in cells) < 0.9 * len(cells):
            continue
        sure = [cell for cell in cells if not GROUPED.fullmatch(cell)]
        comma += sum(bool(COMMA.fullmatch(cell)) for cell in sure)
        point += sum("." in cell and bool(PLAIN.fullmatch(cell) or POINT.fullmatch(cell)) for cell in sure)
    return comma > point


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds integers, floats or decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def as_float64(column: pa.ChunkedArray) -> Array:
    """A column of numbers as float64 (N,), rounded where float64 has fewer digits, as for ids of 18 digits; NaN: missing."""
    values: Array = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def finite(values: Array) -> Array:
    """The numbers, with NaN for those that are not finite in float32."""
    return np.where(np.abs(values) <= LARGEST, values, np.nan)


def parse_numbers(cells: Sequence[str], *, decimal_comma: bool = False) -> Array:
    """Strings (N,) as float64 (N,), NaN for those that are not numbers, or not finite in float32; decimal_comma: 1.234 is 1234.

    A unit that all numbers share is removed: 170 cm, 85 kg.
    """
    if not decimal_comma:
        try:
            found = pa.array(cells, pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass
        else:
            return finite(found)
    found = np.array([_number(cell, decimal_comma) for cell in cells], dtype=np.float64)
    if not np.isnan(found).all():
        return found
    return np.array([_number(cell, decimal_comma) for cell in _without_unit(cells)], dtype=np.float64)


def _without_unit(cells: Sequence[str]) -> list[str]:
    """Cells without the unit that all numbers among them share; unchanged if there is no unit, or several."""
    parts = [None if PADDED.match(cell) else MEASURED.fullmatch(cell) for cell in cells]  # 007A is a code
    if len({part.group(2) for part in parts if part is not None}) != 1:
        return list(cells)
    return [cell if part is None else part.group(1) for cell, part in zip(cells, parts, strict=True)]


def _number(cell: str, decimal_comma: bool) -> float:
    cell = UNIT.sub("", cell.replace("\u00a0", " ").replace("\u202f", " ").replace("−", "-"))
    if cell.startswith("(") and cell.endswith(")"):  # the accountant's minus
        cell = "-" + cell[1:-1]
    if decimal_comma and (COMMA.fullmatch(cell) or GROUPED.fullmatch(cell)):
        cell = re.sub(r"[.\s'’]", "", cell).replace(",", ".")
    elif PLAIN.fullmatch(cell):
        pass
    elif POINT.fullmatch(cell):
        cell = re.sub(r"[,\s'’]", "", cell)
    elif COMMA.fullmatch(cell):
        cell = re.sub(r"[.\s'’]", "", cell).replace(",", ".")
    else:
        return np.nan
    value = float(cell)
    return value if abs(value) <= LARGEST else np.nan


def parse_dates(cells: Sequence[str]) -> tuple[Array, str] | None:
    """Strings as days since 1970 (NaN where one does not parse) and the form of most of them; None if few are dates.

    If no format fits nearly all, as in 2024-03-01 and 01.03.2024, cells with the same separators are parsed separately.
    """
    found = _dates_of_a_form(cells)
    if found is not None:
        return found
    alike: dict[str, list[int]] = {}
    for place, cell in enumerate(cells):
        alike.setdefault(_separators(cell), []).append(place)
    if not 1 < len(alike) <= MOST_FORMS:
        return None
    days, forms = np.full(len(cells), np.nan), dict[str, int]()
    for places in alike.values():
        part = _dates_of_a_form([cells[place] for place in places])
        if part is not None:
            days[places] = part[0]
            forms[part[1]] = forms.get(part[1], 0) + len(places)
    return (days, max(forms, key=forms.__getitem__)) if forms and np.isnan(days).mean() <= 1 - PARSED else None


def _separators(cell: str) -> str:
    """The separator between the parts of a date, and whether the year comes first: "4-" for 2024-03-01, "." for 01.03.2024."""
    first = re.match(r"\d{4}(?!\d)", cell)
    return ("4" if first else "") + "".join(dict.fromkeys(re.sub(r"[\d:\s]|[A-Za-z]+", "", cell)))


def _dates_of_a_form(cells: Sequence[str]) -> tuple[Array, str] | None:
    """Strings as days since 1970 and the form that nearly all of them follow; None without one."""
    sample = list(cells[:: max(1, len(cells) // 50)])
    if sum(any(sign.isdigit() for sign in cell) and 6 <= len(cell) <= 40 for cell in sample) < PARSED * len(sample):
        return None
    for form in DATES:
        for time in TIMES:
            if sum(_days(cell, form + time) is not None for cell in sample) < PARSED * len(sample):
                continue
            days = np.array([_days(cell, form + time) for cell in cells], dtype=np.float64)  # None becomes NaN
            if np.isnan(days).mean() <= 1 - PARSED:
                return days, form
    return None


def parse_times(cells: Sequence[str]) -> Array | None:
    """Times of day, 14:05 or 2:05:30 pm, as seconds since midnight (NaN for others); None if few cells are times."""
    found = [TIME.fullmatch(cell) for cell in cells]
    if sum(one is not None for one in found) < PARSED * len(cells):
        return None
    return np.array([np.nan if one is None else _seconds(one) for one in found])


def _seconds(time: re.Match[str]) -> float:
    hour, minute, second, half = time.groups()
    afternoon = 0 if half is None else 12 * (half.lower() == "p") - 12 * (int(hour) == 12)
    return 3600.0 * (int(hour) + afternoon) + 60 * int(minute) + int(second or 0)


def _days(cell: str, form: str) -> float | None:
    """Days since 1970 of one string (UTC where it names an offset), None if it does not follow the form."""
    cell = re.sub(r"(?<=\d)T(?=\d)", " ", cell)
    zone = ZONE.search(cell)
    try:
        if zone:
            local = cell[: zone.start(2)].strip() + zone.group(2).replace("UTC", "Z")
            moment = dt.datetime.strptime(local, form + "%z").astimezone(dt.UTC).replace(tzinfo=None)
        else:
            moment = dt.datetime.strptime(cell, form)
    except ValueError:
        return None
    return (moment - EPOCH).total_seconds() / DAY if YEARS[0] <= moment.year <= YEARS[1] else None


def day_or_month_first(cells: Sequence[str]) -> bool:
    """Whether dates written nn/nn/yyyy can all be read either way."""
    parts = [cell.split("/") for cell in cells if cell.count("/") == 2]
    return all(int(a) <= 12 and int(b) <= 12 for a, b, _ in parts if a.isdigit() and b.isdigit())
