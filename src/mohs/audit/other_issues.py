"""The issues of the audited data besides their labels: what the judges computed is passed on to `mohs.issues`.

Copies, outliers and defects are searched among the training examples; leaks between them and the other splits, or a second data
set if one is named (`against`). Images of other splits are compared by their pixels, which costs little; texts are embedded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.audit.options import AuditOptions
from mohs.audit.previous import DEFECTS, hashes_of, kept_issues, load_previous
from mohs.data.examples import Data, Examples
from mohs.data.open_data import open_data
from mohs.embed.embed_data import embed
from mohs.issues.catalog import chosen_issues
from mohs.issues.find_issues import Near, find_issues
from mohs.issues.found import Array, Found
from mohs.issues.issues_table import Issues

LISTED = 200  # leaks that the report lists


def other_issues(
    data: Data, options: AuditOptions, *, features: Any = None, near: Near | None = None, probs: Array | None = None
) -> Issues | None:
    """The issues of the training examples; None if none are wanted.

    Args:
        data: The data; other splits are only compared with the training examples.
        options: `issues` and `against` say what to look for; results of the audit `previous` on the same inputs that do not
        depend on labels are reused.
        features: Features (N, D) that the labels were judged by, if there are any.
        near: Rows and cosines of the nearest by these features.
        probs: Out-of-sample probabilities of the classes (N, K).
    """
    wanted = chosen_issues(options.issues)
    if not wanted:
        return None
    train = data.train
    given = {**_content(train), "labels": train.labels.numpy(), "sizes": train.sizes, "probs": probs}
    given["classes"] = [str(name) for name in train.classes]  # labels are indices of names
    if near is not None:
        given |= {"features": features, "near": near}
    other = _other_splits(data, options)
    hashes = hashes_of({"train": train, **other})
    kept, copies = kept_issues(load_previous(options), hashes, options.issues)
    own = "auto" if options.issues == "auto" else [name for name in wanted if name != "leak"]
    again = f" ({len(kept)} kept from {options.previous})" if kept else ""
    options.step("issues", f"copies, outliers, defects, groups{again}" + (f"; leaks to {', '.join(other)}" if other else ""))
    new = (
        find_issues(**given, names=own, without=DEFECTS if kept else (), copies=copies, seed=options.seed, device=options.device)
        if own
        else Issues(len(train))
    )
    found = {**new.found, **kept}
    if "leak" in wanted and other and "leak" not in kept:
        found["leak"] = leaks_between({"train": train, **other}, options)
    return Issues(len(train), {name: found[name] for name in wanted if name in found}, new.copies, hashes)


def check_issues(data: Data, options: AuditOptions) -> None:
    """Raise, before any work, if leaks are wanted by name but there is nothing to compare with."""
    if options.issues != "auto" and "leak" in chosen_issues(options.issues) and len(data.splits) < 2 and options.against is None:
        raise ValueError("issue 'leak' needs a validation or test split, or a second data set: name one with against (--against)")


def leaks_between(splits: Mapping[str, Examples], options: AuditOptions) -> Found:
    """Training examples that another split holds too: the first of these splits is the training split."""
    parts, first = list(splits.values()), len(next(iter(splits.values())))
    names = np.repeat(list(splits), [len(one) for one in parts])
    content: dict[str, Any] = {}
    for name, values in _contents(parts).items():
        content[name] = _Stacked(values) if name == "images" else _flat(values)
    features = _features_of_all(parts, options)
    found = find_issues(features, splits=names, names=["leak"], device=options.device, **content).found["leak"]
    assert found.group is not None
    where = {group: int(row) for row, group in reversed(list(enumerate(found.group[first:], first))) if group >= 0}
    named = [_name(one, row) for one in parts for row in range(len(one))] if where else []
    details = [
        {"training example": named[row], "split": str(names[where[group]]), "copy": named[where[group]]}
        for row in np.flatnonzero(found.flag[:first])[:LISTED]
        if (group := found.group[row]) in where
    ]
    return Found(found.score[:first], found.flag[:first], found.group[:first], details)


def _other_splits(data: Data, options: AuditOptions) -> dict[str, Examples]:
    """The splits besides training, and those of the second data set."""
    found = {name: one for name, one in data.splits.items() if name != "train" and len(one)}
    if options.against is None:
        return found
    kind, shape = data.train.kind, data.train.shape
    second = open_data(options.against, image_size=tuple(shape[1:]) if kind == "images" else None)  # type: ignore[arg-type]
    if second.train.kind != kind or (kind == "features" and second.train.shape != shape):
        raise DataError(
            f"against (--against): {second.name} holds {second.train.kind}, {data.name} {kind}: name data of the same kind and "
            "width"
        )
    return found | {f"{second.name} {name}": one for name, one in second.splits.items()}


def _content(examples: Examples) -> dict[str, Any]:
    """The inputs as `find_issues` takes them."""
    if examples.kind == "images":
        return {"images": examples.inputs}
    if examples.kind == "features":
        return {"features": np.asarray(examples.inputs)}
    if examples.kind == "predictions":
        return {}
    every = examples.inputs[torch.arange(len(examples))]
    return {"texts" if examples.kind == "text" else "table": every}


def _contents(parts: Sequence[Examples]) -> dict[str, list[Any]]:
    """The inputs of several splits, as the keyword argument for `find_issues`."""
    each = [_content(one) for one in parts]
    return {name: [one[name] for one in each] for name in each[0] if name != "features"}


def _flat(values: Sequence[Any]) -> Any:
    """Texts or tables of several splits as one."""
    if isinstance(values[0], list):
        return [text for one in values for text in one]
    import pyarrow as pa

    return pa.concat_tables(values, promote_options="default").unify_dictionaries()


def _features_of_all(parts: Sequence[Examples], options: AuditOptions) -> Array | None:
    """Features of several splits, if they cost little: given ones, or those of texts."""
    kind = parts[0].kind
    if kind == "features":
        return np.concatenate([np.asarray(one.inputs) for one in parts])
    if kind != "text":
        return None
    made = [embed(Data(parts[0], test=one), options.embed, device=options.device).data for one in parts[1:]]
    return np.concatenate(
        [np.asarray(made[0].train.inputs), *(np.asarray(one.test.inputs) for one in made if one.test is not None)]
    )


def _name(examples: Examples, row: int) -> str:
    if examples.paths is not None:
        return str(examples.paths[row])
    return str(row if examples.keys is None else examples.keys[row])


class _Stacked:
    """Images of several splits as one, read on access; gray ones get as many channels as the others."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts, self.starts = parts, np.cumsum([0, *map(len, parts)])
        self.channels = max(int(one.shape[1]) for one in parts)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), self.channels, *self.parts[0].shape[2:])

    def __getitem__(self, rows: Tensor) -> Tensor:
        found = []
        for part, start, stop in zip(self.parts, self.starts[:-1], self.starts[1:], strict=True):
            own = rows[(rows >= start) & (rows < stop)]
            if len(own):
                found.append(part[own - int(start)].expand(-1, self.channels, -1, -1))
        return torch.cat(found)
