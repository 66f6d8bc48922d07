"""Validation of examples: at least two classes, an example of each, labels within their range; and inputs that a network
accepts.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from mohs._core.errors import DataError
from mohs.data.examples import Examples, LeftOut

SHOWN = 5
UNIQUE, LEAST = 0.5, 20  # share and number of examples beyond which classes are probably names or texts
LIKE_MISSING = frozenset(("na", "n/a", "nan", "null", "<na>", "#n/a"))  # lower-case names that probably mean a missing label
OTHER_COLUMN = (
    "if these are not the labels, name their column with label (--label); if they are numbers to predict, mohs audit takes them "
    "with target (--target)"
)
WIDTH = 40  # characters of a class name that a warning shows
ADVICE = {
    "text": "train with `mohs train`, which embeds it, or find wrong labels with `mohs audit`",
    "predictions": "find wrong labels with `mohs audit`",
    "table": "train with `mohs train`, which encodes its columns, or find wrong labels with `mohs audit`",
}


def check_examples(examples: Examples) -> None:
    """Validate that a classifier can be trained on these examples."""
    name, number, classes = examples.name, len(examples), examples.classes
    left = f" ({len(examples.left_out)} were skipped, {first_left_out(examples.left_out)})" if examples.left_out else ""
    if number < 2:
        raise DataError(f"{name}: {number} example(s){left}: at least 2 are needed")
    if len(classes) < 2:
        raise DataError(
            f"{name}: a single class, {classes[0]!r}: a classifier needs at least 2" if classes else f"{name}: no classes"
        )
    check_labels(examples)
    if examples.kind == "predictions":  # scores may have classes without a label
        return
    empty = (torch.bincount(examples.labels, minlength=len(classes)) == 0).nonzero().flatten().tolist()
    if empty:
        shown = ", ".join(repr(classes[i]) for i in empty[:SHOWN]) + (", ..." if len(empty) > SHOWN else "")
        raise DataError(f"{name}: no example of {shown}{left}: add some, or remove the class")
    if 0 in examples.shape:
        raise DataError(f"{name}: inputs of shape {examples.shape} are empty")


def check_labels(examples: Examples) -> None:
    """Validate that the labels are class indices."""
    name, labels, classes = examples.name, examples.labels, examples.classes
    if labels.dtype != torch.int64 or labels.dim() != 1:
        raise DataError(f"{name}: labels must be int64, one per example, got {labels.dtype} {tuple(labels.shape)}")
    outside = ((labels < 0) | (labels >= len(classes))).nonzero()
    if len(outside):
        row = int(outside[0])
        raise DataError(f"{name}: the label of example {row} is {int(labels[row])}, outside 0..{len(classes) - 1}")


def warn_of_labels(examples: Examples) -> None:
    """Warn of labels that are probably something else: names or numbers, missing values, spellings of one class."""
    if examples.separator is not None or examples.numeric or examples.kind == "predictions":
        return
    _warn_of_spellings(examples)
    _warn_of_missing(examples)
    number, classes = len(examples), len(examples.classes)
    if number >= LEAST and classes > UNIQUE * number and (examples.label_column or isinstance(examples.classes[0], str)):
        often = "each occurs once" if classes == number else "most occur once"
        warnings.warn(f"{examples.name}: {_different(examples)}, {often}; {OTHER_COLUMN}", stacklevel=3)


def check_repeated(examples: Examples) -> None:
    """Raise if every class has only one example: the other examples then say nothing about its label."""
    if torch.bincount(examples.labels, minlength=len(examples.classes)).max() < 2:
        raise DataError(
            f"{examples.name}: {_different(examples)}, each of which has one example, so that nothing can be learned about it; "
            f"{OTHER_COLUMN}"
        )


def _different(examples: Examples) -> str:
    """A phrase with the label column and the number of classes."""
    column = f" in column {examples.label_column!r}" if examples.label_column else ""
    shown = f"{str(examples.classes[0])[:WIDTH]!r}"
    return f"the {len(examples):,} labels{column} are of {len(examples.classes):,} classes, such as {shown}"


def spellings(classes: Sequence[Any]) -> list[list[str]]:
    """The classes whose names differ only in case or blanks, together: [["dog", "Dog "]]."""
    alike: dict[str, list[str]] = {}
    for one in classes:
        if isinstance(one, str):
            alike.setdefault(" ".join(one.split()).casefold(), []).append(one)
    return [names for names in alike.values() if len(names) > 1]


def _warn_of_spellings(examples: Examples) -> None:
    twice = spellings(examples.classes)
    if twice:
        shown = " and ".join(map(repr, twice[0][:SHOWN]))
        warnings.warn(
            f"{examples.name}: {len(twice)} class(es) with several spellings, such as {shown}: "
            "they are judged as different classes; if they are the same, spell them alike",
            stacklevel=3,
        )


def _warn_of_missing(examples: Examples) -> None:
    """Warn of classes that are probably missing labels, which are left empty in files."""
    named = [one for one in examples.classes if isinstance(one, str) and one.strip().lower() in LIKE_MISSING]
    if named:
        warnings.warn(
            f"{examples.name}: class(es) {', '.join(map(repr, named[:SHOWN]))} may stand for missing labels: if so, leave these "
            "labels empty, so that their examples are left out",
            stacklevel=3,
        )


def first_left_out(left_out: Sequence[LeftOut]) -> str:
    """The first of the examples that were left out, and why."""
    return f"the first: {left_out[0].path}: {left_out[0].reason}"


def check_numeric(examples: Examples, *, verb: str = "train on") -> None:
    """Validate that a network can take these inputs: images or features, not text or a table."""
    if examples.kind in ADVICE:
        raise DataError(f"{examples.name}: cannot {verb} {examples.kind} directly: {ADVICE[examples.kind]}")
