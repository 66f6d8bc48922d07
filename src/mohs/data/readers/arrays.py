"""Arrays and tensors as examples: features (N, D), images (N, H, W), (N, C, H, W) or (N, H, W, C), or strings (N,); labels (N,).

Features become float32. Images become uint8 where that loses nothing (integers from 0 to 255, or those divided by 255);
levels beyond 255 are scaled by the largest and rounded to 256; other floats are unchanged, in float32. NaN and infinite
values are errors that name the row. Pickled objects are not loaded.

Labels (N, K) of 0 and 1 are several labels of one example; only the training split of such data is read.

npz files: inputs under one of INPUTS (or TEXTS, for strings), labels under one of LABELS, splits as a prefix or suffix
(train_x, x_test, val_images); `classes` (or `class_names`) are the names of the classes 0..K−1, and an array under one of IDS
(ids, test_ids) with a distinct value for each example has their ids. Without inputs, predictions of a model (`predictions`) under
one of SCORES are judged directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.arrays import as_array, read_arrays
from mohs._core.errors import DataError, NoLabels
from mohs._core.vocabulary import CLASSES, IDS, INPUTS, LABELS, TEXTS, find_name
from mohs.data.examples import Data, Examples, LeftOut
from mohs.data.groups import grouped
from mohs.data.labels import SEPARATOR, class_numbers, classes_in, label_sets, label_values
from mohs.data.predictions import SCORES, predicted_examples
from mohs.data.row_inputs import Texts
from mohs.data.split import SPLITS

FIRST, LAST = (1, 3), (1, 3, 4)  # sizes at which a first or last dimension is read as channels
SINGLE = "array"  # the array of a .npy file


def npz(
    path: str | Path, *, label: str | None = None, text: str | None = None, group: str | None = None, name: str | None = None
) -> Data:
    """The data of a .npz file; `label`, `text` and `group` name the arrays of labels, strings and groups."""
    path = Path(path)
    arrays = read_arrays(path, single=SINGLE)
    if list(arrays) == [SINGLE]:
        raise NoLabels(f"{path}: one array without labels; save both in a .npz file: np.savez(FILE, x=inputs, y=labels)")
    return from_mapping(arrays, label=label, text=text, group=group, name=path.stem if name is None else name)


def from_mapping(
    arrays: Mapping[str, Any], *, label: str | None = None, text: str | None = None, group: str | None = None, name: str = "data"
) -> Data:
    """The data of arrays under their names."""
    if group is not None:
        made = from_mapping(_without(arrays, group, label, name), label=label, text=text, name=name)
        shown = f"group {group!r} (--group)"
        return replace(made, train=grouped(made.train, arrays[group], called=shown, single=len(made.splits) == 1))
    labels, inputs = LABELS if label is None else (label,), (*INPUTS, *TEXTS) if text is None else (text,)
    found: dict[str, tuple[str, str]] = {}
    for split, called in SPLITS.items():
        keys = [_key(arrays, names, ("", *called) if split == "train" else called) for names in (inputs, labels)]
        if keys[0] is not None and keys[1] is not None:
            found[split] = (keys[0], keys[1])
    if "train" not in found:
        predicted = _predictions(arrays, labels, name)
        if predicted is not None:
            return Data(predicted)
        alone = _key(arrays, inputs, ("", *SPLITS["train"]))
        if alone is not None:
            raise NoLabels(
                f"{name}: {alone!r} has no labels beside it: call theirs one of {', '.join(labels)}; there are "
                f"{', '.join(map(str, arrays))}"
            )
        raise DataError(
            f"{name}: inputs ({', '.join(inputs)}) and labels ({', '.join(labels)}) are expected, "
            f"by these names or with train_, val_, test_ before them; there are {', '.join(map(str, arrays)) or 'no arrays'}"
        )
    named = find_name(arrays, CLASSES)
    classes = None if named is None else [one.item() if hasattr(one, "item") else one for one in arrays[named]]
    parts: dict[str, Examples] = {}
    if several(arrays[found["train"][1]]):
        x, y = found["train"]
        return Data(from_arrays(arrays[x], arrays[y], classes=classes, keys=_ids(arrays, "train", len(arrays[y])), name=name))
    for split, (x, y) in found.items():
        known = parts["train"].classes if parts else classes
        top = _top(arrays[found["train"][0]])
        ids = _ids(arrays, split, len(arrays[y]))
        parts[split] = from_arrays(arrays[x], arrays[y], classes=known, keys=ids, name=name, top=top)
    return Data(parts["train"], parts.get("val"), parts.get("test"))


def _without(arrays: Mapping[str, Any], group: str, label: str | None, name: str) -> dict[str, Any]:
    """The arrays without the one of the groups."""
    if group not in arrays:
        raise DataError(f"{name}: no array {group!r} for the groups (--group); there are {', '.join(map(str, arrays))}")
    if group == _key(arrays, LABELS if label is None else (label,), ("", *SPLITS["train"])):
        raise DataError(f"{name}: array {group!r} holds the labels, so it cannot hold the groups (--group)")
    return {key: array for key, array in arrays.items() if key != group}


def _predictions(arrays: Mapping[str, Any], labels: Sequence[str], name: str) -> Examples | None:
    """The examples of a model's predictions and their labels, where arrays are called so."""
    scores, given, named = find_name(arrays, SCORES), find_name(arrays, labels), find_name(arrays, CLASSES)
    if scores is None or given is None:
        return None
    classes = None if named is None else as_array(arrays[named]).tolist()
    keys = _ids(arrays, "train", len(arrays[given]))
    return predicted_examples(arrays[scores], arrays[given], classes=classes, keys=keys, name=name)


def from_arrays(
    inputs: Any,
    labels: Any,
    *,
    classes: Sequence[Any] | None = None,
    keys: Sequence[Any] | None = None,
    name: str = "data",
    top: float | None = None,
) -> Examples:
    """Inputs (N, ...) and labels (N,) -> examples; rows without a label or without text are skipped, keys keep their numbers.

    Labels (N, K) of 0 and 1 indicate which of K classes an example has; every set of classes becomes a class.
    top: the level of white in images with more than 256 levels; by default the largest level.
    """
    if several(labels):
        made = from_arrays(inputs, label_sets(as_array(labels), classes, name), keys=keys, name=name, top=top)
        return replace(made, separator=SEPARATOR)
    strings = as_strings(inputs)
    rows, notes = as_inputs(inputs, name=name, top=top) if strings is None else (Texts(strings), [])
    values, missing = label_values(labels, name)
    if len(values) != len(rows):
        raise DataError(f"{name}: {len(rows)} inputs but {len(values)} labels: give one label per example")
    skipped = {row: "no text" for row, one in enumerate(strings or ()) if not one.strip()}
    skipped |= dict.fromkeys(np.flatnonzero(missing).tolist(), "no label")
    kept = np.array([row for row in range(len(values)) if row not in skipped], dtype=np.int64)
    values = values[kept]
    names = classes_in(values) if classes is None else list(classes)
    left_out = [LeftOut(f"row {row}", reason, place=row) for row, reason in sorted(skipped.items())]
    found = class_numbers(values, names, name)
    if not skipped:
        return Examples(rows, found, names, name=name, keys=keys, notes=notes)
    own = torch.from_numpy(kept)
    rows = rows[own] if isinstance(rows, Tensor) else rows.take(own)
    keys = kept.tolist() if keys is None else [keys[row] for row in kept.tolist()]
    return Examples(rows, found, names, name=name, keys=keys, left_out=left_out, notes=notes)


def several(labels: Any) -> bool:
    """Whether labels are (N, K) of 0 and 1 with several, or none, in some row: one in every row is one label, written one-hot."""
    shape: Sequence[int] = getattr(labels, "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        return False
    given = as_array(labels)
    return bool(np.isin(given, (0, 1)).all() and (given.sum(1) != 1).any())


def as_strings(inputs: Any) -> list[str] | None:
    """Inputs as a list of strings, where they are one string (or a missing value) each; None for anything else."""
    if isinstance(inputs, Tensor) or getattr(inputs, "ndim", 1) != 1 or isinstance(inputs, str | bytes):
        return None
    values = inputs.tolist() if hasattr(inputs, "tolist") else list(inputs)
    values = [None if one is None or one != one else one for one in values] if _may_be_text(values) else values
    if not any(isinstance(one, str) for one in values) or not all(one is None or isinstance(one, str) for one in values):
        return None
    return [one or "" for one in values]


def _may_be_text(values: Sequence[Any]) -> bool:
    return all(one is None or isinstance(one, str | float) for one in values)


def as_inputs(inputs: Any, *, name: str = "data", top: float | None = None) -> tuple[Tensor, list[str]]:
    """An array of features or images as one tensor, and notes on it."""
    x = inputs.detach().cpu() if isinstance(inputs, Tensor) else _as_tensor(inputs, name)
    if x.dim() not in (2, 3, 4) or x.is_complex():
        raise DataError(
            f"{name}: inputs must be features (N, D) or images (N, H, W) or (N, C, H, W), got {x.dtype} {tuple(x.shape)}"
        )
    if x.is_floating_point():
        x = x.float()
        wrong = (~x.flatten(1).isfinite().all(1)).nonzero()
        if len(wrong):
            raise DataError(
                f"{name}: the inputs of row {int(wrong[0])} hold NaN or infinity; {len(wrong)} row(s) do: drop or fill them"
            )
    if x.dim() == 2:
        return x.float(), []
    x = x[:, None] if x.dim() == 3 else x
    if x.shape[3] in LAST and x.shape[1] not in FIRST:
        x = x.permute(0, 3, 1, 2)
    levels, notes = _levels(x, top)
    return levels.contiguous(), notes


def _levels(x: Tensor, top: float | None) -> tuple[Tensor, list[str]]:
    """Images as uint8 where that loses nothing, and notes where it does."""
    if x.dtype in (torch.uint8, torch.bool) or not x.numel():
        return (x.to(torch.uint8) * (255 if x.dtype == torch.bool else 1)), []
    low, high = float(x.min()), float(x.max()) if top is None else top
    if low < 0:
        return x.float(), [f"pixels from {low:g} to {high:g} were kept as they are"]
    if x.is_floating_point():
        scaled = x * 255 if high <= 1 else x
        if high <= 255 and torch.allclose(scaled, scaled.round(), rtol=0, atol=1e-3):
            return scaled.round().clamp(max=255).to(torch.uint8), []
        return x, [] if high <= 1 else [f"pixels from {low:g} to {high:g} were kept as they are"]
    if high <= 255:
        return x.clamp(max=255).to(torch.uint8), []
    scaled = (x.double() * (255 / high)).round().clamp(max=255)
    return scaled.to(torch.uint8), [f"levels from 0 to {high:g} were scaled to 256 levels"]


def _as_tensor(inputs: Any, name: str) -> Tensor:
    array = np.asarray(inputs)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name}: inputs must be numbers, all of one shape, got {array.dtype} {array.shape}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:  # torch supports wide unsigned integers only in part
        array = array.astype(np.int64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _top(inputs: Any) -> float | None:
    """The largest level of the training images, which scales all splits."""
    return float(inputs.max()) if hasattr(inputs, "max") and len(inputs) and getattr(inputs, "ndim", 0) > 2 else None


def _ids(arrays: Mapping[str, Any], split: str, number: int) -> list[Any] | None:
    """The ids of the examples of a split, if an array of ids has one for each."""
    key = _key(arrays, IDS, ("", *SPLITS[split]) if split == "train" else SPLITS[split])
    if key is None or getattr(arrays[key], "shape", (len(arrays[key]),)) != (number,):
        return None
    values = arrays[key].tolist() if hasattr(arrays[key], "tolist") else list(arrays[key])
    return values if len(set(values)) == number else None


def _key(arrays: Mapping[str, Any], names: Sequence[str], splits: Sequence[str]) -> str | None:
    """The array with one of these names, combined with the name of one of these splits; case does not matter."""
    lower = {str(key).lower(): key for key in arrays}
    for split in splits:
        for name in names:
            forms = (name,) if not split else (f"{split}_{name}", f"{name}_{split}", f"{split}-{name}", f"{split}{name}")
            for form in forms:
                if form.lower() in lower:
                    return lower[form.lower()]
    return None
