"""`find_issues`: search for issues besides single labels, from whatever inputs are given.

Each check is a pure function in its own file. The nearest neighbors are searched once, for copies, outliers and order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from mohs._core.device import choose_device
from mohs.hardness.classes import encode
from mohs.hardness.neighbor_index import many_nearest
from mohs.issues.aligned_pixels import aligned_view
from mohs.issues.catalog import ISSUES, chosen_issues
from mohs.issues.class_overlap import class_overlap
from mohs.issues.column_defects import column_defects
from mohs.issues.duplicates import SUPPORT, Copies, View, candidate_pairs, duplicates, view_of
from mohs.issues.exact_copies import exact_copies
from mohs.issues.found import Array, Found
from mohs.issues.image_defects import image_defects
from mohs.issues.imbalance import class_imbalance
from mohs.issues.issues_table import Issues
from mohs.issues.order import order_dependence
from mohs.issues.outliers import outliers
from mohs.issues.text_defects import text_defects, written_view
from mohs.issues.weak_groups import weak_groups

NEIGHBORS = 10
Near = tuple[Any, Any]  # rows and cosines (N, k)


def find_issues(
    features: Any = None,
    labels: Any = None,
    *,
    probs: Any = None,
    images: Any = None,
    sizes: Any = None,
    texts: Sequence[str] | None = None,
    table: pa.Table | None = None,
    splits: Any = None,
    classes: Sequence[Any] | None = None,
    near: Near | None = None,
    copies: Copies | None = None,
    names: str | Sequence[str] = "auto",
    without: Sequence[str] = (),
    seed: int = 0,
    device: str | torch.device = "auto",
) -> Issues:
    """Find copies, leaks, outliers, defects, rare classes, dependence on order, weak groups and overlapping classes.

    Every input is optional; more of them find more.

    Args:
        features: Feature vectors (N, D).
        labels: Class indices or names (N,).
        probs: Out-of-sample probabilities of the classes (N, K).
        images: Images (N, C, H, W), uint8.
        sizes: Height and width (N, 2) of the images as stored.
        texts: N strings.
        table: Arrow table with N rows.
        splits: Name of each example's split (N,), to find leaks between splits.
        classes: Class names in the order of the columns of `probs`; default: the sorted labels.
        near: Rows and cosines (N, k) of the nearest examples by the features, if they are known.
        copies: Copies of the same inputs that an earlier call found (`Issues.copies`).
        names: "auto" for every issue that the inputs allow, "none", or names of issues.
        without: Names of issues to leave out.
        seed: Random seed of the clusters.
        device: Where features and images are compared: auto, cpu or cuda.

    Returns:
        Score and flag of every example for each issue, as a table (`Issues.table`), and details of each issue (`details`).

    Example:
        >>> found = mohs.find_issues(features, labels, probs=probs)
        >>> found.table.column("is_outlier")
    """
    given = {
        "features": features, "labels": labels, "probs": probs, "images": images, "sizes": sizes, "texts": texts, "table": table,
        "splits": splits,
    }  # fmt: skip
    known = [name for name, value in given.items() if value is not None]
    if not known:
        raise ValueError("find_issues needs something to look at: features, labels, images, texts or a table")
    inputs = _Inputs(**given, classes=classes, near=near, given_copies=copies, seed=seed, device=choose_device(device))
    inputs.check(known)
    chosen = [name for name in chosen_issues(names) if name not in without]
    wanted = [name for name in chosen if names == "auto" or _possible(name, known)]
    found: dict[str, Found] = {}
    can_be_found = [name for name in wanted if all(_has(need, known) for need in ISSUES[name].needs)]
    for check, made in CHECKS.items():
        if set(made) & set(can_be_found):
            found |= check(inputs)
    kept = inputs.copies if "near_duplicate" in found else None
    return Issues(inputs.count, {name: found[name] for name in wanted if name in found}, kept)


def _has(need: str, known: Sequence[str]) -> bool:
    return any(one in known for one in need.split("|"))


def _possible(name: str, known: Sequence[str]) -> bool:
    """True; an error if the inputs do not allow this issue."""
    for need in ISSUES[name].needs:
        if not _has(need, known):
            raise ValueError(f"issue {name!r} needs {need.replace('|', ' or ')}: pass them, or leave the issue out")
    return True


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The inputs; results that several checks need are computed once."""

    features: Any
    labels: Any
    probs: Any
    images: Any
    sizes: Any
    texts: Any
    table: Any
    splits: Any
    classes: Any
    near: Near | None
    given_copies: Copies | None
    seed: int
    device: torch.device

    @cached_property
    def count(self) -> int:
        first = next(
            one for one in (self.labels, self.features, self.images, self.texts, self.table, self.sizes) if one is not None
        )
        return len(first)

    def check(self, known: Sequence[str]) -> None:
        """Raise unless all inputs have one length."""
        for name in known:
            length = len(getattr(self, name))
            if length != self.count:
                raise ValueError(f"{name} has {length:,} rows, but there are {self.count:,} examples")

    @cached_property
    def index(self) -> tuple[Array, list[Any]]:
        """Class indices (N,) and class names."""
        values = np.asarray(self.labels)
        if self.classes is not None:
            return encode(values, num_classes=len(self.classes), classes=self.classes)
        names, index = np.unique(values, return_inverse=True)
        width = 0 if self.probs is None else np.shape(self.probs)[1]
        if width and values.dtype.kind in "iu" and values.min(initial=0) >= 0 and values.max(initial=0) < width:
            return values.astype(np.int64), list(range(width))
        if width and width != len(names):
            raise ValueError(
                f"probs has {width} columns but labels has {len(names)} classes: pass classes, in the order of the columns"
            )
        return index.astype(np.int64), names.tolist()

    @cached_property
    def neighbors(self) -> tuple[Array, Array] | None:
        """Rows (N, k) and cosines (N, k) of the nearest; None without features."""
        if self.features is None:
            return None
        if self.near is not None:
            return np.asarray(self.near[0]), np.asarray(self.near[1])
        rows, cosines = many_nearest(torch.as_tensor(np.asarray(self.features)).float(), k=NEIGHBORS, device=self.device)
        return np.asarray(rows), np.asarray(cosines)

    @cached_property
    def vectors(self) -> Array | None:
        return None if self.features is None else np.asarray(self.features)

    @cached_property
    def view(self) -> View | None:
        return None if self.neighbors is None else view_of(*self.neighbors)

    @cached_property
    def copies(self) -> Copies:
        """Pairs that may be copies, by content and by features; neither labels nor splits count."""
        if self.given_copies is not None:
            return self.given_copies
        exact = exact_copies(self.images, self.texts, self.table, self.vectors, self.count)
        rows = None if self.neighbors is None else self.neighbors[0]
        views: list[View] = []
        if self.images is not None and (aligned := aligned_view(self.images, rows, device=self.device)) is not None:
            views.append(aligned)
        if self.texts is not None and rows is not None:
            views.append(written_view(self.texts, rows))
        if self.view is not None:
            views.append(replace(self.view, weight=SUPPORT if views else 1.0))
        return Copies(candidate_pairs(views), exact)


def _duplicates(given: _Inputs) -> dict[str, Found]:
    return duplicates(given.copies, None if given.labels is None else given.index[0], given.splits)


def _outliers(given: _Inputs) -> dict[str, Found]:
    assert given.view is not None
    return {"outlier": outliers(given.view.distances, None if given.probs is None else np.asarray(given.probs))}


def _image_defects(given: _Inputs) -> dict[str, Found]:
    return image_defects(given.images, given.sizes, device=given.device)


def _text_defects(given: _Inputs) -> dict[str, Found]:
    return text_defects(given.texts)


def _column_defects(given: _Inputs) -> dict[str, Found]:
    return column_defects(given.table)


def _imbalance(given: _Inputs) -> dict[str, Found]:
    return {"class_imbalance": class_imbalance(*given.index)}


def _order(given: _Inputs) -> dict[str, Found]:
    return {"order": order_dependence(given.index[0], None if given.neighbors is None else given.neighbors[0])}


def _weak_groups(given: _Inputs) -> dict[str, Found]:
    labels, classes = given.index
    return {"weak_group": weak_groups(labels, np.asarray(given.probs), classes, given.vectors, seed=given.seed)}


def _class_overlap(given: _Inputs) -> dict[str, Found]:
    labels, classes = given.index
    return {"class_overlap": class_overlap(labels, np.asarray(given.probs), classes, given.vectors, seed=given.seed)}


CHECKS: dict[Callable[[_Inputs], dict[str, Found]], tuple[str, ...]] = {  # the checks, and the issues that each finds
    _duplicates: ("exact_duplicate", "near_duplicate", "conflicting_duplicate", "leak"),
    _outliers: ("outlier",),
    _image_defects: ("dark", "bright", "blurry", "low_information", "grayscale", "odd_size", "odd_aspect"),
    _text_defects: ("empty_text", "truncated_text"),
    _column_defects: ("missing_values", "constant_column"),
    _imbalance: ("class_imbalance",),
    _order: ("order",),
    _weak_groups: ("weak_group",),
    _class_overlap: ("class_overlap",),
}
