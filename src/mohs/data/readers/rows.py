"""Rows with labels as examples: which columns are the inputs, and whether they are features, text or a table.

The first that applies:

    text        the column that `text` names
    features    a column of lists of numbers (FEATURES go first)
    text        a column called one of TEXTS whose strings are distinct or have several words
    features    numbers in every column, none missing; up to MOST_COLUMNS without identifiers, constants and leaks (`columns.py`)
    text        a column of text, where every other column is dropped as an identifier, a constant or a leak
    table       columns of several types, or with missing values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from mohs._core.errors import DataError, NoLabels
from mohs._core.group_numbers import group_numbers
from mohs._core.vocabulary import FEATURES, IDS, INDEX, LABELS, SPLIT, TEXTS, find_name, plain_name
from mohs.data.cells import LARGEST, Array, as_float64, is_number, is_text, parse_numbers
from mohs.data.columns import (
    MOST_COLUMNS,
    USED,
    Column,
    group_notes,
    infer_columns,
    looks_like_text,
    read_as,
    to_table,
)
from mohs.data.corrections import check_no_corrections
from mohs.data.empty_classes import without_empty_classes
from mohs.data.examples import Data, Examples, LeftOut
from mohs.data.labels import as_set, class_numbers, classes_in, label_values, numbers_where_whole
from mohs.data.readers.tabular_file import RowSource
from mohs.data.row_inputs import TableRows, Texts
from mohs.data.split import SPLITS, split_called

KEYS = (*IDS, "", "Unnamed: 0", INDEX)  # columns that name the rows
SHOWN = 5


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that have a label: their columns, class indices, splits, keys and row numbers, all in one order.

    Attributes:
        name: name of the data set.
        source: file or data set, for errors; names the rows.
        columns: all columns of these rows.
        inputs: names of the columns that are neither label, key nor split.
        numbers: row numbers, for errors and skipped rows.
        left_out: rows that were skipped, with their split.
        groups: names of the rows' groups, where a column holds them.
    """

    name: str
    source: RowSource
    columns: pa.Table
    inputs: list[str]
    numbers: list[int]
    labels: list[int]
    splits: list[str]
    keys: list[Any]
    classes: list[Any]
    left_out: list[tuple[str, LeftOut]]
    notes: Sequence[str] = ()
    groups: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def is_classified(self) -> bool:
        """Whether the labels are classes, not numbers."""
        return not isinstance(self.classes[0], float)

    @property
    def train_labels(self) -> Array:
        """Class indices (N,), −1 outside the training split."""
        return np.where([split == "train" for split in self.splits], self.labels, -1)

    def row(self, place: int) -> str:
        """A description of the row at a place, for errors."""
        return self.source(self.numbers[place])


def labeled_rows(
    columns: pa.Table,
    *,
    label: str,
    name: str,
    source: RowSource,
    group: str | None = None,
    separator: str | None = None,
    numbers: bool = False,
) -> Rows:
    """The rows of a table that have a label, with their splits, keys and groups where there are columns of them.

    separator: what separates several labels in a cell, or in the strings that lists of labels become; only the training rows of
    such data are kept. numbers: labels are numbers, the targets of a regression, with the same limit.

    Blanks around a label are ignored; a blank label is missing.
    """
    if not columns.num_rows:
        raise DataError(f"{source}: no rows below the header")
    check_no_corrections(columns.column_names, str(source))
    splits = _splits(columns, source)
    given = columns.column(label).to_pylist()
    values, missing = _labels_in(given, source, separator=separator, numbers=numbers)
    kept = ~missing & np.array([(separator is None and not numbers) or split == "train" for split in splits])
    rows = np.flatnonzero(kept).tolist()
    train = [row for row in rows if splits[row] == "train"]
    if not train:
        if not rows:
            other = next((one for one in given if one not in (None, "")), None) if numbers else None
            if other is not None:
                raise DataError(f"{source}: the target, column {label!r}, holds no numbers, but cells such as {other!r}")
            raise NoLabels(f"{source}: no row with a label")
        raise DataError(f"{source}: no row with a label in the train split")
    classes = classes_in(values[train])
    for row in rows:
        if len(train) < len(rows) and values[row].item() not in classes:
            raise DataError(f"{source(row)}: the label is {values[row].item()!r}, a class without training rows")
    together = None if group is None else group_column(columns.column_names, group, label, str(source))
    notes = []
    if group is None and separator is None and not numbers:
        own = class_numbers(values[train], classes, str(source)).numpy()
        notes = group_notes(columns.drop_columns([label]), np.array(train), own)
    reserved = {plain_name(label), SPLIT, *map(plain_name, KEYS), *([] if together is None else [plain_name(together)])}
    return Rows(
        name,
        source,
        columns if kept.all() else columns.filter(pa.array(kept)),
        [one for one in columns.column_names if plain_name(one) not in reserved],
        rows,
        class_numbers(values[rows], classes, str(source)).tolist(),
        [splits[row] for row in rows],
        _keys(columns, rows, label),
        classes,
        [(splits[row], LeftOut(source(row), "no label", place=row)) for row in np.flatnonzero(missing).tolist()],
        notes=notes,
        groups=None if together is None else columns.column(together).take(rows).to_pylist(),
    )


def _labels_in(cells: list[Any], source: RowSource, *, separator: str | None, numbers: bool) -> tuple[np.ndarray[Any, Any], Any]:
    """The labels in the cells of a column (N,), and which of them are missing (N,)."""
    if separator is not None:
        text = _all_text(cells)  # an empty cell may be an empty set
        cells = [None if one is None and not text else as_set(one or "", separator, str(source)) for one in cells]
    elif _all_text(cells):
        cells = [one and one.strip() for one in cells]
    if numbers:
        values = parse_numbers(["" if one is None else str(one) for one in cells])
        return values, np.isnan(values)
    whole = numbers_where_whole(cells) if _all_text(cells) else cells
    return label_values(_objects(whole), str(source), row=source.row)


def group_column(names: Sequence[str], group: str, label: str, source: str) -> str:
    """The column of groups by its name; case and surrounding blanks do not matter."""
    found = group if group in names else find_name(names, [group])
    if found is None:
        raise DataError(f"{source}: no column {group!r} for the groups (--group); its columns: {', '.join(names)}")
    if found == label:
        raise DataError(f"{source}: column {found!r} holds the labels, so it cannot hold the groups (--group)")
    return found


def unlabeled_rows(columns: pa.Table, *, name: str, source: RowSource, group: str | None = None) -> Rows:
    """All rows of a table as training rows with the label 0.0, a number; no inputs are a column of labels and `group`."""
    if not columns.num_rows:
        raise DataError(f"{source}: no rows below the header")
    label, rows = find_name(columns.column_names, LABELS), list(range(columns.num_rows))
    reserved = {SPLIT, *map(plain_name, KEYS), *(plain_name(one) for one in (label, group) if one is not None)}
    inputs = [one for one in columns.column_names if plain_name(one) not in reserved]
    keys = _keys(columns, rows, label or "")
    return Rows(name, source, columns, inputs, rows, [0] * len(rows), ["train"] * len(rows), keys, [0.0], [])


def rows_data(rows: Rows, *, text: str | None = None, as_strings: Callable[[], pa.Table] | None = None) -> Data:
    """The rows as features, text or a table.

    Args:
        rows: rows with labels.
        text: name of the column of text.
        as_strings: reads the input columns of these rows again, every cell as a string, as a CSV file has them.
    """
    inputs = rows.columns.select(rows.inputs)
    if text is not None:
        return _texts(rows, _named(rows, text))
    vectors = vector_column(inputs, str(rows.source))
    if vectors is not None:
        return _features(rows, _lists(inputs.column(vectors), vectors, rows), [vectors])
    called = text_column(inputs)
    if called is not None:
        return _texts(rows, called)
    if rows.inputs and all(is_number(kind) for kind in inputs.schema.types):
        matrix = _matrix(inputs)
        if (np.abs(matrix) <= LARGEST).all():
            whole = not rows.is_classified or matrix.shape[1] > MOST_COLUMNS  # embeddings or pixels rather than a table
            return _features(rows, matrix, rows.inputs) if whole else _mixed(rows, inputs)
    return _mixed(rows, inputs if as_strings is None else as_strings())


def rows_like(columns: pa.Table, known: Sequence[Column], *, features: bool, name: str, source: RowSource) -> Examples:
    """Rows without labels as examples with the columns that others have: as features, or as a table.

    Args:
        columns: all columns of the rows, in any order.
        known: the columns of the others, with their roles.
        features: whether the columns are features, none of which may be missing.
        name: name of the data set.
        source: file or data set, for errors; names the rows.
    """
    if not columns.num_rows:
        raise DataError(f"{source}: no rows below the header")
    found = read_as(columns, known, source=str(source))
    keys = _keys(columns, list(range(columns.num_rows)), "")
    inputs: Any = TableRows(to_table(found))
    if features:
        for column in found:
            missing = np.flatnonzero(np.isnan(column.values))
            if len(missing):
                cell = columns.column(column.name)[int(missing[0])].as_py()
                what = "is missing" if cell in (None, "") else f"is {cell!r}, not a number"
                lack = f"{len(missing)} row(s) lack it: fill them in"
                raise DataError(f"{source(int(missing[0]))}: {column.name!r} {what}; {lack}")
        inputs = torch.from_numpy(np.stack([column.values for column in found], 1).astype(np.float32))
    return Examples(inputs, torch.zeros(columns.num_rows, dtype=torch.int64), [0], name=name, keys=keys)


def vector_column(inputs: pa.Table, source: str) -> str | None:
    """The column of lists of numbers that holds the features, where there is one."""
    listed = [one for one in inputs.column_names if is_list(inputs.schema.field(one).type)]
    found = find_name(listed, FEATURES)
    if found is None and len(listed) > 1:
        raise DataError(f"{source}: columns {', '.join(listed)} all hold lists: call the one with the features 'features'")
    return found or next(iter(listed), None)


def text_column(inputs: pa.Table) -> str | None:
    """The first column called one of TEXTS that holds text rather than categories."""
    strings = [one for one in inputs.column_names if is_text(inputs.schema.field(one).type)]
    for known in TEXTS:
        found = find_name(strings, [known])
        if found is None:
            continue
        cells = inputs.column(found)
        if looks_like_text(cells, words=1) or looks_like_text(cells, distinct=0):
            return found
    return None


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists of numbers."""
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed and (is_number(kind.value_type) or pa.types.is_boolean(kind.value_type)))


def _nothing_left(rows: Rows, notes: Sequence[str]) -> DataError:
    columns = ", ".join(rows.columns.column_names)
    why = f" ({'; '.join(notes)})" if notes else ""
    return DataError(f"{rows.source}: no column to learn from beside the label; its columns: {columns}{why}")


def _mixed(rows: Rows, inputs: pa.Table) -> Data:
    """Columns of several roles: text if no other column remains, features if all that are used hold numbers."""
    columns, notes = infer_columns(inputs, rows.train_labels if rows.is_classified else None)
    rows = replace(rows, notes=[*rows.notes, *notes])
    used = [column for column in columns if column.role in USED]
    if not used:
        raise _nothing_left(rows, notes)
    texts = [column for column in used if column.role == "text" or (len(used) == 1 and _is_text(column, inputs))]
    if len(texts) == len(used):
        return _texts(rows, texts[0].name)
    if all(column.role == "numeric" and not np.isnan(column.values).any() for column in used):
        names = [column.name for column in used]
        return _features(replace(rows, inputs=names), np.stack([column.values for column in used], axis=1), names)
    return _parts(rows, TableRows(to_table(columns)))


def _is_text(column: Column, inputs: pa.Table) -> bool:
    cells = inputs.column(column.name)
    return column.role == "categorical" and is_text(cells.type) and looks_like_text(cells)


def _texts(rows: Rows, name: str) -> Data:
    cells = rows.columns.column(name).cast(pa.large_string()).fill_null("").to_pylist()
    unused = [one for one in rows.inputs if one != name]
    notes = [*rows.notes, f"column {name!r} was read as text{_unused(unused)}"] if unused else rows.notes
    empty = [place for place, cell in enumerate(cells) if not cell.strip()]
    left_out = [*rows.left_out, *((rows.splits[place], _no_text(rows, place)) for place in empty)]
    kept = [place for place, cell in enumerate(cells) if cell.strip()]
    if not any(rows.splits[place] == "train" for place in kept):
        raise DataError(f"{rows.source}: column {name!r} holds no text")
    return without_empty_classes(_parts(replace(rows, notes=notes, left_out=left_out), Texts(cells), kept), lacks="a text")


def _no_text(rows: Rows, place: int) -> LeftOut:
    return LeftOut(rows.row(place), "no text", rows.keys[place], rows.numbers[place])


def _features(rows: Rows, matrix: Array, names: Sequence[str]) -> Data:
    unused = [one for one in rows.inputs if one not in names]
    notes = [*rows.notes, *([_unused(unused).removeprefix("; ")] if unused else [])]
    columns = names if matrix.shape[1] == len(names) else ()  # not those of a column of lists
    return _parts(replace(rows, notes=notes), torch.from_numpy(matrix.astype(np.float32)), columns=columns)


def _parts(rows: Rows, inputs: Any, kept: Sequence[int] | None = None, *, columns: Sequence[str] = ()) -> Data:
    """The examples of each split; kept: places of the rows to keep; columns: names of the features."""
    about: dict[str, Any] = {"name": rows.name, "keys": rows.keys, "notes": list(rows.notes), "columns": columns}
    about |= {} if rows.groups is None else {"groups": group_numbers(rows.groups)}
    every = Examples(inputs, torch.tensor(rows.labels), rows.classes, **about)
    places = range(len(rows)) if kept is None else kept
    parts = {}
    for split in SPLITS:
        own = [place for place in places if rows.splits[place] == split]
        if own:
            part = every if len(own) == len(every) else every.take(torch.tensor(own))
            parts[split] = replace(part, left_out=[one for where, one in rows.left_out if where == split])
    return Data(parts["train"], parts.get("val"), parts.get("test"))


def _matrix(inputs: pa.Table) -> Array:
    return np.stack([as_float64(inputs.column(one)) for one in inputs.column_names], axis=1)


def _lists(column: pa.ChunkedArray, name: str, rows: Rows) -> Array:
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    width = int(lengths[0]) if len(lengths) else 0
    other = np.flatnonzero(lengths != width)
    if other.size or not width:
        at = int(other[0]) if other.size else 0
        raise DataError(
            f"{rows.row(at)}: {name} has {lengths[at]} numbers, that of {rows.source.row(rows.numbers[0])} has {width}: "
            "give all rows the same number"
        )
    matrix = as_float64(pc.list_flatten(column)).reshape(-1, width)
    wrong = np.argwhere(~np.isfinite(matrix))
    if len(wrong):
        row, at = (int(one) for one in wrong[0])
        raise DataError(
            f"{rows.row(row)}: column {name!r}, entry {at} is missing, NaN or infinite; "
            f"{len({int(one) for one in wrong[:, 0]})} row(s) have such entries: fill them in or drop the rows"
        )
    return matrix


def _named(rows: Rows, text: str) -> str:
    names = rows.columns.column_names
    found = text if text in names else find_name(names, [text])
    if found is None:
        raise DataError(f"{rows.source}: no column {text!r} for the text; its columns: {', '.join(names)}")
    if found not in rows.inputs:
        raise DataError(
            f"{rows.source}: column {found!r} is the label, the split, the key or the group, so it cannot be the text"
        )
    return found


def _unused(names: Sequence[str]) -> str:
    return f"; columns not used: {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}"


def _splits(columns: pa.Table, source: RowSource) -> list[str]:
    column = find_name(columns.column_names, [SPLIT])
    if column is None or not is_text(columns.schema.field(column).type):
        return ["train"] * columns.num_rows
    found = [split_called(one or "") for one in columns.column(column).to_pylist()]
    if None in found:
        row = found.index(None)
        given = columns.column(column)[row].as_py()
        raise DataError(
            f"{source(row)}: the split is {given!r}; expected train, val or test (rename the column if it is no split)"
        )
    return [one for one in found if one is not None]


def _keys(columns: pa.Table, rows: list[int], label: str) -> list[Any]:
    column = find_name([one for one in columns.column_names if one != label], KEYS)
    if column is None:
        return list(rows)
    values = columns.column(column).to_pylist()
    values = numbers_where_whole(values) if _all_text(values) else values
    return [values[row] for row in rows] if len(set(values)) == len(values) else list(rows)


def _all_text(values: Sequence[Any]) -> bool:
    return all(one is None or isinstance(one, str) for one in values)


def _objects(values: Sequence[Any]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
