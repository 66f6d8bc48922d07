"""Roles of a table's columns: numbers, categories, dates, texts, or columns that a classifier must not see.

    numeric        numbers; also "1,234.5", "3,14", "12 %", "$5", "8 kg", "14:05"  float64
    categorical    strings that repeat, codes with leading zeros                 dictionary of strings
    boolean        true/false, yes/no, t/f                                       bool
    date           dates and times, as strings, YYYYMMDD or timestamps           timestamp
    text           many different strings of several words                       string
    id             names rows: UUIDs, row numbers, unique codes                  dropped
    constant       one value, or missing values only                             dropped
    leak           predicts the given labels (nearly) perfectly on its own       dropped

`infer_columns` infers roles from the values; `to_table` stores them as the types of an Arrow table (last column above; null
where a value is missing), and `from_table` reads them back, so that a part of the rows has the columns of the whole.

A column is a leak if, out of fold, it alone predicts the label of at least LEAK of the rows and of the average class. Examples
are a copy of the labels, and a code or a score from which the labels were made: with such a column every label seems correct.
A legitimate column cannot predict more of the given labels than are correct.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from mohs._core.errors import DataError
from mohs.data.cells import (
    DAY,
    LARGEST,
    PARSED,
    Array,
    as_float64,
    day_or_month_first,
    finite,
    has_decimal_commas,
    is_number,
    is_text,
    parse_dates,
    parse_numbers,
    parse_times,
)

Role = Literal["numeric", "categorical", "boolean", "date", "text", "id", "constant", "leak", "unsupported"]
USED: tuple[Role, ...] = ("numeric", "categorical", "boolean", "date", "text")
DROPPED: dict[Role, str] = {
    "id": "identifier columns dropped",
    "constant": "constant columns dropped",
    "unsupported": "columns of unsupported types dropped",
}
MISSING = frozenset(
    {"", "na", "n/a", "n.a.", "nan", "null", "none", "nil", "?", "-", "--", "---", ".", "..", "#n/a", "#na", "nat", "<na>"}
    | {"#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!", "(null)", "missing", "\\n", "–", "—"}
)  # compared in lower case, without surrounding blanks
BOOLEANS = ({"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"}, {"on", "off"}, {"ja", "nein"}, {"oui", "non"}, {"si", "no"})
TRUE = frozenset({"true", "yes", "y", "t", "on", "ja", "oui", "si"})
UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|[0-9a-f]{40}|[0-9a-f]{64}", re.I)
ID_NAME = re.compile(
    r"(^|[\W_])(id|ids|uuid|guid|key|idx|index|row|rownum|row_?number|rownames?|nr|no|record|unnamed.*|seqn)$|^$|[a-z]I[dD]$",
    re.I,
)
UNIQUE = 0.95  # strings with at least this share of distinct values are ids
FEW = 20  # with fewer rows, distinct values say nothing about identifiers
SAMPLED = 2000  # maximum number of distinct values whose words are counted
LEAK, SUSPECT = 0.995, 0.97  # share of labels that one column predicts: dropped; noted
MOST_COLUMNS = 100  # up to this many features, numbers are columns of a table; more are embeddings or pixels
LEAK_ROWS = 50  # with fewer rows there is no search for leaks
LEAK_SAMPLE = 20_000
FOLDS = 3
SELDOM, LEAST_BY_CHANCE = 1 / 3, 30  # ratio to chance below which groups "never" share labels; rows expected by chance
MANY_GROUPS, SHARED, UNEVEN = 20, 0.9, (0.5, 0.2)  # minimum number of groups, share of equal labels, largest spread
SHOWN = 5
CONSTANT = b"constant columns"  # key of a table's metadata
BIG_DATES = (19_000_101, 21_001_231)  # YYYYMMDD as integers


@dataclass(frozen=True, eq=False)
class Column:
    """One column: its role and its values, float64 with NaN where one is missing; codes into `levels` (−1) for categories.

    Dates are days since 1970; a column of text holds strings ("" if missing), a dropped one is empty.
    """

    name: str
    role: Role
    values: Array
    levels: tuple[str, ...] = ()
    note: str = ""


def infer_columns(table: pa.Table, labels: Array | None = None, *, seed: int = 0) -> tuple[list[Column], list[str]]:
    """The columns of a table with their roles, and notes on columns that were dropped or are doubtful.

    Args:
        table: input columns only; strings as they are in a CSV file, or typed columns.
        labels: class indices (N,) to look for leaks with; negative where unknown.
        seed: of the folds that leaks are measured in.
    """
    decimal_comma = has_decimal_commas(table)
    found = [_inferred(name, column, decimal_comma) for name, column in zip(table.column_names, table.columns, strict=True)]
    if labels is not None:
        found = [with_leak(column, labels, seed=seed) for column in found]
    notes = [column.note for column in sorted(found, key=lambda column: column.role != "leak") if column.note]
    for role, text in DROPPED.items():
        names = [repr(column.name) for column in found if column.role == role]
        if names:
            notes.append(f"{text}: {', '.join(names[:SHOWN])}" + (f" and {len(names) - SHOWN} more" if names[SHOWN:] else ""))
    return found, [*notes, *(["decimal commas (3,14) were read as numbers"] if decimal_comma else [])]


def to_table(columns: Sequence[Column]) -> pa.Table:
    """The columns that can be used as an Arrow table whose types say their roles; null where a value is missing.

    Its metadata name the constant columns that were dropped.
    """
    arrays = {}
    for column in columns:
        if column.role == "categorical":
            codes = pa.array(column.values.astype(np.int32), mask=column.values < 0)
            arrays[column.name] = pa.DictionaryArray.from_arrays(codes, pa.array(column.levels, pa.string()))
        elif column.role == "text":
            arrays[column.name] = pa.array(column.values.tolist(), pa.large_string())
        elif column.role in USED:
            missing = np.isnan(column.values)
            values = np.where(missing, 0, column.values)
            if column.role == "boolean":
                arrays[column.name] = pa.array(values.astype(bool), mask=missing)
            elif column.role == "date":
                arrays[column.name] = pa.array((values * DAY).round().astype("datetime64[s]"), mask=missing)
            else:
                arrays[column.name] = pa.array(values, mask=missing)
    constant = [column.name for column in columns if column.role == "constant"]
    return pa.table(arrays).replace_schema_metadata({CONSTANT: json.dumps(constant)})


def constant_columns(table: pa.Table) -> list[str]:
    """The constant columns that `to_table` left out."""
    found: list[str] = json.loads((table.schema.metadata or {}).get(CONSTANT, b"[]"))
    return found


def from_table(table: pa.Table) -> list[Column]:
    """The columns that `to_table` wrote, for all or some of its rows: roles by type, whatever the values."""
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            whole = column.unify_dictionaries().combine_chunks()
            levels = tuple(whole.dictionary.to_pylist())
            found.append(Column(name, "categorical", np.asarray(whole.indices.fill_null(-1), np.int64), levels))
        elif is_text(column.type):
            found.append(Column(name, "text", np.array(column.fill_null("").to_pylist(), dtype=object)))
        elif pa.types.is_boolean(column.type):
            found.append(Column(name, "boolean", _floats(column.cast(pa.int8()))))
        elif pa.types.is_timestamp(column.type):
            found.append(Column(name, "date", _days(column)))
        else:
            found.append(Column(name, "numeric", _floats(column)))
    return found


def read_as(table: pa.Table, known: Sequence[Column], *, source: str) -> list[Column]:
    """The columns of new rows with the names and roles of known ones; cells that do not fit are missing.

    Categories that are not known follow the known ones in `levels`.
    """
    absent = [column.name for column in known if column.name not in table.column_names]
    if absent:
        raise DataError(
            f"{source}: no column {', '.join(map(repr, absent[:SHOWN]))}; its columns: {', '.join(table.column_names)}"
        )
    decimal_comma = has_decimal_commas(table)
    return [_read_as(table.column(column.name), column, decimal_comma) for column in known]


def _read_as(cells: pa.ChunkedArray, known: Column, decimal_comma: bool) -> Column:
    kind = cells.type
    if pa.types.is_dictionary(kind):
        cells, kind = cells.cast(kind.value_type), kind.value_type
    if known.role in ("numeric", "boolean") and (pa.types.is_boolean(kind) or is_number(kind)):
        return replace(known, values=_floats(cells.cast(pa.int8()) if pa.types.is_boolean(kind) else cells), note="")
    if known.role == "date" and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return replace(known, values=_days(cells), note="")
    written = ["" if one is None else str(one).strip() for one in cells.to_pylist()]
    if known.role == "text":
        return replace(known, values=np.array(written, dtype=object), note="")
    levels = sorted({one for one in written if one.lower() not in MISSING})
    if known.role == "categorical":
        every = [*known.levels, *(one for one in levels if one not in set(known.levels))]
        place = {one: i for i, one in enumerate(every)}
        return replace(known, values=np.array([place.get(one, -1) for one in written]), levels=tuple(every), note="")
    values = _values_of(levels, known.role, decimal_comma) if levels else np.empty(0)
    by_level = dict(zip(levels, values.tolist(), strict=True))
    return replace(known, values=np.array([by_level.get(one, np.nan) for one in written], dtype=np.float64), note="")


def _values_of(levels: list[str], role: Role, decimal_comma: bool) -> Array:
    """Strings as the values of a column of numbers, dates or booleans, NaN where they are none."""
    if role == "boolean":
        every = set().union(*BOOLEANS)
        return np.array([float(one.lower() in TRUE) if one.lower() in every else np.nan for one in levels])
    if role == "date":
        dates = parse_dates(levels)
        return np.full(len(levels), np.nan) if dates is None else dates[0]
    times = parse_times(levels)
    return parse_numbers(levels, decimal_comma=decimal_comma) if times is None else times


def looks_like_text(cells: pa.ChunkedArray, *, distinct: float = 0.5, words: float = 3) -> bool:
    """Whether at least this share of the strings are distinct and they have this many words on average."""
    present = [cell.strip() for cell in cells.slice(0, SAMPLED).to_pylist() if cell and cell.strip()]
    if not present:
        return False
    mean = sum(len(cell.split()) for cell in present) / len(present)
    return len(set(present)) >= distinct * len(present) and mean >= words


def _inferred(name: str, column: pa.ChunkedArray, decimal_comma: bool) -> Column:
    """The role of one column, by its type and values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return Column(name, "constant", np.empty(0))
    if pa.types.is_boolean(kind):
        return _varying(Column(name, "boolean", _floats(column.cast(pa.int8()))))
    if is_number(kind):
        written = as_float64(column)
        found, beyond = _numbers(name, finite(written)), np.unique(written[np.abs(written) > LARGEST])
        return replace(found, note=_not_numbers(name, [repr(str(one)) for one in beyond])) if beyond.size else found
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _varying(Column(name, "date", _days(column)))
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return _numbers(name, _floats(column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())))
    return _strings(name, column, decimal_comma) if is_text(kind) else Column(name, "unsupported", np.empty(0))


def _floats(column: pa.ChunkedArray) -> Array:
    """Numbers of any type as float64, NaN where they are missing, or not finite in float32."""
    return finite(as_float64(column))


def _days(column: pa.ChunkedArray) -> Array:
    moments = column.cast(pa.timestamp("us"), safe=False)
    days = np.asarray(moments.fill_null(0).cast(pa.int64())) / (DAY * 1e6)
    return np.where(np.asarray(column.is_null()), np.nan, days)


def _varying(column: Column) -> Column:
    """The column, marked as constant if it holds a single value and none is missing."""
    missing = np.isnan(column.values)
    if missing.all() or (not missing.any() and (column.values == column.values[0]).all()):
        return Column(column.name, "constant", np.empty(0))
    return column


def _numbers(name: str, values: Array) -> Column:
    """Numbers, dates written YYYYMMDD, or integers that only name the rows."""
    present = values[~np.isnan(values)]
    distinct = np.unique(present)
    integers = bool((present == np.round(present)).all())
    if integers and len(present) >= FEW and len(distinct) >= 0.9 * len(present):
        steps = np.diff(present)
        rows = len(distinct) == len(present)
        if rows and (distinct[-1] - distinct[0] + 1 <= 1.02 * len(distinct) or (steps == steps[0]).all()):
            return Column(name, "id", np.empty(0))
        if ID_NAME.search(name):
            return Column(name, "id", np.empty(0))
    if integers and len(distinct) > 2 and BIG_DATES[0] <= distinct[0] and distinct[-1] <= BIG_DATES[1]:
        parsed = parse_dates([str(int(one)) for one in distinct])
        if parsed is not None:
            at = np.searchsorted(distinct, np.where(np.isnan(values), distinct[0], values))
            return Column(name, "date", np.where(np.isnan(values), np.nan, parsed[0][at]))
    return _varying(Column(name, "numeric", values))


def _strings(name: str, column: pa.ChunkedArray, decimal_comma: bool) -> Column:
    """Numbers, dates, booleans, categories, text or ids written as strings."""
    plain = None if decimal_comma else _plain_numbers(column)
    if plain is not None:
        return _numbers(name, plain)
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    written = [str(one).strip() for one in encoded.dictionary.to_pylist()]
    levels = sorted({one for one in written if one.lower() not in MISSING})
    place = {one: i for i, one in enumerate(levels)}
    recoded = np.array([place.get(one, -1) for one in written] + [-1], dtype=np.int64)
    codes = recoded[np.asarray(encoded.indices.fill_null(-1), dtype=np.int64)]
    present = codes >= 0
    number = int(present.sum())
    if not levels or (len(levels) == 1 and present.all()):
        return Column(name, "constant", np.empty(0))

    def spread(values: Array) -> Array:
        """Values of the levels as values of the rows."""
        return np.where(present, np.append(values, np.nan)[codes], np.nan)

    lower = {one.lower() for one in levels}
    if len(lower) == 2 and any(lower == pair for pair in BOOLEANS):
        return Column(name, "boolean", spread(np.array([float(one.lower() in TRUE) for one in levels])))
    if not _padded(levels):
        parsed = parse_numbers(levels, decimal_comma=decimal_comma)
        good = ~np.isnan(parsed)
        share = np.bincount(codes[present], minlength=len(levels))[good].sum() / number
        if share >= PARSED or (share >= 0.9 and (~good).sum() <= 3):
            found = _numbers(name, spread(parsed))
            other = [repr(one) for one, is_number in zip(levels, good, strict=True) if not is_number]
            return replace(found, note=_not_numbers(name, other)) if other and found.role in USED else found
    dates = parse_dates(levels)
    if dates is not None:
        days, form = dates
        unclear = form in ("%d/%m/%Y", "%m/%d/%Y") and day_or_month_first(levels)
        return _varying(Column(name, "date", spread(days), note=_unclear(name, form) if unclear else ""))
    times = parse_times(levels)
    if times is not None:
        return _varying(Column(name, "numeric", spread(times)))
    return _words(name, levels, codes, number)


def _plain_numbers(column: pa.ChunkedArray) -> Array | None:
    """Strings that are all plain numbers, without leading zeros, as float64; a shortcut for large files."""
    import pyarrow.compute as pc

    if column.null_count or pc.any(pc.match_substring_regex(column, r"^\s*0\d")).as_py():
        return None
    try:
        values = _floats(column.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None
    return None if np.isnan(values).any() else values


def _words(name: str, levels: list[str], codes: Array, number: int) -> Column:
    """Categories, text or ids: strings that are neither numbers, dates nor booleans."""
    sample = levels[:: max(1, len(levels) // SAMPLED)]
    words, length = np.mean([len(one.split()) for one in sample]), np.mean([len(one) for one in sample])
    distinct = len(levels) / number
    if number >= FEW and distinct > 0.5 and sum(bool(UUID.fullmatch(one)) for one in sample) > 0.9 * len(sample):
        return Column(name, "id", np.empty(0))
    if (words >= 4 or (length >= 20 and words >= 3) or length >= 60) and len(levels) > max(FEW, 0.2 * number):
        return Column(name, "text", np.array([levels[code] if code >= 0 else "" for code in codes], dtype=object))
    if number >= FEW and (distinct >= UNIQUE or (distinct > 0.5 and (number >= 100 or ID_NAME.search(name)))):
        return Column(name, "id", np.empty(0))
    return Column(name, "categorical", codes, tuple(levels))


def _padded(levels: Sequence[str]) -> bool:
    """Codes such as 007: digits of one length, some with a leading zero."""
    width = len(levels[0])
    return width > 1 and all(len(one) == width and one.isdigit() for one in levels) and any(one[0] == "0" for one in levels)


def _not_numbers(name: str, cells: Sequence[str]) -> str:
    more = f" and {len(cells) - SHOWN} more" if cells[SHOWN:] else ""
    return f"column {name!r}: {', '.join(cells[:SHOWN])}{more} among numbers was read as missing"


def _unclear(name: str, form: str) -> str:
    order = "day/month/year" if form.startswith("%d") else "month/day/year"
    return f"column {name!r}: day and month are ambiguous; read as {order}"


def with_leak(column: Column, labels: Array, *, seed: int = 0) -> Column:
    """The column, marked as a leak if it predicts the labels by itself, or with a note if it nearly does."""
    known = labels >= 0
    if column.role not in ("numeric", "categorical", "boolean", "date"):
        return column
    if known.sum() < LEAK_ROWS or len(np.unique(labels[known])) < 2:
        return column
    values = column.values[known].astype(np.float64)
    right, of_class = predicted_alone(values, labels[known], categories=column.role == "categorical", seed=seed)
    if min(right, of_class) >= LEAK:
        note = (
            f"LEAK: column {column.name!r} alone predicts {right:.1%} of the labels, so it was probably made from them: dropped"
        )
        return Column(column.name, "leak", np.empty(0), note=note)
    if min(right, of_class) >= SUSPECT:
        note = f"column {column.name!r} alone predicts {right:.1%} of the labels: if it was made from them, remove it"
        return replace(column, note=note)
    return column


def group_notes(table: pa.Table, rows: Array, labels: Array) -> list[str]:
    """A note on a column that looks like one of groups, such as patients; [] if there is none.

    It has many values, strings or integers; nearly all rows share theirs with other rows, and nearly always or nearly never
    share their label with these rows (each firm has one row per year, and the year is the label); and the values are about
    equally frequent, unlike most codes from which labels are made. Integers whose size predicts the label, like a score, must be
    equally frequent.

    Args:
        table: All columns but the labels.
        rows: The rows (n,) of the training split.
        labels: Their class indices (n,).
    """
    found: list[tuple[bool, int, str, Array, str]] = []
    for name in table.column_names:
        kind = table.schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not is_text(kind) and not (is_number(kind) and (pa.types.is_integer(kind) or table.num_columns <= MOST_COLUMNS)):
            continue
        if len(rows) < LEAK_ROWS or (pa.types.is_floating(kind) and not _are_whole(table.column(name))):
            continue
        column = table.column(name).cast(kind)
        if is_text(kind) and looks_like_text(column):
            continue
        cells = column.take(pa.array(rows)).combine_chunks().dictionary_encode()
        codes = np.asarray(cells.indices.fill_null(-1), dtype=np.int64)
        looks = _looks_like_groups(codes, labels, None if is_text(kind) else _floats(cells.cast(kind)))
        if looks is not None:
            found.append((not is_text(kind) and ID_NAME.search(name) is None, len(found), name, *looks))
    if not found:
        return []
    _, _, name, sizes, often = min(found, key=lambda one: one[:2])
    about = f"{sizes[0]}" if (sizes == sizes[0]).all() else f"about {np.median(sizes):.0f}"
    return [
        f"column {name!r} has {len(sizes):,} values with {about} rows each, which nearly {often} share their label: if it names "
        f"a patient, video or place, add --group {shlex.quote(name)}"
    ]


def _are_whole(column: pa.ChunkedArray) -> bool:
    """Whether numbers are integers, some of which may be missing."""
    values = _floats(column)
    return bool(np.isnan(values).mean() < 1 - SHARED and (np.isnan(values) | (values == np.round(values))).all())


def _looks_like_groups(codes: Array, labels: Array, numbers: Array | None) -> tuple[Array, str] | None:
    """If values look like names of groups: the number of rows of each, and whether they "always" or "never" share labels.

    numbers: the values, if they are numbers.
    """
    from sklearn.tree import DecisionTreeClassifier

    known = codes >= 0
    if known.mean() < SHARED:
        return None
    codes, labels = codes[known], labels[known]
    sizes = np.bincount(codes)
    classes, uneven = len(np.unique(labels)), sizes.std() / sizes.mean()
    few = classes < 2 or len(sizes) < max(MANY_GROUPS, 4 * classes)
    if few or uneven > UNEVEN[0] or sizes[sizes > 1].sum() < SHARED * len(codes):
        return None
    _, place, same = np.unique(codes * (labels.max() + 1) + labels, return_inverse=True, return_counts=True)
    share = (same[place] - 1) / (sizes[codes] - 1).clip(1)  # share of the other rows with the same value that have the same label
    chance = float(((np.bincount(labels) / len(labels)) ** 2).sum())
    if chance * len(labels) >= LEAST_BY_CHANCE and share.mean() < SELDOM * chance:
        return sizes, "never"
    if min(share.mean(), *(share[labels == k].mean() for k in np.unique(labels))) < SHARED:
        return None
    if numbers is not None and uneven > UNEVEN[1]:
        x = numbers[known][:, None]
        if DecisionTreeClassifier(max_leaf_nodes=2 * classes, random_state=0).fit(x, labels).score(x, labels) >= SHARED:
            return None
    return sizes, "always"


def predicted_alone(values: Array, labels: Array, *, categories: bool, seed: int = 0) -> tuple[float, float]:
    """Out-of-fold accuracy, and its mean over classes, of labels (N,) predicted from one column (N,); missing is a value."""
    from sklearn.tree import DecisionTreeClassifier

    order = np.random.default_rng(seed).permutation(len(labels))[:LEAK_SAMPLE]
    classes, y = np.unique(labels[order], return_inverse=True)
    _, codes = np.unique(np.nan_to_num(values[order], nan=np.inf), return_inverse=True)
    categories = categories or int(codes.max()) < max(FEW, 4 * len(classes))
    fold = np.arange(len(y)) % FOLDS
    guess = np.empty(len(y), dtype=np.int64)
    for held in range(FOLDS):
        train, test = fold != held, fold == held
        if categories:
            counts = np.zeros((int(codes.max()) + 1, len(classes)))
            np.add.at(counts, (codes[train], y[train]), 1)
            usual = np.bincount(y[train], minlength=len(classes)).argmax()
            guess[test] = np.where(counts.any(1), counts.argmax(1), usual)[codes[test]]
        else:
            tree = DecisionTreeClassifier(max_leaf_nodes=4 * len(classes), min_samples_leaf=3, random_state=seed)
            x = values[order][:, None]
            guess[test] = tree.fit(x[train], y[train]).predict(x[test])
    right = guess == y
    return float(right.mean()), float(np.mean([right[y == c].mean() for c in range(len(classes))]))
