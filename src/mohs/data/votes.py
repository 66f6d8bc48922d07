"""Votes: the labels that several people gave to the training examples, from a file, and as targets of training.

    one column per annotator    id, anna, ben, carl          an empty cell is a missing vote; .npz: one array per annotator
    one row per vote            example, annotator, label
    counts                      id, and one column per class; .npz: an array `counts` (N, K)

A file is a .csv, .tsv, .jsonl, .parquet or .npz; FILE:anna,ben names the columns to use. Rows are matched to examples by a column
of ids (keys, paths or file names) and, without one, by their order. An array called `clean` must equal the examples' labels:
that proves that the order is the same. Examples without a vote keep their label.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.vocabulary import IDS, LABELS, PATHS, find_name
from mohs.data.examples import Examples
from mohs.data.human_labels import CLEAN, check_order, find_file, label_columns
from mohs.data.labels import class_numbers, label_values
from mohs.data.readers.tabular_file import RowSource
from mohs.hardness.annotators import Votes

ANNOTATORS = ("annotator", "annotators", "annotator_id", "worker", "worker_id", "rater", "rater_id", "labeler", "user")
EXAMPLES = ("example", "example_id", "item", "task", *IDS, *PATHS)
COUNTS, VOTES = "counts", "votes"  # arrays of a .npz file
Columns = Mapping[str, Any]


def with_votes(examples: Examples, votes: Any) -> Examples:
    """The examples with these votes.

    Args:
        examples: N examples.
        votes: A file, FILE:COLUMN,COLUMN, `Votes`, or one column per annotator in the order of the examples.
    """
    if isinstance(votes, str | os.PathLike):
        return replace(examples, votes=read_votes(os.fspath(votes), examples))
    found = votes if isinstance(votes, Votes) else Votes.from_columns(votes, classes=examples.classes)
    if found.num_examples > len(examples) or list(found.classes) != list(examples.classes):
        raise DataError(
            f"votes are on {found.num_examples} examples of {len(found.classes)} classes, {examples.name} has {len(examples)} of "
            f"{len(examples.classes)}: give votes on these examples, with classes= as the data have them"
        )
    return replace(examples, votes=found)


def labeled_by_votes(examples: Examples) -> Examples:
    """The examples labeled with the class that most people voted for; their own label wins ties, and is kept without votes."""
    counts = torch.from_numpy(_tally(examples))
    own = torch.nn.functional.one_hot(examples.labels, len(examples.classes)).to(counts)
    return replace(examples, labels=(counts + 0.5 * own).argmax(1))


def vote_shares(examples: Examples) -> Tensor:
    """The share of the votes for each class (N, K), float32; one-hot for the label if there is no vote."""
    counts = torch.from_numpy(_tally(examples))
    own = torch.nn.functional.one_hot(examples.labels, len(examples.classes)).to(counts)
    total = counts.sum(1, keepdim=True)
    return torch.where(total > 0, counts / total.clamp(min=1e-12), own).float()


def _tally(examples: Examples) -> np.ndarray[Any, Any]:
    assert examples.votes is not None
    return examples.votes.tally(len(examples))


def read_votes(source: str, examples: Examples) -> Votes:
    """The votes in a file, or in some columns of it."""
    name, chosen = (source, None) if Path(source).exists() else _with_columns(source)
    path = find_file(name)
    columns = label_columns(path)
    for one in chosen or ():
        if one not in columns:
            raise DataError(f"{path}: no votes called {one!r}; there are {', '.join(columns)}")
    annotator, label = find_name(columns, ANNOTATORS), find_name(columns, LABELS)
    if chosen is None and annotator is not None and label is not None:
        return _long(columns, annotator, label, examples, path)
    ids = find_name([one for one in columns if one not in (chosen or ())], EXAMPLES)
    counted = _counts(columns, chosen, ids, examples)
    own = {name: columns[name] for name in chosen or columns if name not in (ids, CLEAN)}
    if counted is None and chosen is None and list(own) == [VOTES]:
        own = {str(a): column for a, column in enumerate(np.asarray(own[VOTES]).T)}
    if counted is None and not own:
        raise DataError(f"{path}: no votes; give one column per annotator, or rows of example, annotator and label")
    place = _places(columns[ids], examples, path) if ids is not None else None
    if place is None:
        check_order(columns, examples, path)
        place = np.arange(len(examples))
    for name, values in own.items() if counted is None else [(COUNTS, counted)]:
        if len(values) != len(place):
            raise DataError(
                f"{path}: {name!r} has {len(values)} rows, {examples.name} {len(examples)} examples: "
                "add a column `id` that names the example of each row"
            )
    if counted is not None:
        found = Votes.from_counts(counted, classes=examples.classes)
        return replace(found, example=place[found.example], num_examples=len(examples))
    return _wide(own, place, examples, path)


def _with_columns(source: str) -> tuple[str, list[str] | None]:
    name, colon, columns = source.rpartition(":")
    return (name, columns.split(",")) if colon and name and columns else (source, None)


def _long(columns: Columns, annotator: str, label: str, examples: Examples, path: Path) -> Votes:
    """One row per vote."""
    ids = find_name([one for one in columns if one not in (annotator, label)], EXAMPLES)
    if ids is None:
        raise DataError(f"{path}: no column says which example a vote is on; call it 'example'")
    values, missing = label_values(columns[label], f"{path}: {label}", row=RowSource(str(path), path).row)
    place, cast = _places(columns[ids], examples, path), np.flatnonzero(~missing)
    names, who = np.unique(np.asarray(columns[annotator]), return_inverse=True)
    index = _class_numbers(values, cast, label, examples, path)
    return Votes(place[cast], who[cast], index, np.ones(len(cast)), len(examples), names.tolist(), examples.classes)


def _class_numbers(
    values: np.ndarray[Any, Any], cast: np.ndarray[Any, Any], column: str, examples: Examples, path: Path
) -> np.ndarray[Any, Any]:
    """The classes that the votes in these rows are for."""
    source = RowSource(str(path), path)
    found: np.ndarray[Any, Any] = class_numbers(
        values[cast], examples.classes, f"{path}: {column}", row=lambda at: source.row(int(cast[at]))
    ).numpy()
    return found


def _wide(columns: Columns, place: np.ndarray[Any, Any], examples: Examples, path: Path) -> Votes:
    """One column per annotator."""
    example, annotator, label = [], [], []
    for a, (name, given) in enumerate(columns.items()):
        values, missing = label_values(_without_negative(given), f"{path}: {name}", row=RowSource(str(path), path).row)
        cast = np.flatnonzero(~missing)
        example.append(place[cast])
        annotator.append(np.full(len(cast), a))
        label.append(_class_numbers(values, cast, name, examples, path) if len(cast) else cast)
    rows, who, index = (np.concatenate(parts) for parts in (example, annotator, label))
    if not len(rows):
        raise DataError(f"{path}: there is no vote: every cell is empty")
    return Votes(rows, who, index, np.ones(len(rows)), len(examples), list(columns), examples.classes)


def _without_negative(values: Any) -> Any:
    """Votes with −1, which means none, as NaN."""
    array = np.asarray(values)
    return np.where(array == -1, np.nan, array) if array.dtype.kind in "iuf" else values


def _counts(columns: Columns, chosen: Sequence[str] | None, ids: str | None, examples: Examples) -> np.ndarray[Any, Any] | None:
    """Counts (N, K), from columns named like the classes, or from an array of counts."""
    if chosen is None and COUNTS in columns and np.ndim(columns[COUNTS]) == 2:
        return np.asarray(columns[COUNTS], dtype=np.float64)
    names = {str(name): k for k, name in enumerate(examples.classes)}
    own = [name for name in chosen or columns if name not in (ids, CLEAN)]
    if not own or any(name not in names for name in own):
        return None
    counts = np.zeros((len(columns[own[0]]), len(names)))
    for name in own:
        counts[:, names[name]] = [0 if one is None or one == "" else float(one) for one in columns[name]]
    return counts


def _places(values: Any, examples: Examples, path: Path) -> np.ndarray[Any, Any]:
    """The places of examples that are named by their key, path or file name; by their number, if they have no keys."""
    known: dict[str, int] = {}
    for place, name in enumerate(examples.paths or ()):
        known.setdefault(os.path.basename(name), place)
        known[name] = place
    known |= {str(key): place for place, key in enumerate(range(len(examples)) if examples.keys is None else examples.keys)}
    found = [known.get(str(value), -1) for value in np.asarray(values).tolist()]
    if -1 in found:
        row = found.index(-1)
        where = RowSource(str(path), path)(row)
        raise DataError(f"{where}: the vote is on example {values[row]!r}, which {examples.name} does not have")
    return np.array(found, dtype=np.int64)
