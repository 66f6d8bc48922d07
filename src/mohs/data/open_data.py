"""`open_data`: open a data set by name or path, or from arrays or another data set, with its own splits.

    open_data()                                    scikit-learn's digits
    open_data("cifar10", root=FOLDER)              a known name (DATA), in `root` or the folder that MOHS_DATA names
    open_data("photos/"), open_data("rows.csv")    a path: class folders, zip, CSV, TSV, JSON Lines, Parquet, npz, idx, CIFAR
    open_data("hf:NAME:CONFIG")                    the Hugging Face hub
    open_data("mnist->usps")                       a pair of domains: trained on the first, tested on the second
    open_data("pacs", without="photo")             several domains: trained on the others, tested on this one
    open_data((x, y)), open_data(dataset)          arrays, tensors, strings, a mapping, a DataFrame, a torch Dataset, Examples

`open_data` does not split data itself: see `split.py`.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from mohs.data.corrections import with_corrections
from mohs.data.decode import Size
from mohs.data.domains import leave_one_out, open_domains, open_pair
from mohs.data.examples import Data, Examples
from mohs.data.groups import with_groups
from mohs.data.images import MEMORY_LIMIT
from mohs.data.open_single import open_single, prepared
from mohs.data.read_options import ARROW, Reading
from mohs.data.votes import with_votes


def open_data(
    data: Any = None,
    *,
    label: str | None = None,
    text: str | None = None,
    group: Any = None,
    separator: str | None = None,
    target: str | None = None,
    image_size: int | Size | None = None,
    split: str | None = None,
    root: str | Path | None = None,
    without: str | None = None,
    votes: Any = None,
    corrected: str | Path | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Data:
    """Open a data set and validate it: at least two classes, each with an example.

    Args:
        data: known name, path, `hf:NAME`, pair of domains, (inputs, labels), mapping, DataFrame, Arrow table, torch Dataset,
            Examples or Data; scikit-learn's digits by default.
        label: column or array of the labels; by default the first called label, target, class or y.
        text: column of the text; by default a column called text, sentence, review, ... that holds text.
        group: column of groups, such as patients or videos, whose examples stay together in cross-validation and held-out splits;
            for images in folders a regular expression that finds the group in each path; or one value per example.
        separator: what separates several labels in a cell of the label column, such as ";"; lists need none.
        target: column of numbers that are the labels, for a regression; in a table, and for `mohs.audit`.
        image_size: pixels per side, or (height, width), of all images.
        split: the only split to read ("train", "val", "test"), as the training examples.
        root: folder of the known data sets; by default the folder that MOHS_DATA names.
        without: domain that is held out of training and tested on.
        votes: labels of the training examples by several people, a file (see `votes.py`), `Votes`, or one column per annotator.
        corrected: file with other labels of the training examples, as `mohs apply` writes it.
        memory_limit: bytes of pixels held in memory; beyond it images are decoded on access.

    Returns:
        The training examples, and validation and test examples where the data have such splits.

    Example:
        >>> open_data((["good film", "bad film"], ["pos", "neg"])).train.kind
        'text'
    """
    reading = Reading.of(
        root=root, label=label, text=text, group=str(group) if isinstance(group, str | int) else None, separator=separator,
        target=target, image_size=image_size, memory_limit=memory_limit,
    )  # fmt: skip
    if group is not None and isinstance(data, Data | Examples):
        data = _ungrouped(data)
    if without is not None:
        found = prepared(_without(data, without, reading), split=split, image_size=reading.image_size)
    elif isinstance(data, str) and ARROW in data and not Path(data).exists():
        source, goal = open_pair(data, **reading.given)
        pair = Data(source.train, source.val, replace(goal.test or goal.train, groups=None))  # numbered independently
        found = prepared(pair, split=split, image_size=reading.image_size)
    else:
        found = open_single(data, split=split, **reading.given)
    found = found if group is None else with_groups(found, reading.group or group)
    found = found if votes is None else replace(found, train=with_votes(found.train, votes))
    return found if corrected is None else with_corrections(found, corrected)


OPTIONS = tuple(inspect.signature(open_data).parameters)[1:]  # label, text, ...


def _without(data: Any, held: str, reading: Reading) -> Data:
    if not isinstance(data, str | os.PathLike):
        raise ValueError(
            f'without={held!r} (--without) needs several domains: "pacs", a folder of them, or names such as "mnist+usps"'
        )
    others, test = leave_one_out(open_domains(data if isinstance(data, str) else Path(data), **reading.given), held)
    return Data(others, None, replace(test, groups=None))


def _ungrouped(data: Data | Examples) -> Data:
    """The data without the groups that they have."""
    splits = {"train": data} if isinstance(data, Examples) else data.splits
    return Data(**{name: replace(part, groups=None) for name, part in splits.items()})
